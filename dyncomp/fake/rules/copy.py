"""Copies, casts and tensors made like others."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.registry import rule
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import (
    Ints,
    broadcast,
    channels_last_strides,
    contiguous_strides,
    preserved_strides,
)


def format_strides(shape: Ints, memory_format: torch.memory_format) -> Ints | None:
    """Dense strides in a fixed memory format; None if the rank does not fit."""
    if memory_format is torch.contiguous_format:
        return contiguous_strides(shape)
    if memory_format is torch.channels_last and len(shape) == 4:
        return channels_last_strides(shape)
    if memory_format is torch.channels_last_3d and len(shape) == 5:
        return channels_last_strides(shape)
    return None


@rule("clone")
def _clone(x: TensorMeta, *, memory_format: Any = None) -> TensorMeta | None:
    if memory_format is None or memory_format is torch.preserve_format:
        strides: Ints | None = preserved_strides(x.shape, x.strides)
    else:
        strides = format_strides(x.shape, memory_format)
    return None if strides is None else TensorMeta(x.shape, strides, x.dtype, x.device)


@rule("_to_copy empty_like zeros_like ones_like rand_like randn_like")
def _like(
    x: TensorMeta,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> TensorMeta | None:
    if not isinstance(x, TensorMeta):  # a batching rule makes a tensor of it, which has no symbolic form
        raise TypeError("a number that varies, in the place of a tensor")
    if layout not in (None, torch.strided):
        return None
    if memory_format is None or memory_format is torch.preserve_format:
        strides: Ints | None = preserved_strides(x.shape, x.strides)
    else:
        strides = format_strides(x.shape, memory_format)
    if strides is None:
        return None
    return TensorMeta(x.shape, strides, dtype or x.dtype, target_device(device, x.device))


@rule("full_like")
def _full_like(x: TensorMeta, value: Any, **options: Any) -> TensorMeta | None:
    return _like(x, **options)


def target_device(asked: Any, default: torch.device) -> torch.device:
    if asked is None:
        return default
    device = torch.device(asked)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


@rule("copy_")
def _copy_into(x: TensorMeta, source: TensorMeta, non_blocking: bool = False) -> TensorMeta | None:
    return x if broadcast([x.shape, source.shape]) == x.shape else None


@rule("zero_ fill_.Scalar uniform_ normal_ bernoulli_.float exponential_ random_ random_.from")
def _overwrite(x: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta | None:
    return x if x.dtype.is_floating_point else None


@rule("fill_.Tensor")
def _overwrite_by_tensor(x: TensorMeta, value: TensorMeta) -> TensorMeta | None:
    return x if x.dtype.is_floating_point and not value.shape and not value.dtype.is_complex else None


@rule("fill.Scalar")
def _filled(x: TensorMeta, value: Any) -> TensorMeta | None:
    """Of other dtypes eager refuses some values."""
    return TensorMeta(x.shape, preserved_strides(x.shape, x.strides), x.dtype, x.device) if x.dtype.is_floating_point else None
