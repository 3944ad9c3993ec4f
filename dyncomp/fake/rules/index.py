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
from dyncomp.shape.layout import (
    Ints,
    broadcast,
    contiguous_strides,
    elementwise_strides,
    is_one,
    must_hold,
    preserved_strides,
    view_strides,
)

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
    """Integer indices; masks, and what eager refuses, are left to the meta kernel."""
    places = [d for d, index in enumerate(indices) if index is not None]
    given = [indices[d] for d in places]
    if not places or len(indices) > x.ndim or 0 in x.shape or not all(t.dtype in _INDEX_TYPES for t in given):
        return None
    common = broadcast([t.shape for t in given])
    if common is None:
        return None
    if places[-1] - places[0] == len(places) - 1:
        before, after = list(range(places[0])), list(range(places[-1] + 1, x.ndim))
    else:  # eager brings the indexed dimensions to the front
        before, after = [], [d for d in range(x.ndim) if d not in places]
    shape = (*[x.shape[d] for d in before], *common, *[x.shape[d] for d in after])
    # Eager's elementwise iterator, over the elements of `x` as if it were expanded, and over the indices.
    steps = (*[x.strides[d] for d in before], *[0] * len(common), *[x.strides[d] for d in after])
    operands = [(shape, steps)]
    for index in given:
        wide = (*[1] * len(before), *common, *[1] * len(after))
        operands.append((wide, _index_strides(index, common, wide)))
    return TensorMeta(shape, elementwise_strides(shape, operands), x.dtype, x.device)


def _index_strides(index: TensorMeta, common: Ints, wide: Ints) -> Ints:
    """Of an index that was expanded, converted to int64, and reshaped to as many dimensions as the result has."""
    skip = len(common) - index.ndim
    expanded = (0,) * skip + tuple(
        0 if is_one(size) and not is_one(common[skip + i]) else stride
        for i, (size, stride) in enumerate(zip(index.shape, index.strides, strict=True))
    )
    if index.dtype is not torch.int64:
        expanded = preserved_strides(common, expanded)
    strides = view_strides(common, expanded, wide)
    assert strides is not None  # dimensions of size 1 fit anywhere
    return strides


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
