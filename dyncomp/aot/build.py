"""From the tape to an fx graph with fakes in `meta["val"]`."""

from __future__ import annotations

import dataclasses
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch.fx

from dyncomp.aot.epilogue import Epilogue
from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.late import CHECK, LateRead
from dyncomp.aot.sizes import GraphSizes
from dyncomp.aot.tape import Constant, Input, Node, Tape, map_nodes
from dyncomp.fake.tensor import TensorMeta, make_fake
from dyncomp.shape.symbolic import numbers_in

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv


def build_graph(
    tape: Tape,
    inputs: list[Any],
    epilogue: Epilogue,
    original: Callable[..., Any],
    env: ShapeEnv | None = None,
    late: Mapping[Any, LateRead] | None = None,
) -> AtenGraph:
    """One fx node a tape node; placeholders first, in the order of the inputs, also for inputs that nobody
    reads.
    """
    if env is not None:
        with warnings.catch_warnings():
            # torch would rather see nodes; these graphs are printed and run by `aot.sizes`, never by torch.
            warnings.filterwarnings("ignore", "Raw Sym")
            return _build(tape, inputs, epilogue, original, env, late or {})
    return _build(tape, inputs, epilogue, original, None, {})


def _build(
    tape: Tape,
    inputs: list[Any],
    epilogue: Epilogue,
    original: Callable[..., Any],
    env: ShapeEnv | None,
    late: Mapping[Any, LateRead],
) -> AtenGraph:
    graph = torch.fx.Graph()
    made: dict[Node, torch.fx.Node] = {}
    constants: dict[str, Any] = {}
    entered = {node.args[0]: node for node in tape if node.op is Input}
    for index, value in enumerate(inputs):
        placeholder = graph.placeholder(f"x{index}")
        if index in entered:
            made[entered[index]] = placeholder
            placeholder.meta["val"] = _fakes(entered[index].meta)
        else:
            placeholder.meta["val"] = value
    for node in tape:
        if node.op is not Input:
            made[node] = _build_node(graph, node, made, constants)
    wanted = [made[node] for node in epilogue.nodes()]
    graph.output(tuple(wanted))
    outputs = [("node", made[rule[1]]) if rule[0] == "node" else rule for rule in epilogue.outputs]
    mutations = [(i, made[node]) for i, node in epilogue.mutations]
    sizes = None
    if env is not None:
        arguments = [(node.args, node.kwargs) for node in graph.nodes]
        reads = {symbol: dataclasses.replace(read, node=made[read.node]) for symbol, read in late.items()}
        facts = [node.args[0] for node in tape if node.op is CHECK]
        sizes = GraphSizes(env, inputs, numbers_in([arguments, epilogue.outputs]), reads, facts)
    writes, quiet = dict(epilogue.writes), set()
    for i, _ in mutations:  # carrying one out is one write
        if ("input", i) not in writes:
            quiet.add(i)
        elif (rest := writes.pop(("input", i)) - 1) > 0:
            writes["input", i] = rest
    return AtenGraph(graph, constants, mutations, outputs, original, sizes=sizes, quiet=frozenset(quiet), writes=writes, plain=epilogue.plain)


def _build_node(graph: torch.fx.Graph, node: Node, made: dict[Node, Any], constants: dict[str, Any]) -> Any:
    if node.op is Constant:
        name = f"constant{len(constants)}"
        constants[name] = node.args[0]
        built = graph.create_node("get_attr", name, name=name)
    else:
        args = map_nodes(node.args, made.__getitem__)
        kwargs = {key: map_nodes(value, made.__getitem__) for key, value in node.kwargs.items()}
        built = graph.create_node("call_function", node.op, args, kwargs, _name(node))
    built.meta["val"] = _fakes(node.meta)
    if node.line is not None:
        built.meta["user_line"] = node.line
    return built


def _name(node: Node) -> str:
    if node.op is operator.getitem:
        return "item"
    return node.op._schema.name.split("::")[1].strip("_")


def _fakes(meta: Any) -> Any:
    if type(meta) is TensorMeta:
        return make_fake(meta)
    if isinstance(meta, (tuple, list)):
        return type(meta)(_fakes(item) for item in meta)
    return meta
