"""Whether the engine takes a gradient for a leaf's own without a copy that shows: nobody else holds this tensor, and it shares the
memory of a tensor that the backward was given. (Memory that the backward made itself is not copied anyway.)

    held_alone(gradient)       Python    False: what is held where cannot be told, and a copy is right but for the memory it shares
                               traced    True if the backward holds it once, and no Python code ran that might have kept it

    x.view(-1).backward(g)     the gradient of x is a view of g that the engine made: `x.grad` shares the memory of g
    (x + 1).backward(g)        it is g, which the caller holds: `x.grad` is a copy
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.autograd.function import BackwardCFunction

from dyncomp.compiled_autograd.running import STACK
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.torch_tensor import TensorValue, tensors_of


def held_alone(gradient: Any) -> bool:
    return False


@registry.on_call(held_alone)
def _held_alone(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    (gradient,) = args
    assert isinstance(gradient, TensorValue)
    running = STACK.running[-1]
    if gradient.is_graph_input() or any(running.hooks) or any(isinstance(one, BackwardCFunction) for one in running.objects):
        return tx.constant(False)
    storage = gradient.fake(tx).fake_storage
    if not any(value.fake(tx).fake_storage is storage for value in tensors_of(tx) if value.is_graph_input()):
        return tx.constant(False)
    node = gradient.fx_arg(tx)
    names = [value for value in tx.frames[0].variables.values() if isinstance(value, TensorValue) and value.fx_arg(tx) is node]
    return tx.constant(len(names) == 1)
