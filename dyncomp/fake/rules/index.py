"""Lookups by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.promotion import FLOATS
from dyncomp.fake.registry import rule
from dyncomp.fake.rules.like import preserved, row_major
from dyncomp.fake.rules.view import wrap_dim
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import broadcast, contiguous_strides, is_contiguous, must_hold

_INDEX_TYPES = frozenset({torch.int32, torch.int64})


@rule("embedding")
def _embedding(
    weight: TensorMeta,
    indices: TensorMeta,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorMeta | None:
    if weight.ndim != 2 or indices.dtype not in _INDEX_TYPES:
        return None
    shape = indices.shape + weight.shape[1:]
    return TensorMeta(shape, contiguous_strides(shape), weight.dtype, weight.device)


@rule("gather")
def _gather(x: TensorMeta, dim: int, index: TensorMeta, *, sparse_grad: bool = False) -> TensorMeta | None:
    at = wrap_dim(dim, max(x.ndim, 1))
    if at is None or index.dtype is not torch.int64 or index.ndim != x.ndim:
        return None
    if any(index.shape[d] > x.shape[d] for d in range(x.ndim) if d != at):
        return None
    return TensorMeta(index.shape, contiguous_strides(index.shape), x.dtype, x.device)


@rule("index_select")
def _index_select(x: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta | None:
    at = wrap_dim(dim, x.ndim) if x.ndim else None
    if at is None or index.ndim != 1 or index.dtype not in _INDEX_TYPES:
        return None
    shape = (*x.shape[:at], index.shape[0], *x.shape[at + 1 :])
    return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device)


@rule("index.Tensor")
def _index(x: TensorMeta, indices: Sequence[Any]) -> TensorMeta | None:
    """Row-major operands, integer indices in neighbouring dimensions; the rest is left to the meta kernel."""
    places = [d for d, index in enumerate(indices) if index is not None]
    given = [indices[d] for d in places]
    if not places or places[-1] - places[0] != len(places) - 1 or len(indices) > x.ndim or 0 in x.shape:
        return None
    if not all(t.dtype in _INDEX_TYPES and is_contiguous(t.shape, t.strides) for t in given):
        return None
    common = broadcast([t.shape for t in given])
    if common is None or not is_contiguous(x.shape, x.strides):
        return None
    shape = (*x.shape[: places[0]], *common, *x.shape[places[-1] + 1 :])
    return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device)


@rule("index_put")
def _index_put(
    x: TensorMeta, indices: Sequence[Any], values: TensorMeta, accumulate: bool = False
) -> TensorMeta | None:
    """Integer indices and one value, or boolean masks of the leading dimensions; others go to the meta
    kernel.
    """
    given = [index for index in indices if index is not None]
    if values.dtype != x.dtype or values.shape not in ((), (1,)) or len(given) != len(indices) > x.ndim:
        return None
    if not all(t.dtype in _INDEX_TYPES for t in given) or broadcast([t.shape for t in given]) is None:
        return None
    return preserved(x)


@rule("scatter.src scatter.value scatter_add")
def _scatter(x: TensorMeta, dim: int, index: TensorMeta, source: Any) -> TensorMeta | None:
    at = wrap_dim(dim, max(x.ndim, 1))
    if at is None or index.dtype is not torch.int64 or index.ndim != x.ndim or x.dtype not in FLOATS:
        return None
    if any(index.shape[d] > x.shape[d] for d in range(x.ndim) if d != at):
        return None
    if type(source) is TensorMeta:
        if source.dtype != x.dtype or source.ndim != x.ndim:
            return None
        if any(a > b for a, b in zip(index.shape, source.shape, strict=True)):
            return None
    return row_major(x)


@rule("one_hot")
def _one_hot(x: TensorMeta, num_classes: Any = -1) -> TensorMeta | None:
    """Fresh row-major memory. torch's own composite computes it otherwise for tensors without data: in the layout of `x`, and
    without eager's error for classes out of range.
    """
    if x.dtype is not torch.int64 or not must_hold(num_classes >= 1):
        return None
    shape = (*x.shape, num_classes)
    return TensorMeta(shape, contiguous_strides(shape), torch.int64, x.device)
