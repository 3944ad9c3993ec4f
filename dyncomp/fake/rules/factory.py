"""Tensors made from sizes and values."""

from __future__ import annotations

import math
from typing import Any

import torch

from dyncomp.fake.promotion import number_dtype
from dyncomp.fake.registry import register, rule
from dyncomp.fake.rules.copy import format_strides, target_device
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import contiguous_strides, late, must_hold

_CPU = torch.device("cpu")


def _made(
    size: Any, dtype: torch.dtype, device: Any, layout: Any, memory_format: Any = None
) -> TensorMeta | None:
    shape = tuple(size)
    if layout not in (None, torch.strided) or not all(must_hold(n >= 0) for n in shape):
        return None
    strides = contiguous_strides(shape) if memory_format is None else format_strides(shape, memory_format)
    return None if strides is None else TensorMeta(shape, strides, dtype, target_device(device, _CPU))


def _sized(
    size: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> TensorMeta | None:
    return _made(size, dtype or torch.get_default_dtype(), device, layout, memory_format)


register("zeros ones rand randn empty.memory_format", _sized)


@rule("full")
def _full(
    size: Any,
    value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> TensorMeta | None:
    return _made(size, dtype or number_dtype(type(value)), device, layout)


@rule("scalar_tensor")
def _scalar_tensor(
    value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> TensorMeta | None:
    return _made((), dtype or torch.get_default_dtype(), device, layout)


@rule("new_zeros new_ones new_empty")
def _new(
    x: TensorMeta,
    size: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> TensorMeta | None:
    return _made(size, dtype or x.dtype, device or x.device, layout)


@rule("new_full")
def _new_full(x: TensorMeta, size: Any, value: Any, **options: Any) -> TensorMeta | None:
    return _new(x, size, **options)


@rule("arange")
def _arange(end: Any, **options: Any) -> TensorMeta | None:
    return _range(0, end, 1, **options)


@rule("arange.start")
def _arange_start(start: Any, end: Any, **options: Any) -> TensorMeta | None:
    return _range(start, end, 1, **options)


@rule("arange.start_step")
def _range(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> TensorMeta | None:
    """Whole numbers only: how eager rounds the length of a range of floats is left to its own code."""
    if any(map(late, (start, end))) and type(step) is int and step != 0 and not any(type(v) is float for v in (start, end)):
        length = (end - start) * (1 if step > 0 else -1)
        if not must_hold(length >= 0):
            return None
        return _made(((length + abs(step) - 1) // abs(step),), dtype or torch.int64, device, layout)
    if any(type(v) is not int for v in (start, end, step)) or step == 0 or (end - start) * step < 0:
        return None
    return _made((math.ceil((end - start) / step),), dtype or torch.int64, device, layout)
