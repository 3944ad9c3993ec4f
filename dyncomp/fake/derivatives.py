"""Formulas of torch's backward that go another way for tensor subclasses, and so for fakes, than they go for plain tensors.

    max(x), gradient g      fakes: (x == max) * (g / count)                  plain: zeros.masked_fill_(x == max, g / count)
    prod(x), gradient g     fakes: g * (products of all the others)          plain: g * (prod / x), the same where an x is 0

The results differ in strides, and in values where gradients or numbers are no finite ones. While `as_eager` is on, what a fake
history gives is replaced by what it gives for plain tensors; where that depends on data, both ways are in the graph.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from dyncomp._frame import _exec

# (node, what torch's formula gave for fakes, the gradient) -> what it gives for plain tensors
Formula = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]


def _spread_evenly(node: Any, given: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """To the elements that are the result, or all nan where it is nan; the others get 0 whatever comes in."""
    x, result = node._saved_self, node._saved_result
    mask = (x == result).logical_or_(x.isnan().logical_and_(result.isnan()))
    zeros = gradient.new_zeros(x.shape, dtype=x.dtype, device=x.device)
    return zeros.masked_fill_(mask, gradient / mask.sum())


def _product(node: Any, given: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    x, result = node._saved_self.to(gradient.dtype), node._saved_result
    if x.dim() == 0:
        return given
    zeros = (x == 0).sum()
    if not torch.is_grad_enabled():
        given = torch.where(zeros > 1, torch.zeros((), dtype=given.dtype, device=given.device), given)
    return _divided(x, result, gradient, zeros, given)


def _product_along(node: Any, given: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    x, result = node._saved_self.to(gradient.dtype), node._saved_result
    if x.dim() == 0:
        return given
    if not node._saved_keepdim:
        dim = node._saved_dim
        dim -= 1 << 64 if dim >> 63 else 0  # shown without its sign
        gradient, result = gradient.unsqueeze(dim), result.unsqueeze(dim)
    return _divided(x, result, gradient, (x == 0).sum(), given)


def _divided(x: torch.Tensor, result: torch.Tensor, gradient: torch.Tensor, zeros: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """The way without a zero decides on the strides, which cannot wait for the data."""
    usual = gradient * (result / x).conj()
    return torch.where(zeros == 0, usual, torch.empty_like(usual).copy_(otherwise))


_FORMULAS: dict[str, Formula] = {
    "MaxBackward1": _spread_evenly,
    "MinBackward1": _spread_evenly,
    "MedianBackward0": _spread_evenly,
    "NanmedianBackward0": _spread_evenly,
    "ProdBackward0": _product,
    "ProdBackward1": _product_along,
}


def corrected(node: Any, results: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...] | None:
    """The results of a node for plain tensors, given those for fakes; None where they are the same."""
    formula = _FORMULAS.get(type(node).__name__)
    if formula is None or results[0] is None:
        return None
    return formula(node, results[0], gradients[0]).to(results[0].dtype), *results[1:]


@contextlib.contextmanager
def as_eager(roots: Sequence[torch.Tensor]) -> Iterator[None]:
    """Backwards of these fakes inside give what those of plain tensors give."""
    nodes = [node for node in _exec.backward_order(tuple(roots)) if type(node).__name__ in _FORMULAS]
    hooks = [node.register_hook(functools.partial(corrected, node)) for node in nodes]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
