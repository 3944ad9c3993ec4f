"""Reductions: sum, mean, prod, extrema, any/all, argmax/argmin, variance, norms.

Sums of half and single floats accumulate in f32, of integers and bools in i64, as ATen does; variance
takes two passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.types import FLOATS, FROM_TORCH, HALVES, compute_type
from dyncomp.codegen.lower.builder import Lowering, dtype_of, number
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.rounding import rounded
from dyncomp.codegen.lower.tensor import Tensor, may_be_empty


def dims_of(x: Tensor, dim: int | Sequence[int] | None) -> tuple[int, ...]:
    """Reduced dims, all of them for None and for an empty list."""
    rank = len(x.shape)
    if dim is None or (not isinstance(dim, int) and not dim):
        return tuple(range(rank))
    listed = (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(sorted(d % max(rank, 1) for d in listed)) if rank else ()


def count_of(x: Tensor, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


def _reduce(lx: Lowering, node: Any, op: str, x: Tensor, dim: Any, keepdim: bool) -> Tensor | None:
    val = node.meta["val"]
    dtype = dtype_of(val)
    if dtype is None:
        return None
    return lx.reduce(op, x, dims_of(x, dim), keepdim, dtype, strides=val.stride())


def _summand(lx: Lowering, x: Tensor, dtype: str) -> Tensor:
    return lx.convert(x, compute_type(dtype))


@lowering("aten.sum.dim_IntList", "aten.sum.default")
def sum_(lx: Lowering, node: Any, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    out = dtype_of(node.meta["val"])
    if out is None or out == "bool":
        return None
    work = "i64" if compute_type(out) not in FLOATS else out
    return _reduce(lx, node, "sum", _summand(lx, x, work), dim, keepdim)


@lowering("aten.prod.default", "aten.prod.dim_int")
def prod(lx: Lowering, node: Any, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    out = dtype_of(node.meta["val"])
    if out is None or out == "bool" or out in HALVES:  # ATen multiplies in the half type, in its own order
        return None
    return _reduce(lx, node, "prod", _summand(lx, x, "i64" if compute_type(out) not in FLOATS else out), dim, keepdim)


@lowering("aten.mean.dim", "aten.mean.default")
def mean(lx: Lowering, node: Any, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    val = node.meta["val"]
    out = dtype_of(val)
    if out is None or compute_type(out) not in FLOATS:
        return None
    return _mean(lx, x, dims_of(x, dim), keepdim, out, val.stride())


def _mean(
    lx: Lowering,
    x: Tensor,
    dims: Sequence[int],
    keepdim: bool,
    dtype: str,
    strides: Sequence[int] | None = None,
) -> Tensor:
    kind = compute_type(dtype)
    total = lx.reduce("sum", lx.convert(x, kind), dims, keepdim, kind)
    count = count_of(x, dims)
    return lx.elementwise(
        lambda b, s: b.op("div", s, number(b, count, kind)), [total], dtype, shape=total.shape, strides=strides
    )


@lowering("aten.amax.default", "aten.max.default", "aten.amin.default", "aten.min.default")
def extremum(lx: Lowering, node: Any, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    if may_be_empty(x.shape):
        return None
    op = "max" if "max" in node.target.__name__ else "min"
    if x.dtype == "bool":
        op = "any" if op == "max" else "all"
    return _reduce(lx, node, op, x, dim, keepdim)


@lowering("aten.max.dim", "aten.min.dim")
def extremum_with_position(lx: Lowering, node: Any, x: Tensor, dim: int, keepdim: bool = False) -> Any:
    if may_be_empty(x.shape) or x.dtype == "bool" or not x.shape:
        return None
    op = "argmax" if node.target.__name__.startswith("max") else "argmin"
    values, positions = node.meta["val"]
    dims = dims_of(x, dim)
    return (
        lx.reduce(op, x, dims, keepdim, x.dtype, strides=values.stride()),
        lx.reduce(op, x, dims, keepdim, "i64", part="position", strides=positions.stride()),
    )


@lowering("aten.argmax.default", "aten.argmin.default")
def arg_extremum(lx: Lowering, node: Any, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    if may_be_empty(x.shape) or x.dtype == "bool":
        return None
    op = node.target.__name__.split(".")[0]
    val = node.meta["val"]
    return lx.reduce(op, x, dims_of(x, dim), keepdim, "i64", part="position", strides=val.stride())


@lowering("aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim", "aten.all.dims")
def any_all(lx: Lowering, node: Any, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    if dtype_of(node.meta["val"]) != "bool":
        return None  # uint8 in, uint8 out
    return _reduce(lx, node, node.target.__name__.split(".")[0], lx.convert(x, "bool"), dim, keepdim)


@lowering("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(lx: Lowering, node: Any, x: Tensor, dim: Any = None) -> Any:
    return _reduce(lx, node, "sum", lx.convert(lx.convert(x, "bool"), "i64"), dim, False)


def moments(lx: Lowering, x: Tensor, dims: Sequence[int], kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (dims kept as 1), the centred tensor, and the sum of its squares (dims kept)."""
    wide = lx.convert(x, kind)
    average = _mean(lx, wide, dims, True, kind)
    centred = lx.elementwise(lambda b, v, m: b.op("sub", v, m), [wide, average], kind, shape=x.shape)
    squares = lx.elementwise(lambda b, v: b.op("mul", v, v), [centred], kind, shape=x.shape)
    return average, centred, lx.reduce("sum", squares, dims, True, kind)


def _variance(
    lx: Lowering, x: Tensor, dim: Any, correction: Any, keepdim: bool, val: Any, root: bool
) -> tuple[Tensor, Tensor] | None:
    """(variance or its root, mean with dims kept)."""
    dtype = dtype_of(val)
    if dtype is None or compute_type(x.dtype) not in FLOATS:
        return None
    dims = dims_of(x, dim)
    kind = compute_type(dtype)
    average, _, squares = moments(lx, x, dims, kind)
    count, less = count_of(x, dims), 1.0 if correction is None else float(correction)

    def divisor(b: Builder) -> Value:
        if isinstance(count, int):
            return b.const(max(float(count) - less, 0.0), kind)
        return b.op("maximum", b.op("sub", number(b, count, kind), b.const(less, kind)), b.const(0.0, kind))

    def finish(b: Builder, s: Value) -> Value:
        spread = b.op("div", s, divisor(b))
        return b.op("sqrt", spread) if root else spread

    return _drop_dims(lx, finish, squares, dims, keepdim, dtype, val), average


def _drop_dims(
    lx: Lowering, function: Any, kept: Tensor, dims: Sequence[int], keepdim: bool, dtype: str, val: Any
) -> Tensor:
    """A per-row result: `function` of a tensor with dims kept as 1, shaped as `keepdim` says."""
    source = kept if keepdim else lx.reshape(kept, tuple(s for d, s in enumerate(kept.shape) if d not in dims))
    return lx.elementwise(function, [source], dtype, shape=val.shape, strides=val.stride())


@lowering("aten.var.correction", "aten.std.correction")
def variance(lx: Lowering, node: Any, x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    both = _variance(lx, x, dim, correction, keepdim, node.meta["val"], node.target.__name__.startswith("std"))
    return both and both[0]


@lowering("aten.var.dim", "aten.std.dim")
def variance_dim(lx: Lowering, node: Any, x: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
    return variance(lx, node, x, dim, 1 if unbiased else 0, keepdim)


@lowering("aten.var_mean.correction", "aten.std_mean.correction")
def variance_mean(
    lx: Lowering, node: Any, x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> Any:
    spread_val, mean_val = node.meta["val"]
    root = node.target.__name__.startswith("std")
    both = _variance(lx, x, dim, correction, keepdim, spread_val, root)
    if both is None:
        return None
    average = _drop_dims(lx, lambda b, v: v, both[1], dims_of(x, dim), keepdim, FROM_TORCH[mean_val.dtype], mean_val)
    return both[0], average


@lowering("aten.linalg_vector_norm.default")
def vector_norm(
    lx: Lowering,
    node: Any,
    x: Tensor,
    order: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Any:
    val = node.meta["val"]
    out = dtype_of(val)
    if (
        out is None
        or compute_type(out) not in FLOATS
        or may_be_empty(x.shape)
        or order not in (1, 2, math.inf, -math.inf)
    ):
        return None
    kind = compute_type(out)
    wide, dims = lx.convert(x, kind), dims_of(x, dim)
    if order == 2:
        squares = lx.elementwise(lambda b, v: b.op("mul", v, v), [wide], kind, shape=x.shape)
        total = lx.reduce("sum", squares, dims, keepdim, kind)
        return lx.elementwise(lambda b, v: b.op("sqrt", v), [total], out, shape=val.shape, strides=val.stride())
    size = lx.elementwise(lambda b, v: b.op("abs", v), [wide], kind, shape=x.shape)
    op = {1: "sum", math.inf: "max", -math.inf: "min"}[order]
    return lx.reduce(op, size, dims, keepdim, out, strides=val.stride())


@lowering("aten.logsumexp.default")
def logsumexp(lx: Lowering, node: Any, x: Tensor, dim: Any, keepdim: bool = False) -> Any:
    val = node.meta["val"]
    out = dtype_of(val)
    if (
        out is None
        or may_be_empty(x.shape)
        or val.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    ):
        return None
    kind = compute_type(out)
    wide, dims = lx.convert(x, kind), dims_of(x, dim)
    peak = lx.reduce("max", wide, dims, True, kind)

    def each(b: Builder, v: Value) -> Value:  # ATen makes it of whole operations
        return rounded(b, v, out) if out in HALVES else v

    def finite(b: Builder, m: Value) -> Value:  # an infinite peak is not subtracted, as in ATen
        zero = b.const(0.0, kind)
        return b.op("where", b.op("isinf", m), zero, m)

    def power(b: Builder, v: Value, m: Value) -> Value:
        return each(b, b.op("exp", each(b, b.op("sub", v, m))))

    def finish(b: Builder, s: Value, m: Value) -> Value:
        return b.op("add", each(b, b.op("log", each(b, s))), m)

    shift = lx.elementwise(finite, [peak], kind, shape=peak.shape)
    powers = lx.elementwise(power, [wide, shift], kind, shape=x.shape)
    total = lx.reduce("sum", powers, dims, True, kind)
    whole = lx.elementwise(finish, [total, shift], kind, shape=total.shape)
    return _drop_dims(lx, lambda b, v: v, whole, dims, keepdim, out, val)
