"""The graph node of a captured `loss.backward()`: gradients of some leaves by eager's own engine.

    gradients(False, loss, None, w, b)     ->  [gradient of w, gradient of b]

Run on real tensors it is what eager does; run on fakes its operations go to whoever watches them, which is how a
captured step becomes one graph (`aot.step`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from dyncomp.fake.derivatives import as_eager
from dyncomp.fake.tensor import FakeTensor

_watchers: list[list[set[Any]]] = []


def gradients(retain: bool, loss: torch.Tensor, gradient: torch.Tensor | None, *leaves: torch.Tensor) -> list[Any]:
    """One gradient a leaf, none of them a view; the leaves are all reachable. `gradient` None: of a scalar. Raises what eager
    raises.
    """
    if gradient is None:
        if loss.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        with torch.no_grad():
            gradient = torch.ones_like(loss, memory_format=torch.preserve_format)
    for watcher in _watchers:
        watcher.append(history(loss))
    run = torch.autograd.Variable._execution_engine.run_backward
    with as_eager((loss,)) if type(loss) is FakeTensor else contextlib.nullcontext():
        found = run((loss,), (gradient,), retain, False, leaves, True, accumulate_grad=False)
    return [one.detach() if one._is_view() else one for one in found]


def history(tensor: torch.Tensor) -> set[Any]:
    """The nodes of autograd's graph below a tensor, the accumulators of leaves included."""
    seen: set[Any] = set()
    stack = [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack.extend(parent for parent, _ in node.next_functions)
    return seen


@contextlib.contextmanager
def watched() -> Iterator[list[set[Any]]]:
    """Collects the history of every loss whose backward runs inside."""
    found: list[set[Any]] = []
    _watchers.append(found)
    try:
        yield found
    finally:
        _watchers.remove(found)


def has_backward(gm: Any) -> bool:
    """True for a graph that holds a captured backward."""
    return any(node.op == "call_function" and node.target is gradients for node in gm.graph.nodes)
