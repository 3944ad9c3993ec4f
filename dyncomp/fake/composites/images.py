"""Pooling of rows, the backward of grids, and images whose nearest elements are taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.composites.registry import form
from dyncomp.fake.rules.pool import INTERPOLATED, NEAREST
from dyncomp.fake.rules.vision import max_pool1d_size


@form("max_pool1d")
def _max_pool1d(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """As eager does it where gradients flow, and wherever Python code stands behind the tensor."""
    if x.dim() not in (2, 3) or 0 in x.shape[-2:] or x.is_quantized:
        return NotImplemented
    if max_pool1d_size(x.shape[-1], kernel_size, stride, padding, dilation, ceil_mode) is None:
        return NotImplemented
    return torch.ops.aten.max_pool1d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)[0]


@form("affine_grid_generator_backward")
def _affine_grid_backward(grad: torch.Tensor, size: Sequence[int], align_corners: bool) -> Any:
    """Whole: what it is composed of takes plain counts."""
    if grad.requires_grad and torch.is_grad_enabled():
        return NotImplemented
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.aten.affine_grid_generator_backward.default(grad, size, align_corners)


def _resized(op: Any, input: torch.Tensor, output_size: Any, scale_factors: Any, *settings: Any) -> Any:
    """torch's own Python forms find other nearest elements than eager's kernels, which treat equal and doubled sizes apart and multiply
    by the scale as a float; and they take sizes that the kernels refuse.
    """
    rank = input.dim() - 2
    if (output_size is None) == (scale_factors is None) or len(scale_factors if output_size is None else output_size) != rank:
        return NotImplemented
    scales = scale_factors if output_size is None else [None] * rank
    sizes = output_size or [
        torch.sym_int(torch.sym_float(n) * scale) for n, scale in zip(input.shape[2:], scale_factors, strict=True)
    ]
    with torch._C._DisablePythonDispatcher():
        return op(input, list(sizes), *settings, *scales)


def _take_nearest(name: str) -> None:
    op = getattr(torch.ops.aten, name).default
    rank = int(name[-2])

    @form(f"{name}.vec", before_torchs=True)
    def resized(input: torch.Tensor, output_size: Any, scale_factors: Any) -> Any:
        return _resized(op, input, output_size, scale_factors) if input.dim() == rank + 2 else NotImplemented


def _interpolate(name: str, rank: int) -> None:
    op = getattr(torch.ops.aten, name).default

    @form(f"{name}.vec", before_torchs=True)
    def resized(input: torch.Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Any:
        if input.dim() != rank + 2:
            return NotImplemented
        return _resized(op, input, output_size, scale_factors, align_corners)


for _name in NEAREST:
    _take_nearest(_name)
for _name, _rank in INTERPOLATED.items():
    _interpolate(_name, _rank)
