"""Results of the input's shape: row-major, in the input's dense order, or in its very layout, by
operation.
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.promotion import FLOATS, REALS
from dyncomp.fake.registry import register, rule
from dyncomp.fake.rules.view import span, wrap_dim
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import (
    contiguous_strides,
    late,
    may_overlap_itself,
    preserved_strides,
)


def row_major(x: TensorMeta, dtype: torch.dtype | None = None) -> TensorMeta:
    return TensorMeta(x.shape, contiguous_strides(x.shape), dtype or x.dtype, x.device)


def preserved(x: TensorMeta, dtype: torch.dtype | None = None) -> TensorMeta:
    return TensorMeta(x.shape, preserved_strides(x.shape, x.strides), dtype or x.dtype, x.device)


@rule("cumsum cumprod")
def _scan(x: TensorMeta, dim: int, *, dtype: Any = None) -> TensorMeta | None:
    if x.dtype not in REALS or wrap_dim(dim, max(x.ndim, 1)) is None:
        return None
    return row_major(x, dtype or (x.dtype if x.dtype in FLOATS else torch.int64))


@rule("tril triu")
def _triangle(x: TensorMeta, diagonal: int = 0) -> TensorMeta | None:
    return row_major(x) if x.ndim >= 2 else None


@rule("flip")
def _flip(x: TensorMeta, dims: Any) -> TensorMeta | None:
    places = [wrap_dim(d, x.ndim) for d in dims]
    return None if None in places or len(set(places)) != len(places) else preserved(x)


@rule("sort sort.stable")
def _sort(
    x: TensorMeta, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> tuple[TensorMeta, ...] | None:
    if x.dtype not in REALS or wrap_dim(dim, max(x.ndim, 1)) is None:
        return None
    return preserved(x), preserved(x, torch.int64)


@rule("topk")
def _topk(
    x: TensorMeta, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[TensorMeta, ...] | None:
    at = wrap_dim(dim, x.ndim) if x.ndim else None
    if at is None or not 0 <= k <= x.shape[at] or x.dtype not in FLOATS:
        return None
    chosen = TensorMeta((*x.shape[:at], k, *x.shape[at + 1 :]), (), x.dtype, x.device)
    return row_major(chosen), row_major(chosen, torch.int64)


def in_same_memory_layout(x: TensorMeta) -> TensorMeta:
    """A copy with the same strides, gaps included, unless elements overlap."""
    return (
        preserved(x)
        if may_overlap_itself(x.shape, x.strides)
        else TensorMeta(x.shape, x.strides, x.dtype, x.device)
    )


@rule("slice_scatter")
def _slice_scatter(
    x: TensorMeta, source: TensorMeta, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> TensorMeta | None:
    at = wrap_dim(dim, x.ndim)
    if at is None or source.dtype != x.dtype or source.ndim != x.ndim or step <= 0:
        return None
    size = x.shape[at]
    if late(start) or late(end) or late(size):  # equal lengths would be taken for granted
        first, last, _ = slice(start, end).indices(size)
        length = max(last - first + step - 1, 0) // step
    else:
        _, length = span(start, end, step, size)
    return in_same_memory_layout(x) if source.shape == (*x.shape[:at], length, *x.shape[at + 1 :]) else None


@rule("select_scatter")
def _select_scatter(x: TensorMeta, source: TensorMeta, dim: int, index: int) -> TensorMeta | None:
    at = wrap_dim(dim, x.ndim)
    if at is None or source.dtype != x.dtype or not -x.shape[at] <= index < x.shape[at]:
        return None
    return in_same_memory_layout(x) if source.shape == x.shape[:at] + x.shape[at + 1 :] else None


@rule("native_dropout")
def _dropout(x: TensorMeta, p: float, train: Any) -> tuple[TensorMeta, ...] | None:
    return (preserved(x), preserved(x, torch.bool)) if train and x.dtype in FLOATS else None


def _drawn(x: TensorMeta, *args: Any, generator: Any = None, **kwargs: Any) -> TensorMeta | None:
    return preserved(x) if x.dtype in FLOATS else None


register("uniform normal_functional exponential cauchy log_normal", _drawn)


@rule("bernoulli.p")
def _bernoulli(x: TensorMeta, p: float = 0.5, *, generator: Any = None) -> TensorMeta | None:
    return row_major(x) if 0 <= p <= 1 else None


@rule("repeat")
def _repeat(x: TensorMeta, repeats: Any) -> TensorMeta | None:
    new = len(repeats) - x.ndim
    if new < 0 or any(n < 0 for n in repeats):
        return None
    shape = tuple([n * size for n, size in zip(repeats, (1,) * new + x.shape, strict=True)])
    return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device)
