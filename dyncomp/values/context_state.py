"""Torch's own state of a thread while tracing: grad mode, autocast, SDPA choices.

    with torch.no_grad():          inlined as the Python it is, down to torch._C._set_grad_enabled(False):
        y = x + 1                  a node in the graph, and the real flag flipped so that fakes behave alike

A setter's node keeps the graph right when it is run as it stands. A graph always hands the state back as it
was at its start: `balance` emits what that takes, and leaves it to the effects to set the state again
afterwards,
because a compiled graph may have no trace of these nodes left.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.fake.levels import ENTER
from dyncomp.guards.source import Call, Const
from dyncomp.values import registry
from dyncomp.values.base import NotConstant, Tracer, Value
from dyncomp.values.saved_state import (
    SDPA,
    SavedState,
    enter_device,
    enter_dual,
    exit_device,
    exit_dual,
    exit_inference,
    leave_autocast,
)

Setting = tuple[Any, tuple[Any, ...]]  # (setter, arguments without the value)


def _pairs() -> dict[Any, tuple[Any, int]]:
    """Setter -> (getter, how many leading arguments choose what is set)."""
    pairs: dict[Any, tuple[Any, int]] = {
        torch._C._set_grad_enabled: (torch.is_grad_enabled, 0),
        torch._C._set_fwd_grad_enabled: (torch._C._is_fwd_grad_enabled, 0),
        torch.set_autocast_enabled: (torch.is_autocast_enabled, 1),
        torch.set_autocast_dtype: (torch.get_autocast_dtype, 1),
        torch.set_autocast_cache_enabled: (torch.is_autocast_cache_enabled, 0),
    }
    pairs.update({setter: (getter, 0) for setter, getter in SDPA})
    return pairs


SETTERS = _pairs()
# The global state guard covers these; what the others give at entry is guarded when it matters.
_COVERED = (torch.is_grad_enabled, torch.is_autocast_enabled)
_call = operator.methodcaller("__call__")
_NESTING = {torch.autocast_increment_nesting: 1, torch.autocast_decrement_nesting: -1}
_STATE_NODES = frozenset({*SETTERS, *_NESTING, *ENTER, enter_device, exit_device, enter_dual, leave_autocast})


@dataclasses.dataclass
class TraceState:
    """What the trace changed so far."""

    initial: dict[Setting, Any] = dataclasses.field(default_factory=dict)
    nesting: int = 0
    open_guards: list[Any] = dataclasses.field(default_factory=list)  # inference modes entered for real
    dual_levels: list[int] = dataclasses.field(default_factory=list)  # of forward-mode differentiation, entered for real

    def note(self, tx: Tracer, setting: Setting) -> None:
        """The setting is about to be changed."""
        setter, chosen = setting
        if setting not in self.initial:
            self.initial[setting] = guarded_answer(tx, SETTERS[setter][0], chosen)

    def changed(self) -> list[tuple[Callable[..., Any], tuple[Any, ...], Any]]:
        """(setter, leading arguments, value now) of everything that differs from the start."""
        found = []
        for (setter, chosen), before in self.initial.items():
            now = SETTERS[setter][0](*chosen)
            if now != before:
                found.append((setter, chosen, now))
        return found


def trace_state(tx: Tracer) -> TraceState:
    return tx.state.setdefault(__name__, TraceState())


@registry.at_trace_end
def restore(tx: Tracer) -> None:
    """Puts the real state back as it was when the trace began."""
    state = trace_state(tx)
    while state.open_guards:
        exit_inference(state.open_guards.pop())
    while state.dual_levels:
        state.dual_levels.pop()
        exit_dual()
    for (setter, chosen), before in state.initial.items():
        setter(*chosen, before)
    while state.nesting > 0:
        state.nesting -= 1
        leave_autocast()
    while state.nesting < 0:
        state.nesting += 1
        torch.autocast_increment_nesting()


@registry.at_graph_end
def balance(tx: Tracer) -> None:
    """Ends the graph in the state it began with, and has the present state set again after it."""
    state = trace_state(tx)
    if state.open_guards:
        raise GraphBreak("context-manager", "a graph that ends inside torch.inference_mode")
    if state.dual_levels:
        raise GraphBreak("function-transform", "a graph that ends inside of forward-mode differentiation")
    for setter, chosen, now in state.changed():
        leave_node(tx, setter, (*chosen, state.initial[setter, chosen]))
        tx.effects.call(setter, *map(tx.constant, (*chosen, now)))
    entered, left = torch.autocast_increment_nesting, torch.autocast_decrement_nesting
    for _ in range(abs(state.nesting)):  # a block goes on after the graph, and with it the weights cast so far
        leave_node(tx, left if state.nesting > 0 else entered, ())
        tx.effects.call(entered if state.nesting > 0 else leave_autocast)


def guarded_answer(tx: Tracer, getter: Any, chosen: tuple[Any, ...]) -> Any:
    """What the getter gives at the start of the trace; `chosen`: at most one argument."""
    answer = getter(*chosen)
    if getter not in _COVERED:
        root = Const(chosen[0], repr(chosen[0])) if chosen else Const(getter, getter.__name__)
        tx.guard(Call(root, getter if chosen else _call), "equals", answer)
    return answer


def _check_known(tx: Tracer, setter: Any) -> None:
    """A custom backward runs with gradients on where it is differentiated itself, which nobody knows while it is traced."""
    if setter is torch._C._set_grad_enabled and getattr(tx.effects, "grad_mode_varies", False):
        raise GraphBreak("autograd", "a custom backward that depends on grad mode or sets it")


def read_flag(tx: Tracer, setter: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    _check_known(tx, setter)
    getter, count = SETTERS[setter]
    real = tuple(arg.as_constant() for arg in (*args, *kwargs.values()))
    if len(real) == count and (setter, real) not in trace_state(tx).initial:
        return tx.constant(guarded_answer(tx, getter, real))
    if len(real) != count and getter not in _COVERED:
        raise GraphBreak("unsupported-call", f"{getter.__name__} with {len(real)} arguments")
    try:
        return tx.constant(getter(*real))
    except (TypeError, RuntimeError) as error:
        tx.raise_real(error)


def set_flag(tx: Tracer, setter: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    _check_known(tx, setter)
    try:
        real = [arg.as_constant() for arg in (*args, *kwargs.values())]
    except NotConstant as unknown:
        raise GraphBreak("context-manager", f"{setter.__name__} of {unknown}") from None
    count = SETTERS[setter][1]
    if len(real) != count + 1:
        raise GraphBreak("eager-error", f"{setter.__name__} with {len(real)} arguments")
    trace_state(tx).note(tx, (setter, tuple(real[:count])))
    return _run(tx, setter, real)


def nest(tx: Tracer, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """How many blocks are open around the frame is not guarded, so the node of a block's end looks for itself."""
    trace_state(tx).nesting += _NESTING[function]
    leave_node(tx, function if _NESTING[function] > 0 else leave_autocast, ())
    return tx.constant(function())


def _run(tx: Tracer, function: Any, args: Sequence[Any]) -> Value:
    """Does it for real, and leaves a node that does it in the graph."""
    try:
        result = function(*args)
    except (TypeError, RuntimeError) as error:
        tx.raise_real(error)
    leave_node(tx, function, tuple(args))
    return tx.constant(result)


def leave_node(tx: Tracer, function: Any, args: tuple[Any, ...]) -> Any:
    node = tx.graph.call_function(function, args)
    node.meta["example_value"] = None
    node.meta["user_line"] = tx.user_line()
    return node


def _register() -> None:
    for setter, (getter, _) in SETTERS.items():
        registry.on_call(getter)(lambda tx, args, kwargs, setter=setter: read_flag(tx, setter, args, kwargs))
        registry.on_call(setter)(lambda tx, args, kwargs, setter=setter: set_flag(tx, setter, args, kwargs))
    for function in _NESTING:
        registry.on_call(function)(
            lambda tx, args, kwargs, function=function: nest(tx, function, args, kwargs)
        )


def sets_state(graph: Any) -> bool:
    """True if running the graph node by node changes torch's state on the way."""
    return any(node.op == "call_function" and node.target in _STATE_NODES for node in graph.nodes)


def restoring(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The same graph; where it raises half-way, torch's state comes back as it was."""

    def call(*inputs: Any) -> Any:
        kept = SavedState()
        try:
            return compiled(*inputs)
        except BaseException:
            kept.put_back()
            raise

    return call


@registry.on_call(torch.clear_autocast_cache)
def clear_cache(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """After the end of the outermost block that node does it. Elsewhere the program wants it done for its own reasons, to casts
    that code outside of the graph made, too."""
    torch.clear_autocast_cache()
    last = next(iter(reversed(tx.graph.nodes)), None)
    if last is None or last.target is not leave_autocast:
        leave_node(tx, torch.clear_autocast_cache, ())
        tx.effects.call(torch.clear_autocast_cache)
    return tx.constant(None)


_register()
