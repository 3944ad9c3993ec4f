"""The tape: operations in the order they ran, before they become an fx graph.

Light on purpose: a tape node costs about a microsecond where an fx node costs ten, and the passes that throw
nodes away run here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dyncomp.fake.facts import OpFacts, facts_of


class Node:
    """One operation. `meta`: `TensorMeta` of the result, or a tuple/list of them. `line`: the user's
    (file, line). `again`: whether the program wants it computed again in the backward (True), or kept (False).
    """

    __slots__ = ("op", "args", "kwargs", "meta", "line", "again")

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: Any, line: Any = None):
        self.op, self.args, self.kwargs, self.meta, self.line = op, args, kwargs, meta, line
        self.again: bool | None = None

    def __repr__(self) -> str:
        return f"<{self.op} {self.meta}>"


class Input:
    """Pseudo-operation of an input node; `args` holds its index."""


class Constant:
    """Pseudo-operation of a constant; `args` holds the real tensor."""


Tape = list[Node]


def parents(node: Node) -> Iterator[Node]:
    """The nodes that a node reads, with repeats."""
    yield from _nodes_in(node.args)
    if node.kwargs:
        yield from _nodes_in(node.kwargs.values())


def _nodes_in(values: Any) -> Iterator[Node]:
    for value in values:
        if type(value) is Node:
            yield value
        elif type(value) is list or type(value) is tuple:
            yield from _nodes_in(value)


def map_nodes(value: Any, change: Callable[[Node], Any]) -> Any:
    """`value` with every node replaced, in nested lists and tuples too."""
    kind = type(value)
    if kind is Node:
        return change(value)
    if kind is list:
        return [map_nodes(item, change) for item in value]
    if kind is tuple:
        return tuple([map_nodes(item, change) for item in value])
    return value


def replace_inputs(node: Node, change: Callable[[Node], Any]) -> None:
    """Rewrites the nodes that a node reads."""
    node.args = map_nodes(node.args, change)
    if node.kwargs:
        node.kwargs = {name: map_nodes(value, change) for name, value in node.kwargs.items()}


def node_facts(node: Node) -> OpFacts | None:
    """Schema facts; None for inputs, constants and getitem."""
    return facts_of(node.op) if isinstance(node.op, torch._ops.OpOverload) else None


def is_random(node: Node) -> bool:
    """True if running it draws from a generator."""
    facts = node_facts(node)
    return facts is not None and facts.random


def is_view(node: Node) -> bool:
    facts = node_facts(node)
    return facts is not None and any(a is not None for a in facts.aliased)


def aliased_parent(node: Node) -> Node | None:
    """The node whose memory this one's result shares, if it surely or possibly shares any."""
    if node.op is operator.getitem:
        source = node.args[0]
        return aliased_parent(source)
    return node.args[0] if is_view(node) else None


def memory_root(node: Node) -> Node:
    """The node that owns the memory of this one's result."""
    while True:
        parent = aliased_parent(node)
        if parent is None:
            return node
        node = parent
