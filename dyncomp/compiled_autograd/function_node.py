"""Nodes whose backward is Python: the user's function is followed, with the node as its `ctx`.

    class Double(Function):
        backward(ctx, g): return g * 2, None        ->        mul(g, 2); the result of the one argument that has a gradient

Which arguments of forward were tensors is not shown; those that need a gradient are, and they are the results that lead somewhere,
in the same order. What returns more, or gets no gradient for one of its results, runs as Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.compiled_autograd.running import STACK
from dyncomp.errors import GraphBreak
from dyncomp.guards.source import SlotAttr, Source, attribute
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value

_Function: Any = torch.autograd.Function
_READ = frozenset({"saved_tensors", "needs_input_grad"})


class NodeContextValue(Value):
    """The `ctx` that a backward is called with."""

    def __init__(self, obj: Any, source: Source):
        super().__init__(source)
        self._obj = obj

    def python_type(self) -> type:
        return type(self._obj)

    def real(self) -> Any:
        return self._obj

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> Value:
        assert self.source is not None
        if name in _READ:
            return tx.wrap(getattr(self._obj, name), SlotAttr(self.source, name))
        if name in self._obj.__dict__:
            return tx.wrap(self._obj.__dict__[name], attribute(self.source, name))
        raise GraphBreak("compiled-autograd", f"ctx.{name} in the backward of {type(self._obj).__name__}")

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        raise GraphBreak("compiled-autograd", f"setting ctx.{name} in the backward of {type(self._obj).__name__}")


def _runs_now(obj: Any) -> bool:
    """True for a node of the backward that runs in this thread; in a forward such an object is the user's to fill."""
    if not isinstance(obj, torch.autograd.function.BackwardCFunction) or not STACK.running:
        return False
    return any(one is obj for one in STACK.running[-1].objects)


@registry.wrap_if(_runs_now, priority=5)
def _wrap(tx: Tracer, obj: Any, source: Source) -> Value:
    return NodeContextValue(obj, source)


def follow(tx: Tracer, context: Value, gradients: Sequence[Value]) -> list[Value]:
    """One result for each argument of forward that is a tensor. Breaks the graph where that cannot be told."""
    node = context.real()
    name = type(node).__name__
    if not isinstance(context, NodeContextValue) or any(_is_none(one) for one in gradients):
        raise GraphBreak("compiled-autograd", f"{name} without a gradient for one of its results")
    cls = node._forward_cls
    given = [one for one in ("backward", "vjp") if getattr(cls, one) is not getattr(_Function, one)]
    if len(given) != 1:
        raise GraphBreak("compiled-autograd", f"{name} with both backward and vjp, or neither")
    returned = tx.call(tx.constant(cls).getattr(tx, given[0]), [context, *gradients])
    results = returned.unpack(tx) if issubclass(returned.python_type(), tuple) else [returned]
    needed = [bool(one) for one in node.needs_input_grad]
    context.getattr(tx, "needs_input_grad").unpack(tx)
    leads = [below is not None for below, _ in node.next_functions]
    surplus = [one for one, wanted in zip(results, needed, strict=False) if not wanted and not _is_none(one)]
    if len(results) != len(needed) or sum(needed) != sum(leads) or surplus:
        raise GraphBreak("compiled-autograd", f"{name} returns other than one gradient for each argument that needs one")
    wanted = iter([one for one, need in zip(results, needed, strict=True) if need])
    return [next(wanted) if lead else tx.constant(None) for lead in leads]


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.as_constant() is None
