"""ATen graphs as Python that runs.

def forward(x0):
    add = torch.ops.aten.add.Tensor(x0, 1)  # f32[2, 3]
    return (add,)
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dyncomp.aot.late import Fact
from dyncomp.aot.sizes import GraphSizes
from dyncomp.shape.symbolic import is_symbolic

Number = Callable[[Any], str]

_SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.bool:
    "b8", torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
    torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip


def forward_source(graph: torch.fx.Graph, sizes: GraphSizes | None = None, comments: bool = False) -> str:
    """Source of `forward(*placeholders) -> tuple`; constants are free names. Values are dropped after
    their last use. Where there are late numbers, a tuple of them ends the result.
    """
    names = [node.name for node in graph.nodes if node.op == "placeholder"]
    lines = [f"def forward({', '.join(names)}):"]
    number: Number = repr
    placed: dict[int, list[str]] = {}
    late: list[str] = []
    if sizes is not None:
        placed, results = sizes.lines(names, {node: i for i, node in enumerate(graph.nodes)})
        lines += [f"    {line}" for line in placed.get(-1, ())]
        number = functools.partial(_number_name, sizes, results)
        late = sizes.late_names()
    last_use = _last_uses(graph)
    for position, node in enumerate(graph.nodes):
        if node.op == "call_function":
            text = f"    {node.name} = {_call(node, number)}"
            lines.append(f"{text}  # {describe(node.meta.get('val'))}" if comments else text)
            lines += [f"    {line}" for line in placed.get(position, ())]
            if dead := last_use.get(node):
                lines.append(f"    {' = '.join(dead)} = None")
        elif node.op == "output":
            given = _text(tuple(node.args[0]), number)
            lines.append(f"    return (*{given}, ({', '.join(late)},))" if late else f"    return {given}")
    return "\n".join(lines) + "\n"


def graph_text(aten_graph: Any) -> str:
    """The whole graph with shapes, constants and the epilogue as comments."""
    head = ["import torch", ""]
    for node in aten_graph.placeholders:
        head.append(f"# {node.name}: {describe(node.meta['val'])}")
    for name, tensor in aten_graph.constants.items():
        head.append(f"{name} = torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})  # captured")
    tail = [f"# write back: x{index} = {node.name}" for index, node in aten_graph.mutations]
    tail += [f"# output {i}: {_rule(rule)}" for i, rule in enumerate(aten_graph.outputs)]
    return "\n".join([*head, "", forward_source(aten_graph.graph, aten_graph.sizes, comments=True), *tail]) + "\n"


def describe(value: Any) -> str:
    """Short text of a fake: `f32[2, 3]`, with strides where they are not row-major."""
    if isinstance(value, torch.Tensor):
        text = f"{_SHORT.get(value.dtype, str(value.dtype))}{list(value.shape)}"
        # Printing asks symbolic sizes nothing: an answer would be guarded.
        symbolic = any(map(is_symbolic, (*value.shape, *value.stride())))
        if symbolic or not value.is_contiguous():
            text += f" strides {list(value.stride())}"
        return text if value.device.type == "cpu" else f"{text} {value.device}"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(describe, value))
    return repr(value)


def _rule(rule: tuple[Any, ...]) -> str:
    return f"{rule[0]} {', '.join(str(part) for part in rule[1:])}"


def _number_name(sizes: GraphSizes, results: list[str], number: Any) -> str:
    if isinstance(number, Fact):
        return results[sizes.place_of_fact(number)]
    place = sizes.place(number)
    return str(number) if place is None else results[place]


def _call(node: torch.fx.Node, number: Number) -> str:
    if node.target is operator.getitem:
        return f"{_text(node.args[0], number)}[{node.args[1]}]"
    op: Any = node.target
    namespace, rest = op._schema.name.split("::")
    packet = f"torch.ops.{namespace}.{rest}.{op._overloadname}"
    arguments = [_text(a, number) for a in node.args] + [f"{name}={_text(a, number)}" for name, a in node.kwargs.items()]
    return f"{packet}({', '.join(arguments)})"


def _text(value: Any, number: Number) -> str:
    if isinstance(value, torch.fx.Node):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(_text(v, number) for v in value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(_text(v, number) for v in value)}]"
    if isinstance(value, torch.device):
        return f"torch.{value!r}"
    if is_symbolic(value) or isinstance(value, Fact):
        return number(value)
    if isinstance(value, complex):
        return f"complex({_text(value.real, number)}, {_text(value.imag, number)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


def _last_uses(graph: torch.fx.Graph) -> dict[torch.fx.Node, list[str]]:
    """For each node, the names that are dead once it has run."""
    seen: set[torch.fx.Node] = set()
    result: dict[torch.fx.Node, list[str]] = {}
    for node in reversed(graph.nodes):
        dead = [n.name for n in node.all_input_nodes if n not in seen and n.op == "call_function"]
        seen.update(node.all_input_nodes)
        if node not in seen and node.op == "call_function":
            dead.append(node.name)
        if dead:
            result[node] = dead
    return result
