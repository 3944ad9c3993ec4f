"""Checks an ATen graph: all that later stages rely on. Used in tests and under `config.verify_passes`."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dyncomp.aot.graph import AtenGraph
from dyncomp.errors import InternalError
from dyncomp.fake.tensor import FakeTensor

_OUTPUT_KINDS = {"node": 2, "input": 2, "output": 2, "view": 5, "detached": 5, "const": 2}


def verify(graph: AtenGraph) -> None:
    """Raises InternalError at the first line that breaks a rule, naming it."""
    seen: set[torch.fx.Node] = set()
    for node in graph.graph.nodes:
        _check_node(graph, node, seen)
        seen.add(node)
    count = len(graph.placeholders)
    for index, value in graph.mutations:
        _require(0 <= index < count and value in seen, f"mutation of input {index} by {value}")
    for position, rule in enumerate(graph.outputs):
        _check_output(rule, position, count, seen, graph.outputs)


def _check_node(graph: AtenGraph, node: torch.fx.Node, seen: set[torch.fx.Node]) -> None:
    _require(all(parent in seen for parent in node.all_input_nodes), f"{node} reads a later node")
    if node.op == "output":
        return
    _require("val" in node.meta, f"{node} has no meta['val']")
    target: Any = node.target
    if node.op == "get_attr":
        _require(node.target in graph.constants, f"{node} names an unknown constant")
    elif node.op == "call_function" and target is operator.getitem:
        source: Any = node.args[0]
        _require(isinstance(source.meta["val"], (tuple, list)), f"{node} indexes a single value")
    elif node.op == "call_function":
        _require(
            isinstance(target, torch._ops.OpOverload),
            f"{node} calls {target}, not an ATen operation",
        )
        _require(not target._schema.is_mutable, f"{node} writes its arguments")
        _check_val(node, node.meta["val"])
    else:
        _require(node.op == "placeholder", f"{node} is a {node.op}")


def _check_val(node: torch.fx.Node, value: Any) -> None:
    if isinstance(value, (tuple, list)):
        for item in value:
            _check_val(node, item)
    elif isinstance(value, torch.Tensor):
        _require(isinstance(value, FakeTensor), f"{node} holds a real tensor")
        assert isinstance(value, FakeTensor)
        agrees = tuple(value.shape) == value.meta.shape and value.stride() == value.meta.strides
        _require(agrees, f"{node} disagrees with its own metadata")


def _check_output(
    rule: tuple[Any, ...], position: int, inputs: int, seen: set[torch.fx.Node], outputs: list[tuple[Any, ...]]
) -> None:
    _require(_OUTPUT_KINDS.get(rule[0]) == len(rule), f"output {position} has the rule {rule}")
    if rule[0] == "node":
        _require(rule[1] in seen, f"output {position} is a node of another graph")
    elif rule[0] in ("input", "output"):
        _require(0 <= rule[1] < (inputs if rule[0] == "input" else position), f"output {position} is {rule}")
    elif rule[0] in ("view", "detached"):
        kind, index = rule[1]
        limit = inputs if kind != "output" else len(outputs) if outputs[index][0] == "node" else position
        _require(0 <= index < limit, f"output {position} is {rule}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InternalError(f"invalid ATen graph: {message}")
