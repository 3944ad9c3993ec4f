"""Choosing between values: where, masked_fill, clamp, tril, triu."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.real import Real
from dyncomp.codegen.ir.types import FLOATS, INTS, compute_type
from dyncomp.codegen.lower.builder import Lowering, Operand, dtype_of, number, promote
from dyncomp.codegen.lower.pointwise import result
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.rounding import cast_to
from dyncomp.codegen.lower.tensor import Indices, Scope, Tensor


@lowering("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(lx: Lowering, node: Any, condition: Tensor, x: Operand, y: Operand) -> Any:
    dtype = dtype_of(node.meta["val"])
    if dtype is None or condition.dtype not in ("bool", "u8"):
        return None
    work = compute_type(dtype)

    tensors = [o for o in (x, y) if isinstance(o, Tensor)]

    def choose(b: Builder, c: Value, *values: Value) -> Value:
        rest = iter(values)
        u, v = (
            cast_to(b, next(rest), o.dtype, dtype) if isinstance(o, Tensor) else number(b, o, work) for o in (x, y)
        )
        return b.op("where", b.cast(c, "bool"), u, v)

    return result(lx, node, choose, [condition, *tensors], None)


@lowering("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(lx: Lowering, node: Any, x: Tensor, mask: Tensor, value: Operand) -> Any:
    return where(lx, node, mask, value, x)


@lowering("aten.clamp.default", "aten.clamp_min.default", "aten.clamp_max.default")
def clamp(lx: Lowering, node: Any, x: Tensor, *bounds: Any, **named: Any) -> Any:
    name = node.target.__name__.split(".")[0]
    low, high = _bounds(name, bounds, named)
    work = promote([v for v in (x, low, high) if v is not None])
    if work is None or work == "bool" or any(isinstance(v, float) and math.isnan(v) for v in (low, high)):
        return None
    kind = compute_type(work)
    if kind in INTS and any(isinstance(v, float) for v in (low, high)):
        return None

    def compute(b: Builder, v: Value) -> Value:
        for bound, test in ((low, "lt"), (high, "gt")):
            if bound is not None:
                limit = number(b, bound, kind)
                v = b.op("where", b.op(test, v, limit), limit, v)
                if isinstance(bound, Real) and (name != "clamp" or _fills_with_nan(low is not None, high is not None)):
                    v = b.op("where", b.op("isnan", limit), limit, v)
        return v

    return result(lx, node, compute, [x], work)


@functools.cache
def _fills_with_nan(low: bool, high: bool) -> bool:
    """Whether ATen fills the result where a bound that is given is nan: with one bound older releases leave the numbers as they are."""
    filled = torch.zeros(1).clamp(math.nan if low else None, math.nan if high else None)
    return bool(filled.isnan())


def _bounds(name: str, bounds: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
    if name == "clamp_min":
        return (bounds[0] if bounds else named.get("min")), None
    if name == "clamp_max":
        return None, (bounds[0] if bounds else named.get("max"))
    low = bounds[0] if bounds else named.get("min")
    return low, (bounds[1] if len(bounds) > 1 else named.get("max"))


@lowering("aten.clamp.Tensor", "aten.clamp_min.Tensor", "aten.clamp_max.Tensor")
def clamp_tensor(lx: Lowering, node: Any, x: Tensor, *bounds: Any, **named: Any) -> Any:
    low, high = _bounds(node.target.__name__.split(".")[0], bounds, named)
    operands = [v for v in (x, low, high) if v is not None]
    work = promote(operands)
    if work is None or work == "bool":
        return None
    names = [n for n, v in (("maximum", low), ("minimum", high)) if v is not None]

    def compute(b: Builder, v: Value, *limits: Value) -> Value:
        for op, limit in zip(names, limits, strict=True):
            v = b.op(op, v, limit)
        return v

    return result(lx, node, compute, operands, work)


@lowering("aten.tril.default", "aten.triu.default")
def triangle(lx: Lowering, node: Any, x: Tensor, diagonal: int = 0) -> Any:
    keep = "le" if node.target.__name__.startswith("tril") else "ge"
    kind = compute_type(x.dtype)
    val = node.meta["val"]

    def body(scope: Scope, index: Indices) -> Value:
        b = scope.b
        inside = b.op(keep, b.position(index[-1] - index[-2]), b.integer(diagonal))
        return b.op("where", inside, scope.read(x, index), number(b, False if kind == "bool" else 0, kind))

    return lx.compute(val.shape, x.dtype, body, [x], val.stride())


@lowering("aten.nan_to_num.default")
def nan_to_num(lx: Lowering, node: Any, x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    if x.dtype not in FLOATS or posinf is None or neginf is None:
        return None

    def compute(b: Builder, v: Value) -> Value:
        def c(value: float) -> Value:
            return b.const(float(value), v.dtype)

        filled = b.op("where", b.op("isnan", v), c(0.0 if nan is None else nan), v)
        filled = b.op("where", b.op("eq", v, c(math.inf)), c(posinf), filled)
        return b.op("where", b.op("eq", v, c(-math.inf)), c(neginf), filled)

    return result(lx, node, compute, [x], x.dtype)
