"""Reductions: the reduced dimensions go (or become 1); the result is row-major."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.promotion import FLOATS, FLOATS_INTEGERS, REALS
from dyncomp.fake.registry import register, rule
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import Ints, contiguous_strides


def reduced_shape(shape: Ints, dim: Any, keepdim: bool) -> Ints | None:
    """The shape after reducing `dim` (an int, several, or None/empty for all); None if eager would refuse."""
    rank = len(shape)
    if dim is None or dim == [] or dim == ():
        dims = set(range(rank))
    else:
        asked = [dim] if isinstance(dim, int) else dim
        limit = max(rank, 1)
        if any(not -limit <= d < limit for d in asked):
            return None
        dims = {d % limit for d in asked}
        if len(dims) != len(asked):
            return None
    return tuple([1 if d in dims else size for d, size in enumerate(shape) if keepdim or d not in dims])


def _reduced(x: TensorMeta, dim: Any, keepdim: bool, dtype: torch.dtype) -> TensorMeta | None:
    shape = reduced_shape(x.shape, dim, keepdim)
    return None if shape is None else TensorMeta(shape, contiguous_strides(shape), dtype, x.device)


@rule("sum sum.dim_IntList")
def _sum(x: TensorMeta, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorMeta | None:
    if x.dtype not in REALS:
        return None
    return _reduced(x, dim, keepdim, dtype or (x.dtype if x.dtype in FLOATS else torch.int64))


@rule("mean mean.dim")
def _mean(x: TensorMeta, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorMeta | None:
    result = dtype or x.dtype
    return _reduced(x, dim, keepdim, result) if result in FLOATS and x.dtype in REALS else None


@rule("amax amin")
def _extreme(x: TensorMeta, dim: Any = (), keepdim: bool = False) -> TensorMeta | None:
    # Eager refuses an empty dimension, for which there is no extreme.
    return None if 0 in x.shape or x.dtype not in REALS else _reduced(x, dim, keepdim, x.dtype)


@rule("any any.dim all all.dim any.dims all.dims")
def _truth(x: TensorMeta, dim: Any = None, keepdim: bool = False) -> TensorMeta | None:
    if x.dtype not in REALS or dim == [] or dim == ():
        return None
    return _reduced(x, dim, keepdim, torch.uint8 if x.dtype is torch.uint8 else torch.bool)


def _with_index(x: TensorMeta, dim: int, keepdim: bool = False) -> tuple[TensorMeta, ...] | None:
    if 0 in x.shape or x.dtype not in FLOATS_INTEGERS:
        return None
    values, places = _reduced(x, dim, keepdim, x.dtype), _reduced(x, dim, keepdim, torch.int64)
    return None if values is None or places is None else (values, places)


register("max.dim min.dim", _with_index)


@rule("argmax argmin")
def _place(x: TensorMeta, dim: int | None = None, keepdim: bool = False) -> TensorMeta | None:
    return None if 0 in x.shape or x.dtype not in FLOATS_INTEGERS else _reduced(x, dim, keepdim, torch.int64)


@rule("var.correction std.correction")
def _spread(
    x: TensorMeta, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> TensorMeta | None:
    return _reduced(x, dim, keepdim, x.dtype) if x.dtype in FLOATS else None


@rule("var_mean.correction std_mean.correction")
def _spread_and_mean(
    x: TensorMeta, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[TensorMeta, ...] | None:
    result = _spread(x, dim, keepdim=keepdim)
    return None if result is None else (result, result)


@rule("linalg_vector_norm")
def _vector_norm(
    x: TensorMeta, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> TensorMeta | None:
    if x.dtype not in FLOATS or 0 in x.shape or dtype not in (None, x.dtype):
        return None
    return _reduced(x, dim, keepdim, x.dtype)


@rule("logsumexp")
def _logsumexp(x: TensorMeta, dim: Any, keepdim: bool = False) -> TensorMeta | None:
    return _reduced(x, dim, keepdim, x.dtype) if x.dtype in FLOATS else None


@rule("prod prod.dim_int")
def _prod(x: TensorMeta, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorMeta | None:
    if x.dtype not in REALS:
        return None
    return _reduced(x, dim, keepdim, dtype or (x.dtype if x.dtype in FLOATS else torch.int64))
