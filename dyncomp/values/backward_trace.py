"""The backward of a custom autograd function, traced at the place where the function is applied.

    in:   nodes  y = exp(x)                             of `forward`, without gradient; ctx, which holds what it kept
    out:  node   attach((((True,), backward_0, (), True),), "Exp", False, True, (True,), (), (y,), (y,), x)
          and the GraphModule  backward_0(gradient, y):  return (gradient * y,)

`backward` runs long after the frame, so it is traced with gradients of which no more is known than their sizes and dtypes; what it
does besides computing gradients (effects, random numbers, questions about a gradient's memory) breaks the graph before the call.
Its nodes are traced into the graph and then taken out: numbers stay, for they hang on the sizes of the call alone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch import fx
from torch.autograd.function import once_differentiable

from dyncomp.errors import GraphBreak
from dyncomp.values.attached_backward import attach
from dyncomp.values.base import PyRaise, Tracer, Value
from dyncomp.values.context_state import trace_state
from dyncomp.values.sequence import TupleValue
from dyncomp.values.torch_tensor import TensorValue, layouts_unknown

_MODULES = "graph modules"
_ONCE = once_differentiable(lambda ctx: None).__code__


class GraphValue(Value):
    """A traced graph as an argument of a node."""

    def __init__(self, node: fx.Node):
        super().__init__()
        self._node = node

    def fx_arg(self, tx: Tracer) -> Any:
        return self._node


class _NoEffects:
    """Stands in for the log of side effects while a backward is traced. `grad_mode_varies`: it may be differentiated itself."""

    def __init__(self, grad_mode_varies: bool):
        self.grad_mode_varies = grad_mode_varies

    def __getattr__(self, name: str) -> NoReturn:
        raise GraphBreak("autograd", "a custom backward with side effects")


def modules_of(tx: Tracer) -> dict[str, fx.GraphModule]:
    """The graphs that nodes of this trace's graph refer to, by attribute name."""
    return tx.state.setdefault(_MODULES, {})


def in_custom_backward(tx: Tracer) -> bool:
    return isinstance(tx.effects, _NoEffects)


def trace_backward(
    tx: Tracer, cls: type, backward: Value, context: Any, inputs: Sequence[Value], returned: Sequence[Value]
) -> list[Value]:
    """The tensors among what `forward` returned, with a history. `backward` is called with `context` and a gradient for each."""
    results = [value for value in returned if isinstance(value, TensorValue)]
    tensors = [value for value in inputs if isinstance(value, TensorValue)]
    flags = tuple([id(result) not in context.unmarked for result in results])
    once = getattr(backward_function(cls), "__code__", None) is _ONCE
    saved = list(dict.fromkeys([value.fx_arg(tx) for value in context.saved_tensors()]))
    context.in_backward = True
    patterns = [(True,) * len(results)] if context.materializes else _parts(flags)
    found = [_one_backward(tx, cls, backward, context, inputs, returned, pattern, saved, once) for pattern in patterns]
    backwards = [one for one in found if one is not None]
    dirty = tuple([place for place, value in enumerate(tensors) if any(value is one for one in context.dirty)])
    arguments = [
        TupleValue(backwards, tuple), tx.constant(cls.__name__), tx.constant(once), tx.constant(context.materializes), tx.constant(flags),
        tx.constant(dirty), TupleValue(list(results), tuple), _Nodes(saved), *tensors,
    ]  # fmt: skip
    return tx.graph_call(attach, arguments).unpack(tx)


def _parts(may: Sequence[bool]) -> list[tuple[bool, ...]]:
    """Which results may have a gradient at once, where those that have none are left undefined."""
    return list(itertools.product(*[(True, False) if one else (False,) for one in may]))


def _one_backward(
    tx: Tracer, cls: type, backward: Value, context: Any, inputs: Sequence[Value], returned: Sequence[Value],
    pattern: tuple[bool, ...], saved: list[fx.Node], once: bool,
) -> Value | None:  # fmt: skip
    """(pattern, GraphModule, held, whether it reads what was saved), as `attach` takes it: the backward for gradients of these results.
    None: it wants one at least.
    """
    name = cls.__qualname__
    last = tx.graph._root.prev
    with _apart(tx, grad_mode_varies=not once):
        given = iter(pattern)
        gradients = [
            tx.graph_call(gradient_like, [result]) if isinstance(result, TensorValue) and next(given) else tx.constant(None)
            for result in returned
        ]
        context.was_read = False
        try:
            found = tx.call(backward, [context, *gradients])
        except PyRaise as error:
            if any(pattern):
                raise GraphBreak("autograd", f"the backward of {name} raises {error}") from error
            while (node := tx.graph._root.prev) is not last:
                tx.graph.erase_node(node)
            return None
        wanted = [value if value is None else value.fx_arg(tx) for value in _one_each(tx, name, found, inputs)]
        heads = [value.fx_arg(tx) for value in gradients if isinstance(value, TensorValue)]
    graph, held = _take_out(tx, name, last, heads, saved, wanted)
    modules = modules_of(tx)
    attribute = f"backward_{len(modules)}"
    modules[attribute] = fx.GraphModule(torch.nn.Module(), graph, "Backward")
    target = tx.graph.create_node("get_attr", attribute)
    target.meta.update(example_value=modules[attribute], user_line=tx.user_line())
    return TupleValue([tx.constant(pattern), GraphValue(target), _Nodes(held), tx.constant(context.was_read)], tuple)


def backward_function(cls: type) -> Any:
    return cls.__dict__["backward"].__func__ if isinstance(cls.__dict__.get("backward"), staticmethod) else getattr(cls, "backward", None)


class _Nodes(Value):
    """A tuple of nodes that exist."""

    def __init__(self, nodes: list[fx.Node]):
        super().__init__()
        self._nodes = nodes

    def fx_arg(self, tx: Tracer) -> Any:
        return tuple(self._nodes)


@contextlib.contextmanager
def _apart(tx: Tracer, grad_mode_varies: bool) -> Iterator[None]:
    """Inside, the trace is that of a backward: no gradient, no autocast, no effects, tensors of unknown layout."""
    mode, effects, early = tx.fake_mode, tx.effects, tx.early
    late, draws, grad = mode.takes_late, mode.draws, torch.is_grad_enabled()
    autocast = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    for device in autocast:
        for setting in ((torch.set_autocast_enabled, (device,)), (torch.set_autocast_dtype, (device,)), (torch.set_autocast_cache_enabled, ())):
            trace_state(tx).note(tx, setting)  # as the frame found it, before a `custom_bwd` sets it
        torch.set_autocast_enabled(device, False)
    torch._C._set_grad_enabled(False)
    mode.takes_late = mode.draws = False
    tx.effects = tx.early = _NoEffects(grad_mode_varies)  # it is not the forward's stream that it would draw from
    try:
        with layouts_unknown(tx, "in a custom backward"):
            yield
        if mode.draws:
            raise GraphBreak("autograd", "a custom backward that draws random numbers")
    finally:
        mode.takes_late, mode.draws, tx.effects, tx.early = late, draws, effects, early
        torch._C._set_grad_enabled(grad)
        for device in autocast:
            torch.set_autocast_enabled(device, True)


def gradient_like(result: torch.Tensor) -> torch.Tensor:
    """Stands for a gradient while tracing; never run."""
    return torch.empty(result.shape, dtype=result.dtype, device=result.device)


def _one_each(tx: Tracer, name: str, returned: Value, inputs: Sequence[Value]) -> list[Value | None]:
    """What was returned for each tensor among the inputs; None: no gradient."""
    items = returned.unpack(tx) if isinstance(returned, TupleValue) and returned.python_type() is tuple else [returned]
    absent = [value.is_constant() and value.as_constant() is None for value in items]
    for value, none in zip(items, absent, strict=True):
        if not none and not isinstance(value, TensorValue):
            raise GraphBreak("autograd", f"the backward of {name} returns {value.describe()}")
    tensor = [isinstance(value, TensorValue) for value in inputs]
    if len(items) < len(inputs) or not all(none or is_tensor for none, is_tensor in zip(absent, [*tensor, *[False] * len(items)], strict=False)):
        raise GraphBreak("autograd", f"the backward of {name} returns gradients that do not fit its inputs")
    return [None if none else value for value, none, is_tensor in zip(items, absent, tensor, strict=False) if is_tensor]


def _take_out(
    tx: Tracer, name: str, last: fx.Node, heads: list[fx.Node], saved: list[fx.Node], wanted: list[fx.Node | None]
) -> tuple[fx.Graph, list[fx.Node]]:
    """Moves what was traced after `last` into a graph of its own, a function of (*heads, *saved, *held). Returns it and `held`."""
    traced: list[fx.Node] = []
    node = last.next
    while node is not tx.graph._root:
        traced.append(node)
        node = node.next
    moved = [node for node in traced if not node.meta.get("number")]
    inside = set(moved)
    if any(not inside.isdisjoint(node.all_input_nodes) for node in traced if node not in inside):
        raise GraphBreak("autograd", f"the backward of {name} computes with numbers that only running it gives")
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    read = [parent for node in moved for parent in node.all_input_nodes] + [node for node in wanted if node is not None]
    outside = [node for node in dict.fromkeys(read) if node not in inside and node not in saved]
    heads_inside = set(heads)
    for node in dict.fromkeys([*heads, *saved, *outside]):
        copies[node] = graph.placeholder(f"arg_{len(copies)}")
        copies[node].meta.update(node.meta)
    for node in moved:
        if node not in heads_inside:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple([None if node is None else copies[node] for node in wanted]))
    for node in reversed(moved):
        tx.graph.erase_node(node)
    return graph, outside
