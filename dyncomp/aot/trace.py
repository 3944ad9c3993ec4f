"""From a torch-level graph to a functional ATen graph.

def forward(self, x):              def forward(x):
    y = torch.relu(x)        ->        relu = aten.relu.default(x)
    y.add_(1)                          add = aten.add.Tensor(relu, 1)
    return y                           return (add,)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dyncomp import config, log
from dyncomp.aot.build import build_graph
from dyncomp.aot.casts import Casts, cached_dtypes, cast_inputs, found_in_cache, remember
from dyncomp.aot.cleanup import clean
from dyncomp.aot.epilogue import Epilogue, own_memory, plan_epilogue
from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.interpret import enter_inputs, flat, interpret, state_restored, typed_errors
from dyncomp.aot.sizes import env_of_graph, env_of_inputs
from dyncomp.aot.tracer import TraceMode
from dyncomp.aot.verify import verify
from dyncomp.values.node_by_node import node_by_node


def trace_inference(gm: torch.fx.GraphModule, inputs: Sequence[Any], casts: Casts | None = ()) -> AtenGraph:
    """The functional ATen graph of `gm` on inputs like these (fakes, or real tensors); no gradients. `casts`: of weights, which are the
    last inputs; None: those that are found (`aot.casts`).
    """
    given = casts or ()
    env = env_of_inputs(inputs) or env_of_graph(gm)
    mode = TraceMode(env)
    mode.takes_late = env is not None
    fakes = enter_inputs(mode, inputs)
    with typed_errors():
        with state_restored(), torch._C._AutoDispatchBelowAutograd():
            dtypes = cached_dtypes()
            for (index, _), cast in zip(given, fakes[len(fakes) - len(given) :], strict=True):
                remember(fakes[index], cast)
            with mode:
                returned = interpret(gm, fakes, mode)
            found = found_in_cache(mode, fakes, dtypes) if casts is None and dtypes else ()
        if found:
            return trace_inference(gm, [*inputs, *cast_inputs(fakes, found)], found)
        with torch._C._AutoDispatchBelowAutograd():
            epilogue = plan_epilogue(mode.recorder, fakes, flat(returned))
            mode.recorder.late.finish()
            epilogue = cleaned(mode, epilogue)
    original = node_by_node(gm)
    without = (lambda *all_inputs: original(*all_inputs[: len(all_inputs) - len(given)])) if given else original
    graph = build_graph(mode.recorder.tape, fakes, epilogue, without, env, mode.recorder.late.reads)
    graph.casts = given
    if config.verify_passes:
        verify(graph)
    log.write("aot", "%s", graph)
    return graph


def cleaned(mode: TraceMode, epilogue: Epilogue) -> Epilogue:
    """The epilogue over what is left of the tape once it is cleaned up."""
    reads, kept = mode.recorder.late.reads, epilogue.nodes()
    tape, nodes = clean(mode.recorder.tape, [*kept, *[read.node for read in reads.values()]])
    mode.recorder.tape = tape
    for symbol, node in zip(list(reads), nodes[len(kept) :], strict=True):
        reads[symbol] = dataclasses.replace(reads[symbol], node=node)
    return own_memory(mode.recorder, epilogue.with_nodes(nodes[: len(kept)]))
