"""Tables that say which Value an outside object becomes, what a call of a known callable does, and what a
graph node's result becomes. Value modules fill them when imported (the package `__init__` imports all of
them).

This module imports nothing of the project. A second rule under one key is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Factory = Callable[[Any, Any, Any], Any]  # (tx, obj, source) -> Value
Handler = Callable[..., Any]  # (tx, args, kwargs) -> Value
FamilyHandler = Callable[[Any, Any, Any, Any], Any]  # (tx, fn, args, kwargs) -> Value
ResultFactory = Callable[[Any, Any, Any], Any]  # (tx, node, fake) -> Value

WRAP_TYPE: dict[type, Factory] = {}
WRAP_IF: list[tuple[int, Callable[[Any], bool], Factory]] = []
CALLS: dict[Any, Handler] = {}
CALL_IF: list[tuple[int, Callable[[Any], bool], FamilyHandler]] = []
RESULT_IF: list[tuple[Callable[[Any], bool], ResultFactory]] = []
TENSOR_METHODS: dict[str, list[Handler]] = {}  # name -> rules (tx, tensor, args, kwargs) -> Value | None
GRAPH_ENDS: list[Callable[[Any], None]] = []  # (tx): the graph is complete, its output not yet made
TRACE_ENDS: list[Callable[[Any], None]] = []  # (tx): the trace is over, however it ended


def wrap_type(*types: type) -> Callable[[Factory], Factory]:
    """`@wrap_type(list)`: objects of exactly these types."""

    def register(factory: Factory) -> Factory:
        for cls in types:
            if cls in WRAP_TYPE:
                raise RuntimeError(f"two wrap rules for {cls!r}")
            WRAP_TYPE[cls] = factory
        return factory

    return register


def wrap_if(predicate: Callable[[Any], bool], priority: int = 50) -> Callable[[Factory], Factory]:
    """`@wrap_if(lambda o: isinstance(o, nn.Module), priority=20)`: lower priority numbers are asked first."""

    def register(factory: Factory) -> Factory:
        WRAP_IF.append((priority, predicate, factory))
        WRAP_IF.sort(key=lambda rule: rule[0])
        return factory

    return register


def on_call(*functions: Any) -> Callable[[Handler], Handler]:
    """`@on_call(len)`: `handler(tx, args, kwargs)` answers calls of exactly this object.

    Bound and unbound C methods (`dict.get`, `torch.Tensor.add`) are callables like any other.
    """

    def register(handler: Handler) -> Handler:
        for fn in functions:
            if fn in CALLS:
                raise RuntimeError(f"two call handlers for {fn!r}")
            CALLS[fn] = handler
        return handler

    return register


def call_if(predicate: Callable[[Any], bool], priority: int = 50) -> Callable[[FamilyHandler], FamilyHandler]:
    """A family of callables: `handler(tx, fn, args, kwargs)`. Asked after CALLS, before inlining."""

    def register(handler: FamilyHandler) -> FamilyHandler:
        CALL_IF.append((priority, predicate, handler))
        CALL_IF.sort(key=lambda rule: rule[0])
        return handler

    return register


def result_if(predicate: Callable[[Any], bool]) -> Callable[[ResultFactory], ResultFactory]:
    """What the result of running a graph node on fakes becomes; tuples and lists are taken apart before."""

    def register(factory: ResultFactory) -> ResultFactory:
        RESULT_IF.append((predicate, factory))
        return factory

    return register


def on_tensor_method(name: str) -> Callable[[Handler], Handler]:
    """`rule(tx, tensor, args, kwargs)` answers a call of this tensor method before the tensor does, or gives None."""

    def register(rule: Handler) -> Handler:
        TENSOR_METHODS.setdefault(name, []).append(rule)
        return rule

    return register


def tensor_method(tx: Any, tensor: Any, name: str, args: Any, kwargs: Any) -> Any:
    """What the first rule that has an answer gives, or None."""
    for rule in TENSOR_METHODS.get(name, ()):
        found = rule(tx, tensor, args, kwargs)
        if found is not None:
            return found
    return None


def at_graph_end(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """Runs when all of a frame's operations are in the graph: last nodes, guards and effects."""
    GRAPH_ENDS.append(function)
    return function


def at_trace_end(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """Runs after every trace, failed ones too: puts back process-wide state that tracing changed."""
    TRACE_ENDS.append(function)
    return function


def end_graph(tx: Any) -> None:
    for function in GRAPH_ENDS:
        function(tx)


def end_trace(tx: Any) -> None:
    for function in TRACE_ENDS:
        function(tx)


def wrap_rule(obj: Any) -> Factory | None:
    """The factory for an outside object, or None."""
    factory = WRAP_TYPE.get(type(obj))
    if factory is not None:
        return factory
    return next((factory for _, predicate, factory in WRAP_IF if predicate(obj)), None)


def call_rule(fn: Any) -> Handler | None:
    """`handler(tx, args, kwargs)` for a callable, or None: inline it, or break the graph."""
    try:
        handler = CALLS.get(fn)
    except TypeError:  # an unhashable callable has no rule of its own
        handler = None
    if handler is not None:
        return handler
    for _, predicate, family in CALL_IF:
        if predicate(fn):
            return lambda tx, args, kwargs, family=family: family(tx, fn, args, kwargs)
    return None


def result_rule(result: Any) -> ResultFactory | None:
    return next((factory for predicate, factory in RESULT_IF if predicate(result)), None)
