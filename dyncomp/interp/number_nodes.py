"""Graph nodes that compute symbolic numbers.

    2*s0 + 1, s0 = L['x'].size(0)    ->    size = x.size(0);  mul = size * 2;  add = mul + 1

Numbers are written in terms of what the call brings, not of the steps that the program took, so that equal numbers
are one node. Numbers that only the graph can tell (unbacked ones) hang on the node that gave them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from dyncomp.guards.number import Number
from dyncomp.shape.symbolic import NUMBER_FUNCTIONS, is_symbolic, number_key, plain, value_program


class NumberNodes:
    """`tensor_node(source)`: the graph input of an outside tensor; `int_node(source)`: that of an outside int."""

    def __init__(
        self, graph: fx.Graph, tensor_node: Callable[[Any], fx.Node], int_node: Callable[[Any, Any], fx.Node]
    ):
        self._graph, self._tensor_node, self._int_node = graph, tensor_node, int_node
        self._known: dict[Any, fx.Node] = {}

    def bind(self, number: Any, node: fx.Node) -> None:
        """This node gives the number."""
        self._known.setdefault(number_key(number), node)

    def of(self, number: Any) -> Any:
        """A node for a symbolic number, or the number itself where it is plain."""
        number = plain(number)
        if not is_symbolic(number):
            return number
        key = number_key(number)
        if key not in self._known:
            self._known[key] = self._build(number)
        return self._known[key]

    def _build(self, number: Any) -> fx.Node:
        env = number.node.shape_env
        program = value_program(env, [number])
        registers: list[Any] = [self._read(env, origin) for origin in program.inputs]
        for name, *operands in program.code:
            if name == "const":
                registers.append(operands[0])
            else:
                registers.append(self._operation(name, [registers[i] for i in operands]))
        return registers[program.results[0]]  # type: ignore[no-any-return]

    def _operation(self, name: str, operands: list[Any]) -> Any:
        key = (name, *operands)
        if key not in self._known:
            function = NUMBER_FUNCTIONS[name]
            node = self._graph.call_function(function, tuple(operands))
            node.meta.update(example_value=function(*map(_value, operands)), number=True)
            self._known[key] = node
        return self._known[key]

    def _read(self, env: Any, origin: Number) -> fx.Node:
        if origin not in self._known:
            number = env.number_at(origin)
            if origin.what == "int":
                node = self._int_node(origin.source, number)
            else:
                tensor = self._tensor_node(origin.source)
                node = self._graph.call_method(origin.what, (tensor, origin.dim))
                node.meta.update(example_value=number, number=True)
            self._known[origin] = node
        return self._known[origin]


def _value(operand: Any) -> Any:
    return operand.meta["example_value"] if isinstance(operand, fx.Node) else operand


def settle_numbers(graph: fx.Graph) -> None:
    """Numbers that the trace pinned become constants, and computations of numbers that nobody reads go."""

    def constant(node: fx.Node) -> Any:
        number = node.meta.get("example_value")
        return plain(number) if is_symbolic(number) and not is_symbolic(plain(number)) else node

    for node in list(graph.nodes):
        if any(is_symbolic(parent.meta.get("example_value")) for parent in node.all_input_nodes):
            node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), constant)
    for node in reversed(list(graph.nodes)):
        if node.meta.get("number") and not node.users:
            graph.erase_node(node)
