"""Pooling and resizing of images, on the CPU: the memory format of the input is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.promotion import FLOATS
from dyncomp.fake.registry import register, rule
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import Ints, contiguous_strides, is_contiguous, same_shape, suggested_strides


def _resized(x: TensorMeta, size: Sequence[int], dtype: torch.dtype | None = None) -> TensorMeta | None:
    if x.device.type != "cpu" or x.dtype not in FLOATS or x.ndim != 4 or 0 in x.shape or any(n < 1 for n in size):
        return None
    shape = (*x.shape[:2], *size)
    return TensorMeta(shape, suggested_strides(shape, x.shape, x.strides), dtype or x.dtype, x.device)


def _pair(setting: Sequence[int]) -> list[int]:
    return list(setting) * 2 if len(setting) == 1 else list(setting)


def _windows(
    x: TensorMeta,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    up: bool,
) -> Ints | None:
    """How many windows fit; `up` counts a last one that hangs over the edge."""
    sizes = []
    steps = _pair(stride) if stride else _pair(kernel)
    for size, window, step, pad, spread in zip(
        x.shape[-2:], _pair(kernel), steps, _pair(padding), _pair(dilation), strict=True
    ):
        if step <= 0 or pad < 0 or 2 * pad > window or spread <= 0:
            return None
        room = size + 2 * pad - spread * (window - 1) - 1
        count = (room + (step - 1 if up else 0)) // step + 1
        # The last window must start inside the input or its leading padding.
        if up and (count - 1) * step >= size + pad:
            count -= 1
        if room < 0 and not up or count < 1:
            return None
        sizes.append(count)
    return tuple(sizes)


@rule("max_pool2d_with_indices")
def _max_pool(
    x: TensorMeta,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[TensorMeta, ...] | None:
    sizes = _windows(x, kernel, stride, padding, dilation, ceil_mode)
    values = None if sizes is None else _resized(x, sizes)
    return (
        None if values is None else (values, TensorMeta(values.shape, values.strides, torch.int64, x.device))
    )


@rule("avg_pool2d")
def _avg_pool(
    x: TensorMeta,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> TensorMeta | None:
    sizes = _windows(x, kernel, stride, padding, (1,), ceil_mode)
    return None if sizes is None or divisor_override == 0 else _resized(x, sizes)


register("_adaptive_avg_pool2d", _resized)


NEAREST = [f"{name}{rank}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)]
INTERPOLATED = {
    "upsample_linear1d": 1, "upsample_bilinear2d": 2, "upsample_bicubic2d": 2, "upsample_trilinear3d": 3,
    "_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 2,
}  # fmt: skip


def _upsample(x: TensorMeta, size: Sequence[int], *settings: Any) -> TensorMeta | None:
    if not all(n > 0 for n in (*size, *x.shape[1:])):
        return None
    if x.ndim == 4:
        return _resized(x, size)
    shape = (*x.shape[:2], *size)
    row_major = x.ndim == 3 or is_contiguous(x.shape, x.strides) and x.shape[1] != 1
    return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device) if row_major else None


def _upsample_backward(
    grad: TensorMeta, size: Sequence[int], input_size: Sequence[int], *settings: Any
) -> TensorMeta | None:
    shape = tuple(input_size)
    if not is_contiguous(grad.shape, grad.strides) or not same_shape(grad.shape, (*shape[:2], *size)):
        return None
    if grad.ndim > 3 and shape[1] == 1:  # two layouts at once
        return None
    return TensorMeta(shape, contiguous_strides(shape), grad.dtype, grad.device)


register(" ".join((*NEAREST, *INTERPOLATED)), _upsample)
register(" ".join(f"{name}_backward" for name in (*NEAREST, *INTERPOLATED)), _upsample_backward)
