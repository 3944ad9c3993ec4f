"""What the engine does between two nodes, as Python that the compiler inlines. Runs with gradients switched off.

    hooks on a tensor        gradient -> hook(gradient) or the same
    hooks around a node      all gradients of the node at once
    the end                  leaf.grad = a copy in the leaf's layout, or leaf.grad += gradient, then hooks(leaf)
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp import marks
from dyncomp.compiled_autograd.ownership import held_alone
from dyncomp.shape.layout import contiguous_strides, is_dense


def tensor_hooks(hooks: Any, gradient: Any) -> Any:
    for hook in hooks:
        gradient = _replaced(gradient, hook(gradient), hook)
    return gradient


def pre_hooks(hooks: Any, gradients: Any) -> Any:
    for hook in hooks:
        gradients = _all_replaced(gradients, hook(gradients), hook)
    return gradients


def post_hooks(hooks: Any, results: Any, gradients: Any) -> Any:
    for hook in hooks:
        results = _all_replaced(results, hook(results, gradients), hook)
    return results


def accumulated_hooks(hooks: Any, leaf: Any) -> None:
    for hook in hooks:
        if hook(leaf) is not None:
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")


def joined(first: Any, second: Any) -> Any:
    """The sum of two gradients for one input; None is no gradient."""
    if first is None:
        return second
    return first if second is None else first + second


def accumulate(leaf: Any, gradient: Any) -> None:
    """`leaf.grad += gradient`, or a gradient of its own, laid out as the leaf is if that is dense. A gradient that nobody else holds
    is taken as it is, with whom it shares its memory.
    """
    if gradient is None or not leaf.requires_grad:
        return
    if leaf.grad is not None:
        if leaf.grad.layout is not torch.strided and gradient.layout is torch.strided:
            leaf.grad = gradient + leaf.grad  # a sparse gradient cannot become a dense one in place
        else:
            leaf.grad.add_(gradient)
        return
    if gradient.layout is not torch.strided:
        leaf.grad = gradient.clone()
        return
    shape, strides = tuple(leaf.shape), leaf.stride()
    if _fits(shape, strides, gradient.stride()):
        leaf.grad = gradient.detach() if held_alone(gradient) else gradient.clone()
    elif _is_dense(shape, strides):
        own = torch.empty_strided(shape, strides, dtype=gradient.dtype, device=gradient.device)
        leaf.grad = own.copy_(gradient)
    else:
        leaf.grad = gradient.clone(memory_format=torch.contiguous_format)


def _is_dense(shape: Any, strides: Any) -> bool:
    return is_dense(shape, strides)


def _fits(shape: Any, strides: Any, given: Any) -> bool:
    """True if a gradient with these strides is laid out for the leaf; nobody steps along dimensions of size 1."""
    wanted = strides if is_dense(shape, strides) else contiguous_strides(shape)
    return all(size == 1 or a == b for size, a, b in zip(shape, wanted, given, strict=True))


for _function in (_is_dense, _fits):
    marks.mark(_function, "constant")  # of numbers alone: nothing to guard


def _all_replaced(before: Any, after: Any, hook: Any) -> Any:
    if after is None:
        return before
    after = after if isinstance(after, tuple) else (after,)
    if len(after) != len(before):
        raise RuntimeError(f"hook '{_name(hook)}' has returned an incorrect number of values (got {len(after)}, but expected {len(before)})")
    return tuple([_replaced(old, new, hook) for old, new in zip(before, after, strict=True)])


def _replaced(before: Any, after: Any, hook: Any) -> Any:
    if after is None:
        return before
    if before is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    if not isinstance(after, torch.Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(after).__name__}'")
    if after.dtype != before.dtype or after.device != before.device:
        raise RuntimeError(f"hook '{_name(hook)}' has changed the type of value")
    if after.shape != before.shape:
        raise RuntimeError(f"hook '{_name(hook)}' has changed the size of value")
    return after


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", "<unknown>")
