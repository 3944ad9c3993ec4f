"""A graph with a captured backward: forward, backward and what follows as one functional graph.

    loss = f(x, w); (g,) = gradients(False, loss, None, w); w.sub_(0.1 * g)
    ->   the operations of f, those of its backward, sub        w := sub

Eager's autograd runs over the fakes, so the backward is eager's, operation by operation. In eager a result with history
keeps it after its backward has run, as a graph whose saved values are gone: such results are `freed`, and the caller
gives them a history that says so. Histories that no backward went through cannot be kept: Unsupported.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dyncomp import config, log
from dyncomp.aot.build import build_graph
from dyncomp.aot.epilogue import plan_epilogue
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.interpret import enter_inputs, flat, interpret, state_restored, typed_errors
from dyncomp.aot.sizes import env_of_graph, env_of_inputs
from dyncomp.aot.trace import cleaned
from dyncomp.aot.tracer import TraceMode
from dyncomp.aot.verify import verify
from dyncomp.fake.tensor import FakeTensor
from dyncomp.values.backward_node import gradients, history, watched
from dyncomp.values.node_by_node import node_by_node


@dataclasses.dataclass
class StepGraph:
    """`freed`: positions of results whose history a backward has used up."""

    graph: AtenGraph
    freed: list[int]


def trace_step(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> StepGraph:
    """The graph of `gm`, which holds a backward, on inputs like these. Raises Unsupported."""
    env = env_of_inputs(inputs) or env_of_graph(gm)
    mode = TraceMode(env)
    mode.takes_late = env is not None
    fakes = enter_inputs(mode, inputs)
    with typed_errors():
        with state_restored(), watched() as histories, mode:
            results = flat(interpret(gm, fakes, mode))
        freed = _freed(gm, results, set().union(*histories))
        with torch._C._AutoDispatchBelowAutograd():
            epilogue = plan_epilogue(mode.recorder, fakes, results)
            mode.recorder.late.finish()
            epilogue = cleaned(mode, epilogue)
    graph = build_graph(mode.recorder.tape, fakes, epilogue, node_by_node(gm), env, mode.recorder.late.reads)
    graph.plain |= _gradients_in(gm)
    if any(graph.outputs[i][0] != "node" for i in freed):
        raise Unsupported("a result with history that shares memory with another tensor")
    if config.verify_passes:
        verify(graph)
    log.write("aot", "%s", graph)
    return StepGraph(graph, freed)


def _gradients_in(gm: torch.fx.GraphModule) -> frozenset[int]:
    """Positions of results that are gradients, just as a backward gives them: what `.grad` is set to is no view."""
    (returned,) = next(iter(reversed(gm.graph.nodes))).args
    found = set()
    for position, node in enumerate(returned if isinstance(returned, tuple | list) else (returned,)):
        source = node.args[0] if isinstance(node, torch.fx.Node) and node.target is operator.getitem else None
        if isinstance(source, torch.fx.Node) and source.target is gradients:
            found.add(position)
    return frozenset(found)


def _freed(gm: torch.fx.GraphModule, results: list[Any], used: set[Any]) -> list[int]:
    found = []
    for i, result in enumerate(results):
        if type(result) is not FakeTensor or not result.requires_grad or result.is_leaf:
            continue
        if not history(result) <= used:
            raise Unsupported("a result that needs a gradient of its own after a captured backward")
        found.append(i)
    if found and any(node.target is gradients and node.args[0] for node in gm.graph.nodes):
        raise Unsupported("a result with history after backward(retain_graph=True)")
    return found
