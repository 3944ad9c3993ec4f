"""Pooling of rows, and the backward of grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.composites.registry import form
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
