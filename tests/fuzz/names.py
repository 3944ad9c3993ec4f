"""What programs find in their globals besides torch: custom functions, losses, gradients that lie oddly in memory."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 3


class Times(torch.autograd.Function):
    """Keeps its result, and has no gradient for the second."""

    @staticmethod
    def forward(ctx, x, y):
        z = x * y.exp().clamp(max=4)
        ctx.save_for_backward(y, z)
        return z

    @staticmethod
    def backward(ctx, g):
        y, z = ctx.saved_tensors
        return g * y, None


class Doubled(torch.autograd.Function):
    """Writes to its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Both(torch.autograd.Function):
    """Two results, one without a gradient."""

    @staticmethod
    def forward(ctx, x):
        mask = x > 0
        ctx.save_for_backward(mask)
        ctx.mark_non_differentiable(mask)
        return x * mask, mask

    @staticmethod
    def backward(ctx, g, _):
        (mask,) = ctx.saved_tensors
        return g * mask * 0.5


class Same(torch.autograd.Function):
    """A view of its argument, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


def places(t: torch.Tensor) -> torch.Tensor:
    """Numbers of t's shape and dtype that tell its elements apart."""
    return torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape)


def loss(*tensors: torch.Tensor) -> torch.Tensor:
    """A scalar that all elements go into, each with its own weight."""
    total = (tensors[0] * places(tensors[0])).sum()
    for t in tensors[1:]:
        total = total + (t.cos() * places(t)).sum()
    return total


def given(t: torch.Tensor, how: str) -> torch.Tensor:
    """A gradient for `t` that lies in memory as `how` says."""
    if how == "turned":
        return places(t).permute(*range(t.dim() - 1, -1, -1)).contiguous().permute(*range(t.dim() - 1, -1, -1))
    if how == "gaps" and t.dim():
        return places(t).repeat_interleave(2, -1)[..., ::2]
    if how == "expanded":
        return torch.full((), 0.75, dtype=t.dtype).expand(t.shape)
    return places(t)


NAMES: dict[str, Any] = {
    "torch": torch, "F": F, "loss": loss, "given": given,
    **{one.__name__: one for one in (Square, Times, Doubled, Both, Same)},
}  # fmt: skip
