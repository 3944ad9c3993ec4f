"""Joining tensors."""

from __future__ import annotations

from collections.abc import Sequence

from dyncomp.fake.elementwise import common_device
from dyncomp.fake.promotion import result_dtype
from dyncomp.fake.registry import rule
from dyncomp.fake.rules.view import wrap_dim
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import contiguous_strides, is_contiguous


@rule("cat")
def _cat(tensors: Sequence[TensorMeta], dim: int = 0) -> TensorMeta | None:
    """Row-major operands give a row-major result; other layouts are left to the meta kernel."""
    if not tensors:
        return None
    first = tensors[0]
    at = wrap_dim(dim, first.ndim)
    device = common_device(tensors)
    if at is None or device is None or not all(is_contiguous(t.shape, t.strides) for t in tensors):
        return None
    outer, inner = first.shape[:at], first.shape[at + 1 :]
    if any(t.ndim != first.ndim or t.shape[:at] != outer or t.shape[at + 1 :] != inner for t in tensors):
        return None
    shape = (*outer, sum(t.shape[at] for t in tensors), *inner)
    return TensorMeta(shape, contiguous_strides(shape), result_dtype(tensors), device)


@rule("stack")
def _stack(tensors: Sequence[TensorMeta], dim: int = 0) -> TensorMeta | None:
    if not tensors or not all(is_contiguous(t.shape, t.strides) for t in tensors):
        return None
    first = tensors[0]
    at = wrap_dim(dim, first.ndim + 1)
    device = common_device(tensors)
    if at is None or device is None or any(t.shape != first.shape for t in tensors):
        return None
    shape = (*first.shape[:at], len(tensors), *first.shape[at:])
    return TensorMeta(shape, contiguous_strides(shape), result_dtype(tensors), device)
