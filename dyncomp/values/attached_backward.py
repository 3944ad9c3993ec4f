"""The graph node that gives results the backward of a custom autograd function, and what it runs.

    y = attach((((True,), backward, (2.0,), True),), "Cube", False, True, (True,), (), (y,), (x,), x)    the results, now with a history

The results are made before, by ordinary nodes without a gradient, as eager runs `forward`; the very tensors come out, so that views
and inputs among them are to autograd what they are in eager.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def attach(
    backwards: tuple[tuple[tuple[bool, ...], Any, tuple[Any, ...], bool], ...], name: str, once: bool, materializes: bool,
    may: tuple[bool, ...], dirty: tuple[int, ...], results: tuple[Any, ...], saved: tuple[Any, ...], *inputs: torch.Tensor,
) -> list[torch.Tensor]:  # fmt: skip
    """The results with a history of this name. `backwards`: by which results have a gradient, a GraphModule of (their gradients,
    *saved, *held) that returns a tuple of one gradient or None for each input, `held`, and whether it reads what was saved: where it
    does not, it may run again. `once`: it cannot be differentiated
    itself. `materializes`: what has no gradient gets zeros. `may`: which results can get a gradient. `dirty`: inputs (positions)
    that were written to. `saved` tensors are under autograd's watch: written to before the backward runs, they raise; `held` are not.
    """
    return list(_function(name, once).apply(backwards, materializes, may, dirty, results, saved, *inputs))


def marked_dirty(args: tuple[Any, ...]) -> list[torch.Tensor]:
    """The inputs that a call of `attach` with these arguments marks as written to."""
    dirty, inputs = args[5], args[8:]
    return [inputs[place] for place in dirty]


@functools.lru_cache(512)
def _function(name: str, once: bool) -> Any:
    """Autograd shows the name in its errors."""
    body = {"backward": staticmethod(once_differentiable(_Attached.backward))} if once else {}
    return type(name, (_Attached,), body)


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, backwards: Any, materializes: bool, may: Any, dirty: Any, results: Any, saved: Any, *inputs: Any) -> Any:  # type: ignore[override]
        ctx.backwards = {pattern: rest for pattern, *rest in backwards}
        ctx.count = len(saved)
        ctx.set_materialize_grads(materializes)
        ctx.save_for_backward(*saved)
        ctx.mark_non_differentiable(*[one for one, differentiable in zip(results, may, strict=True) if not differentiable])
        ctx.mark_dirty(*[inputs[place] for place in dirty])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        pattern = tuple([one is not None for one in gradients])
        if pattern not in ctx.backwards:
            raise RuntimeError(f"dyncomp: {type(ctx).__name__} without any gradient; its backward raised when it was traced with none")
        run, held, reads = ctx.backwards[pattern]
        given = [one for one in gradients if one is not None]
        saved = ctx.saved_tensors if reads else [None] * ctx.count
        return (None, None, None, None, None, None, *run(*given, *saved, *held))
