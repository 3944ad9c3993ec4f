"""Convolution forward on the CPU: channels last if the input or the weight is, and the kernel can."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dyncomp.fake.meta_kernel import infer_by_meta_kernel
from dyncomp.fake.promotion import FLOATS_INTEGERS
from dyncomp.fake.registry import layout, rule
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import (
    Ints,
    channels_last_strides,
    contiguous_strides,
    has_channels_last_order,
    has_zero,
    is_contiguous,
    numel,
)
from dyncomp.shape.symbolic import is_symbolic

Layout = tuple[Ints, Ints]  # sizes, strides


@rule("convolution")
def _convolution(
    x: TensorMeta,
    weight: TensorMeta,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> TensorMeta | None:
    rank = x.ndim - 2
    if x.device.type != "cpu" or x.dtype not in FLOATS_INTEGERS or rank not in (1, 2, 3) or weight.ndim != x.ndim:
        return None
    settings = [
        list(s) * rank if len(s) == 1 else list(s) for s in (stride, padding, dilation, output_padding)
    ]
    if weight.dtype != x.dtype or 0 in x.shape + weight.shape or any(len(s) != rank for s in settings):
        return None
    inputs, outputs = weight.shape[1] * groups, weight.shape[0]
    if transposed:
        inputs, outputs = outputs, inputs
    if x.shape[1] != inputs or outputs % groups:
        return None
    if bias is not None and (bias.shape != (outputs,) or bias.dtype != x.dtype):
        return None
    spatial = _spatial(x.shape[2:], weight.shape[2:], settings, transposed)
    if spatial is None:
        return None
    shape = (x.shape[0], outputs, *spatial)
    strides = contiguous_strides(shape)
    if _gives_channels_last(x, weight, bias, settings, transposed, groups):
        strides = channels_last_strides(shape) if rank > 1 else (shape[1] * shape[2], 1, shape[1])
    return TensorMeta(shape, strides, x.dtype, x.device)


def _gives_channels_last(
    x: TensorMeta, weight: TensorMeta, bias: Any, settings: list[list[int]], transposed: bool, groups: int
) -> bool:
    """Asks torch which kernel it would take, where the operands are not both row-major."""
    stride, padding, dilation, output_padding = settings
    image, kernel = (x.shape, x.strides), (weight.shape, weight.strides)
    if len(stride) == 1:
        # Eager computes it as two-dimensional of height 1, on a row-major image.
        image = _with_height(x.shape, _row_major(x.shape, x.strides))
        kernel = _with_height(weight.shape, weight.strides)
        stride, padding, dilation, output_padding = _settings_with_height(stride, padding, dilation, output_padding)
    last = has_channels_last_order(*image), has_channels_last_order(*kernel)
    if not any(last):
        return False

    def ask(image: Layout, kernel: Layout) -> bool:
        # Memory that is never touched: the kernel is chosen by metadata.
        images = torch.empty_strided(*image, dtype=x.dtype)
        kernels = torch.empty_strided(*kernel, dtype=weight.dtype)
        offset = None if bias is None else torch.empty(tuple(map(_hint, bias.shape)), dtype=bias.dtype)
        backend = torch._C._select_conv_backend(
            images, kernels, offset, stride, padding, dilation, transposed, output_padding, groups, None
        )
        chosen = torch._C._conv_determine_backend_memory_format(images, kernels, backend)
        return chosen in (torch.channels_last, torch.channels_last_3d)

    if any(map(is_symbolic, (*image[0], *image[1], *kernel[0], *kernel[1]))):
        return _at_all_sizes(image[0], kernel[0], last, dilation, ask)
    return ask(image, kernel)


@layout("convolution_backward")
def _convolution_backward(
    result: Any, grad: TensorMeta, x: TensorMeta, weight: TensorMeta, bias_sizes: Any, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    """A kernel of one element is row-major and channels last at once, so its gradient comes out as oneDNN happens to have computed
    it, which depends on the machine: the operation itself is asked.
    """
    if x.ndim == 3 and x.device.type == "cpu" and not has_zero((*x.shape, *weight.shape)):
        higher = _settings_with_height(*[list(s) for s in (stride, padding, dilation, output_padding)])
        return _sequence_backward(result, grad, x, weight, bias_sizes, higher, transposed, groups, output_mask)
    found = result[1]
    if found is None or x.device.type != "cpu" or found.ndim not in (4, 5):
        return result
    if any(type(n) is not int or n != 1 for n in found.shape[2:]) or found.strides[-1] is found.strides[1]:
        return result
    kernel = tuple([int(_hint(n)) for n in found.shape])
    channels = kernel[0] if transposed else kernel[1] * groups
    image = (min(int(_hint(x.shape[0])), 2), channels, *[min(int(_hint(n)), 16) for n in x.shape[2:]])
    settings = tuple([tuple(s) for s in (stride, padding, dilation, output_padding)])
    if not _gives_row_major_kernels(image, kernel, x.dtype, settings, transposed, groups):
        return result
    row_major = TensorMeta(found.shape, contiguous_strides(found.shape), found.dtype, found.device)
    return type(result)((result[0], row_major, result[2]))


def _sequence_backward(
    result: Any, grad: TensorMeta, x: TensorMeta, weight: TensorMeta, bias_sizes: Any, settings: list[list[int]], transposed: bool,
    groups: int, output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    """Eager computes it as two-dimensional of height 1, on a row-major image."""

    def high(value: TensorMeta, strides: Ints) -> TensorMeta:
        return TensorMeta(*_with_height(value.shape, strides), value.dtype, value.device, value.offset)

    row_major = _row_major(x.shape, x.strides)
    stride, padding, dilation, output_padding = settings
    image, kernel = high(x, row_major), high(weight, weight.strides)
    last = has_channels_last_order(image.shape, image.strides) or has_channels_last_order(kernel.shape, kernel.strides)
    gradient = high(grad, grad.strides)
    if last:  # eager takes all three so; torch 2.11's meta kernel goes by the gradient
        gradient = TensorMeta(gradient.shape, channels_last_strides(gradient.shape), grad.dtype, grad.device)
    args = (
        gradient, image, kernel, bias_sizes,
        stride, padding, dilation, transposed, output_padding, groups, output_mask,
    )  # fmt: skip
    found = _convolution_backward(infer_by_meta_kernel(torch.ops.aten.convolution_backward.default, args, {}), *args)
    flat = [
        None if one is None else TensorMeta((*one.shape[:2], one.shape[3]), (*one.strides[:2], one.strides[3]), one.dtype, one.device)
        for one in found[:2]
    ]
    return type(result)((*flat, result[2]))


@functools.cache
def _gives_row_major_kernels(
    image: Ints, kernel: Ints, dtype: torch.dtype, settings: tuple[Ints, ...], transposed: bool, groups: int
) -> bool:
    """As the gradient of a kernel of one element, for an image that is channels last."""
    last = torch.channels_last if len(image) == 4 else torch.channels_last_3d
    stride, padding, dilation, output_padding = map(list, settings)
    with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd(), torch._C._DisablePythonDispatcher():
        x = torch.zeros(image, dtype=dtype).to(memory_format=last)
        weight = torch.zeros(kernel, dtype=dtype)
        y = torch.convolution(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
        gradients = torch.ops.aten.convolution_backward.default(
            y, x, weight, None, stride, padding, dilation, transposed, output_padding, groups, [False, True, False]
        )
    return tuple(gradients[1].stride()) == contiguous_strides(kernel)


def _at_all_sizes(
    image: Ints, kernel: Ints, last: tuple[bool, bool], dilation: Sequence[int], ask: Callable[[Layout, Layout], bool]
) -> bool:
    """The answer for sizes that vary: torch chooses by the batch size, the number of elements and the memory formats.
    Where they make a difference, this call's are asked about, which are guards.
    """
    kernels = (*map(_hint, kernel[:2]), *map(int, kernel[2:]))
    least = [max(2, spread * (size - 1) + 1) for size, spread in zip(kernels[2:], dilation, strict=True)]

    def laid_out(shape: Ints, channels_last: bool) -> Layout:
        return shape, channels_last_strides(shape) if channels_last else contiguous_strides(shape)

    def answer(batch: int, more: int) -> bool:
        spatial = [n + more if is_symbolic(size) else size for n, size in zip(least, image[2:], strict=True)]
        images = (batch if is_symbolic(image[0]) else image[0], _hint(image[1]), *spatial)
        return ask(laid_out(images, last[0]), laid_out(kernels, last[1]))

    answers = {(batch, more): answer(batch, more) for batch in (2, _MANY) for more in (0, _FAR)}
    if len(set(answers.values())) == 1:
        return answers[2, 0]
    many, far = bool(image[0] >= _MANY), bool(numel(image) > _LARGE)
    return answers[_MANY if many else 2, _FAR if far else 0]


_MANY, _LARGE = 16, 20480  # where torch's choice of a kernel changes: images, elements
_FAR = 256  # rows and columns that make an image large, whatever else it is


def _hint(size: Any) -> Any:
    """A size that nothing is decided by."""
    return size.node.require_hint(2) if is_symbolic(size) else size


def _spatial(sizes: Ints, kernels: Ints, settings: list[list[int]], transposed: bool) -> list[int] | None:
    result = []
    for size, kernel, step, pad, spread, extra in zip(sizes, kernels, *settings, strict=True):
        if step <= 0 or pad < 0 or spread <= 0:
            return None
        reach = spread * (kernel - 1)
        if transposed:
            result.append((size - 1) * step - 2 * pad + reach + extra + 1)
        else:
            room = size + 2 * pad - reach - 1
            result.append(room // step + 1 if room >= 0 else 0)
    return result if all(n > 0 for n in result) else None


def _row_major(shape: Ints, strides: Ints) -> Ints:
    """As of `contiguous()`: dimensions of size 1 keep their strides."""
    symbolic = any(map(is_symbolic, (*shape, *strides)))
    return strides if not symbolic and is_contiguous(shape, strides) else contiguous_strides(shape)


def _settings_with_height(
    stride: list[int], padding: list[int], dilation: list[int], output_padding: list[int]
) -> list[list[int]]:
    """One number stands for all dimensions, which a stride of 1 or a padding of 0 along the height is not."""
    return [[1, *stride[:1]], [0, *padding[:1]], [1, *dilation[:1]], [0, *output_padding[:1]]]


def _with_height(shape: Ints, strides: Ints) -> tuple[Ints, Ints]:
    return (*shape[:2], 1, shape[2]), (*strides[:2], shape[2] * strides[2], strides[2])
