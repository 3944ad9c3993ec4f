"""Joining tensors, and what eager does by joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyncomp.fake.elementwise import common_device
from dyncomp.fake.promotion import result_dtype
from dyncomp.fake.registry import layout, rule
from dyncomp.fake.rules.like import preserved, row_major
from dyncomp.fake.rules.view import wrap_dim
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import (
    Ints,
    channels_last_strides,
    contiguous_strides,
    has_channels_last_order,
    has_zero,
    view_strides,
)


def joined_strides(shape: Ints, tensors: Sequence[TensorMeta]) -> Ints:
    """Channels last where that is what every tensor's strides suggest, else row-major."""
    if len(shape) in (4, 5) and all(has_channels_last_order(t.shape, t.strides) for t in tensors):
        return channels_last_strides(shape)
    return contiguous_strides(shape)


@rule("cat")
def _cat(tensors: Sequence[TensorMeta], dim: int = 0) -> TensorMeta | None:
    """Empty tensors of one dimension, which eager skips, are left to the meta kernel."""
    if not tensors:
        return None
    first = tensors[0]
    at = wrap_dim(dim, first.ndim)
    device = common_device(tensors)
    if at is None or device is None:
        return None
    outer, inner = first.shape[:at], first.shape[at + 1 :]
    if any(t.ndim != first.ndim or t.shape[:at] != outer or t.shape[at + 1 :] != inner for t in tensors):
        return None
    shape = (*outer, sum(t.shape[at] for t in tensors), *inner)
    return TensorMeta(shape, joined_strides(shape, tensors), result_dtype(tensors), device)


@layout("cat")
def _cat_layout(result: TensorMeta, tensors: Sequence[TensorMeta], dim: int = 0) -> TensorMeta:
    return TensorMeta(result.shape, joined_strides(result.shape, tensors), result.dtype, result.device)


@rule("stack")
def _stack(tensors: Sequence[TensorMeta], dim: int = 0) -> TensorMeta | None:
    """Eager joins along `dim` and splits that dimension in two; after the last one it joins what it unsqueezed."""
    if not tensors:
        return None
    first = tensors[0]
    at = wrap_dim(dim, first.ndim + 1)
    device = common_device(tensors)
    if at is None or device is None or any(t.shape != first.shape for t in tensors):
        return None
    shape = (*first.shape[:at], len(tensors), *first.shape[at:])
    strides = contiguous_strides(shape)
    if at < first.ndim and first.ndim in (4, 5):
        joined = (*first.shape[:at], len(tensors) * first.shape[at], *first.shape[at + 1 :])
        strides = view_strides(joined, joined_strides(joined, tensors), shape) or strides
    elif at == first.ndim and len(shape) in (4, 5):
        strides = joined_strides(
            shape, [TensorMeta((*t.shape, 1), (*t.strides, 1), t.dtype, t.device) for t in tensors]
        )
    return TensorMeta(shape, strides, result_dtype(tensors), device)


@rule("roll")
def _roll(x: TensorMeta, shifts: Any, dims: Any = ()) -> TensorMeta | None:
    """Eager joins the two parts of one dimension after the other; without dimensions it rolls the flattened tensor."""
    if not shifts or (dims or len(shifts) > 1) and len(shifts) != len(dims):
        return None
    if not dims:
        return row_major(x)
    for shift, dim in zip(shifts, dims, strict=True):
        at = wrap_dim(dim, x.ndim)
        if at is None:
            return None
        x = preserved(x) if has_zero(x.shape) else _rolled(x, shift, at)
    return x


def _rolled(x: TensorMeta, shift: int, at: int) -> TensorMeta:
    if x.ndim not in (4, 5):
        return row_major(x)
    size = x.shape[at]
    start = (size - shift) % size
    parts = [(*x.shape[:at], length, *x.shape[at + 1 :]) for length in (size - start, start)]
    strides = joined_strides(x.shape, [TensorMeta(part, x.strides, x.dtype, x.device) for part in parts])
    return TensorMeta(x.shape, strides, x.dtype, x.device)
