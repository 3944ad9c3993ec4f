"""Padding and shuffling of images, which keep the memory format of the input, and grids to sample them at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.registry import register, rule
from dyncomp.fake.rules.like import preserved
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import (
    assumed,
    contiguous_strides,
    has_channels_last_order,
    has_zero,
    is_one,
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
    row_major = same_shape(x.strides, contiguous_strides(x.shape)) and not has_channels_last_order(x.shape, x.strides)
    if row_major and not has_zero(x.shape) and not _shows_what_was_cut(x, padding):
        if not all(must_hold(size >= 0) for size in shape):
            return None
        if not has_zero(shape):
            # Row-major whether sizes grow or shrink, so that nothing is asked of the padding; nor of whether there is any, since
            # a copy of what has none is laid out likewise.
            return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device)
    if not all(assumed(p >= 0) for p in padding):
        if any(assumed(p > 0) for p in padding) or not all(must_hold(size >= 0) for size in shape):
            return None
        # Nothing is added: eager clones what is left, and whether that is dense may hang on a size of 0.
        return TensorMeta(shape, preserved_strides(shape, x.strides), x.dtype, x.device)
    if has_zero(x.shape):
        return None
    if row_major:
        return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device)
    if not any(assumed(p != 0) for p in padding):
        return None
    return TensorMeta(shape, suggested_strides(shape, x.shape, x.strides), x.dtype, x.device)


def _shows_what_was_cut(x: TensorMeta, padding: Sequence[int]) -> bool:
    """Whether negative padding would leave strides of the whole: those of a dimension of size 1 are what they were, while
    dimensions inside of it may shrink.
    """
    changed = [x.ndim - 1 - i // 2 for i, p in enumerate(padding) if isinstance(p, torch.SymInt) or p < 0]
    return any(is_one(size) for size in x.shape[: max(changed, default=0)])


@rule("pixel_shuffle")
def _pixel_shuffle(x: TensorMeta, factor: int) -> TensorMeta | None:
    if x.ndim != 4 or factor <= 0 or x.shape[1] % (factor * factor) or 0 in x.shape or x.device.type != "cpu":
        return None
    shape = (x.shape[0], x.shape[1] // (factor * factor), x.shape[2] * factor, x.shape[3] * factor)
    return TensorMeta(shape, suggested_strides(shape, x.shape, x.strides), x.dtype, x.device)


@rule("pixel_unshuffle")
def _pixel_unshuffle(x: TensorMeta, factor: int) -> TensorMeta | None:
    if x.ndim < 3 or factor <= 0 or x.shape[-2] % factor or x.shape[-1] % factor or x.device.type != "cpu":
        return None
    if 0 in x.shape:
        return preserved(x)  # eager gives a copy, as it is
    if x.ndim != 4:
        return None
    shape = (x.shape[0], x.shape[1] * factor * factor, x.shape[2] // factor, x.shape[3] // factor)
    return TensorMeta(shape, suggested_strides(shape, x.shape, x.strides), x.dtype, x.device)


@rule("native_channel_shuffle channel_shuffle")
def _channel_shuffle(x: TensorMeta, groups: int) -> TensorMeta | None:
    if x.ndim != 4 or groups <= 0 or x.shape[1] % groups:
        return None
    return TensorMeta(x.shape, suggested_strides(x.shape, x.shape, x.strides), x.dtype, x.device)


def max_pool1d_size(
    size: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> int | None:
    """How many windows fit into `size` elements; None where eager refuses the settings."""
    step = stride[0] if stride else kernel_size[0]
    if step <= 0 or dilation[0] <= 0 or padding[0] < 0 or 2 * padding[0] > kernel_size[0]:
        return None
    room = size + 2 * padding[0] - dilation[0] * (kernel_size[0] - 1) - 1
    count = (room + (step - 1 if ceil_mode else 0)) // step + 1
    # The last window must start inside the input or its left padding.
    if ceil_mode and (count - 1) * step >= size + padding[0]:
        count -= 1
    return None if count < 1 else count


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
    if x.ndim not in (2, 3) or 0 in x.shape:
        return None
    size = max_pool1d_size(x.shape[-1], kernel_size, stride, padding, dilation, ceil_mode)
    if size is None:
        return None
    shape = (*x.shape[:-1], size)
    return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device)


@rule("affine_grid_generator")
def _affine_grid(theta: TensorMeta, size: Sequence[int], align_corners: bool) -> TensorMeta | None:
    rank = len(size) - 2
    if rank not in (2, 3) or theta.ndim != 3 or not all(must_hold(n >= 1) for n in size):
        return None
    if not same_shape(theta.shape, (size[0], rank, rank + 1)):
        return None
    shape = (size[0], *size[2:], rank)
    return TensorMeta(shape, contiguous_strides(shape), theta.dtype, theta.device)


@rule("affine_grid_generator_backward")
def _affine_grid_backward(grad: TensorMeta, size: Sequence[int], align_corners: bool) -> TensorMeta | None:
    rank = len(size) - 2
    if rank not in (2, 3) or not same_shape(grad.shape, (size[0], *size[2:], rank)):
        return None
    # The transpose of a product.
    return TensorMeta((size[0], rank, rank + 1), (rank * (rank + 1), 1, rank), grad.dtype, grad.device)
