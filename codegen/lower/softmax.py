"""softmax and log_softmax: maximum, sum of exponentials, and the quotient, in f32 for half types.

For half types ATen rounds some intermediate values, depending on which of its kernels runs (last dim or
not; rows shorter than a vector): the same ones are rounded here.
"""

from __future__ import annotations

import math
from typing import Any

from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.types import FLOATS, HALVES, compute_type
from dyncomp.codegen.lower.builder import Lowering, dtype_of
from dyncomp.codegen.lower.reductions import dims_of
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.rounding import rounded
from dyncomp.codegen.lower.tensor import Tensor, may_be_empty

VECTOR = 32  # half floats in a vector of ATen's on AVX-512


def _exponentials(lx: Lowering, x: Tensor, dim: int, kind: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(max, x - max, exp of that, sum of it), dims kept."""
    wide, dims = lx.convert(x, kind), dims_of(x, dim)
    peak = lx.reduce("max", wide, dims, True, kind)
    shifted = lx.elementwise(lambda b, v, m: b.op("sub", v, m), [wide, peak], kind, shape=x.shape)
    powers = lx.elementwise(lambda b, v: b.op("exp", v), [shifted], kind, shape=x.shape)
    return peak, shifted, powers, lx.reduce("sum", powers, dims, True, kind)


def _supported(x: Tensor, out: str | None) -> bool:
    return out is not None and compute_type(x.dtype) in FLOATS and not may_be_empty(x.shape)


def _last(x: Tensor, dim: int) -> bool:
    return not x.shape or dim % len(x.shape) == len(x.shape) - 1


@lowering("aten._softmax.default", "aten.softmax.int", "aten._safe_softmax.default")
def softmax(lx: Lowering, node: Any, x: Tensor, dim: int, extra: Any = None) -> Any:
    val = node.meta["val"]
    out = dtype_of(val)
    if not _supported(x, out):
        return None
    assert out is not None
    peak, _, powers, total = _exponentials(lx, x, dim, compute_type(out))
    if out in HALVES and not _last(x, dim) and math.prod(x.shape[dim % len(x.shape) + 1 :]) < VECTOR:
        powers = lx.elementwise(lambda b, e: rounded(b, e, out), [powers], powers.dtype, shape=x.shape)
    safe = node.target.__name__.startswith("_safe")

    def finish(b: Builder, e: Value, s: Value, *m: Value) -> Value:
        share = b.op("div", e, s)
        if not safe:
            return share
        masked = b.op("eq", m[0], b.const(-math.inf, e.dtype))  # no element of the row is finite: zeros
        return b.op("where", masked, b.const(0.0, e.dtype), share)

    operands = [powers, total, peak] if safe else [powers, total]
    return lx.elementwise(finish, operands, out, shape=val.shape, strides=val.stride())


@lowering("aten._log_softmax.default", "aten.log_softmax.int")
def log_softmax(lx: Lowering, node: Any, x: Tensor, dim: int, extra: Any = None) -> Any:
    val = node.meta["val"]
    out = dtype_of(val)
    if not _supported(x, out):
        return None
    assert out is not None
    _, shifted, _, total = _exponentials(lx, x, dim, compute_type(out))

    rounds = out in HALVES and _last(x, dim)

    def finish(b: Builder, d: Value, s: Value) -> Value:
        log = b.op("log", rounded(b, s, out) if rounds else s)
        return b.op("sub", d, rounded(b, log, out) if rounds else log)

    return lx.elementwise(finish, [shifted, total], out, shape=val.shape, strides=val.stride())
