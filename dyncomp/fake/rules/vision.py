"""Padding and shuffling of images: the memory format of the input is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyncomp.fake.registry import register, rule
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import (
    assumed,
    contiguous_strides,
    has_channels_last_order,
    has_zero,
    must_hold,
    preserved_strides,
    same_shape,
    suggested_strides,
)


def _pad(names: str, rank: int, limited: bool) -> None:
    """Pads the innermost `rank` dimensions; reflection cannot reach further than the image itself."""

    def shape(x: TensorMeta, padding: Sequence[int]) -> TensorMeta | None:
        # Pairs come innermost first.
        pairs = list(zip(padding[0::2], padding[1::2], strict=True))[::-1]
        inner = [size + before + after for size, (before, after) in zip(x.shape[-rank:], pairs, strict=True)]
        if x.ndim not in (rank + 1, rank + 2) or 0 in x.shape or any(n < 1 for n in inner):
            return None
        if limited and any(max(pair) >= size for size, pair in zip(x.shape[-rank:], pairs, strict=True)):
            return None
        padded = (*x.shape[:-rank], *inner)
        return TensorMeta(padded, suggested_strides(padded, x.shape, x.strides), x.dtype, x.device)

    register(names, shape)


_pad("reflection_pad2d", 2, True)
_pad("replication_pad2d", 2, False)
_pad("reflection_pad3d", 3, True)
_pad("replication_pad3d", 3, False)


@rule("constant_pad_nd")
def _constant_pad(x: TensorMeta, padding: Sequence[int], value: Any = 0) -> TensorMeta | None:
    if len(padding) % 2 or len(padding) > 2 * x.ndim:
        return None
    sizes = list(x.shape)
    for i, (before, after) in enumerate(zip(padding[0::2], padding[1::2], strict=True)):
        sizes[-1 - i] += before + after
    shape = tuple(sizes)
    if not all(assumed(p >= 0) for p in padding):
        if any(assumed(p > 0) for p in padding) or not all(must_hold(size >= 0) for size in shape):
            return None
        # Nothing is added: eager clones what is left, and whether that is dense may hang on a size of 0.
        return TensorMeta(shape, preserved_strides(shape, x.strides), x.dtype, x.device)
    if has_zero(x.shape):
        return None
    row_major = same_shape(x.strides, contiguous_strides(x.shape))
    if row_major and not has_channels_last_order(x.shape, x.strides):
        # A copy of what has no padding is laid out likewise: whether there is any need not be known.
        return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device)
    if not any(assumed(p != 0) for p in padding):
        return None
    return TensorMeta(shape, suggested_strides(shape, x.shape, x.strides), x.dtype, x.device)


@rule("pixel_shuffle")
def _pixel_shuffle(x: TensorMeta, factor: int) -> TensorMeta | None:
    if x.ndim != 4 or factor <= 0 or x.shape[1] % (factor * factor) or 0 in x.shape or x.device.type != "cpu":
        return None
    shape = (x.shape[0], x.shape[1] // (factor * factor), x.shape[2] * factor, x.shape[3] * factor)
    return TensorMeta(shape, suggested_strides(shape, x.shape, x.strides), x.dtype, x.device)


@rule("pixel_unshuffle")
def _pixel_unshuffle(x: TensorMeta, factor: int) -> TensorMeta | None:
    if x.ndim != 4 or factor <= 0 or x.shape[2] % factor or x.shape[3] % factor or 0 in x.shape or x.device.type != "cpu":
        return None
    shape = (x.shape[0], x.shape[1] * factor * factor, x.shape[2] // factor, x.shape[3] // factor)
    return TensorMeta(shape, suggested_strides(shape, x.shape, x.strides), x.dtype, x.device)


@rule("native_channel_shuffle channel_shuffle")
def _channel_shuffle(x: TensorMeta, groups: int) -> TensorMeta | None:
    if x.ndim != 4 or groups <= 0 or x.shape[1] % groups:
        return None
    return TensorMeta(x.shape, suggested_strides(x.shape, x.shape, x.strides), x.dtype, x.device)


@rule("max_pool1d")
def _max_pool1d(
    x: TensorMeta,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> TensorMeta | None:
    """The inference kernel, which always writes row-major."""
    step = stride[0] if stride else kernel_size[0]
    if x.ndim not in (2, 3) or 0 in x.shape or step <= 0 or padding[0] < 0 or 2 * padding[0] > kernel_size[0]:
        return None
    room = x.shape[-1] + 2 * padding[0] - dilation[0] * (kernel_size[0] - 1) - 1
    size = (room + (step - 1 if ceil_mode else 0)) // step + 1
    # The last window must start inside the input or its left padding.
    if ceil_mode and (size - 1) * step >= x.shape[-1] + padding[0]:
        size -= 1
    if size < 1:
        return None
    shape = (*x.shape[:-1], size)
    return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device)
