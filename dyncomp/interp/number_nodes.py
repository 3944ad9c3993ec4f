"""Graph nodes that compute symbolic numbers.

    2*s0 + 1, s0 = L['x'].size(0)    ->    size = x.size(0);  mul = size * 2;  add = mul + 1

Numbers are written in terms of what the call brings, not of the steps that the program took, so that equal numbers
are one node. Numbers that only the graph can tell (unbacked ones) hang on the node that gave them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from dyncomp.errors import GraphBreak
from dyncomp.shape.int_program import Program, float_of_bits
from dyncomp.shape.symbolic import (
    NUMBER_FUNCTIONS,
    fact_program,
    is_symbolic,
    late_symbol,
    number_key,
    plain,
    value_program,
)

# Raises RuntimeError with the text unless the truth holds; a node of its own kind in every torch-level graph.
CHECK = torch.ops.aten._assert_scalar.default


@dataclasses.dataclass(frozen=True)
class LateRead:
    """Where the running graph finds a number: a node's value, or the size of a tensor. `number` stands for it in fakes."""

    node: fx.Node
    what: str
    dim: int
    number: Any = dataclasses.field(compare=False)


class NumberNodes:
    """`tensor_node(source)`: the graph input of an outside tensor; `int_node(source)`: that of an outside int."""

    def __init__(
        self, graph: fx.Graph, tensor_node: Callable[[Any], fx.Node], int_node: Callable[[Any, Any], fx.Node]
    ):
        self._graph, self._tensor_node, self._int_node = graph, tensor_node, int_node
        self._known: dict[Any, fx.Node] = {}
        self._late: dict[Any, tuple[LateRead, int, int]] = {}  # symbol -> where the running graph finds its number

    def bind(self, number: Any, node: fx.Node) -> None:
        """This node gives the number."""
        symbol = late_symbol(number)
        if symbol is not None:
            self._late.setdefault(symbol, (LateRead(node, "value", 0, number), 1, 0))
        self._known.setdefault(number_key(number), node)

    def bind_sizes(self, sizes: Sequence[Any], node: fx.Node) -> None:
        """This node is a tensor of these sizes; those that only running the graph tells are read from it."""
        for dim, size in enumerate(sizes):
            symbol = late_symbol(size)
            if symbol is not None:
                self._late.setdefault(symbol, (LateRead(node, "size", dim, size), 1, 0))

    def truth(self, env: Any, fact: Any) -> fx.Node:
        """A node for a relation that has become a fact; KeyError if nothing in the graph gives one of its numbers.

        Facts that were learned since do not shorten it: what it is computed from stays as it is (`settle_numbers`).
        """
        node = self._run(env, fact_program(env, [], [fact], self._late))
        fixed = [node]
        while fixed:
            one = fixed.pop()
            if isinstance(one, fx.Node) and one.meta.get("number") and not one.meta.get("fixed"):
                one.meta["fixed"] = True
                fixed.extend(one.all_input_nodes)
        return node

    def of(self, number: Any) -> Any:
        """A node for a symbolic number, or the number itself where it is plain."""
        number = plain(number)
        if not is_symbolic(number):
            return number
        key = number_key(number)
        if key not in self._known:
            if isinstance(number, torch.SymInt) and not number.node.shape_env.fit(number.node.expr):
                return int(number)  # this very number, and eager's error about it
            self._known[key] = self._build(number)
        return self._known[key]

    def _build(self, number: Any) -> fx.Node:
        env = number.node.shape_env
        try:
            return self._run(env, value_program(env, [number], self._late))
        except KeyError as error:
            raise GraphBreak("data-dependent-value", f"the number {number}, which no operation of the graph gives") from error

    def _run(self, env: Any, program: Program) -> Any:
        registers: list[Any] = [self._read(env, origin) for origin in program.inputs]
        for name, *operands in program.code:
            if name == "const":
                registers.append(operands[0])
            elif name == "fconst":
                registers.append(float_of_bits(operands[0]))
            else:
                registers.append(self._operation(name, [registers[i] for i in operands]))
        return registers[program.results[0]]

    def _operation(self, name: str, operands: list[Any]) -> Any:
        key = (name, *[(type(operand), operand) for operand in operands])  # 1 and 1.0 are equal as keys
        if key not in self._known:
            function = NUMBER_FUNCTIONS[name]
            node = self._graph.call_function(function, tuple(operands))
            node.meta.update(example_value=function(*map(_value, operands)), number=True)
            self._known[key] = node
        return self._known[key]

    def _read(self, env: Any, origin: Any) -> fx.Node:
        if isinstance(origin, LateRead):
            return self._read_late(origin)
        if origin not in self._known:
            number = env.number_at(origin)
            if origin.stands_alone:
                node = self._int_node(origin.value_source(), number)
            else:
                tensor = self._tensor_node(origin.source)
                node = self._graph.call_method(origin.what, (tensor, origin.dim))
                node.meta.update(example_value=number, number=True)
            self._known[origin] = node
        return self._known[origin]

    def _read_late(self, read: LateRead) -> fx.Node:
        if read.what == "value":
            return read.node
        if read not in self._known:
            node = self._graph.call_method("size", (read.node, read.dim))
            node.meta.update(example_value=read.number, number=True)
            self._known[read] = node
        return self._known[read]


def _value(operand: Any) -> Any:
    return operand.meta["example_value"] if isinstance(operand, fx.Node) else operand


def settle_numbers(graph: fx.Graph) -> None:
    """Numbers that the trace pinned become constants, and computations of numbers that nobody reads go."""

    def constant(node: fx.Node) -> Any:
        number = node.meta.get("example_value")
        return plain(number) if is_symbolic(number) and not is_symbolic(plain(number)) else node

    for node in list(graph.nodes):
        if node.meta.get("fixed") or node.target is CHECK:
            continue
        if any(is_symbolic(parent.meta.get("example_value")) for parent in node.all_input_nodes):
            node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), constant)
    for node in reversed(list(graph.nodes)):
        if node.meta.get("number") and not node.users:
            graph.erase_node(node)
