"""The graph node that gives results the backward of a custom autograd function, and what it runs.

    y = attach(backward, "Cube", False, (True,), (y,), (x,), (2.0,), x)    the results, now with a history: x gets what `backward` gives

The results are made before, by ordinary nodes without a gradient, as eager runs `forward`; the very tensors come out, so that views
and inputs among them are to autograd what they are in eager.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def attach(
    backward: Any, name: str, once: bool, may: tuple[bool, ...], results: tuple[Any, ...], saved: tuple[Any, ...],
    held: tuple[Any, ...], *inputs: torch.Tensor,
) -> list[torch.Tensor]:  # fmt: skip
    """The results with a history of this name. `backward`: a GraphModule of (a gradient for each result, *saved, *held) that returns
    a tuple of one gradient or None for each input. `once`: it cannot be differentiated itself. `may`: which results can get a
    gradient. `saved` tensors are under autograd's watch: written to before the backward runs, they raise; `held` are not.
    """
    return list(_function(name, once).apply(backward, may, results, saved, held, *inputs))


@functools.lru_cache(512)
def _function(name: str, once: bool) -> Any:
    """Autograd shows the name in its errors."""
    body = {"backward": staticmethod(once_differentiable(_Attached.backward))} if once else {}
    return type(name, (_Attached,), body)


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, backward: Any, may: Any, results: Any, saved: Any, held: Any, *inputs: Any) -> Any:  # type: ignore[override]
        ctx.run, ctx.held = backward, held
        ctx.save_for_backward(*saved)
        ctx.mark_non_differentiable(*[one for one, differentiable in zip(results, may, strict=True) if not differentiable])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, None, None, None, None, *ctx.run(*gradients, *ctx.saved_tensors, *ctx.held))
