"""Lookups by index tensors."""

from __future__ import annotations

import torch

from dyncomp.fake.registry import rule
from dyncomp.fake.rules.view import wrap_dim
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import contiguous_strides

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
