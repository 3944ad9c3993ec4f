"""From a torch-level graph to a functional ATen graph.

def forward(self, x):              def forward(x):
    y = torch.relu(x)        ->        relu = aten.relu.default(x)
    y.add_(1)                          add = aten.add.Tensor(relu, 1)
    return y                           return (add,)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dyncomp import config, log
from dyncomp.aot.build import build_graph
from dyncomp.aot.cleanup import clean
from dyncomp.aot.epilogue import Epilogue, own_memory, plan_epilogue
from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.interpret import enter_inputs, flat, interpret, state_restored, typed_errors
from dyncomp.aot.sizes import env_of_inputs
from dyncomp.aot.tracer import TraceMode
from dyncomp.aot.verify import verify


def trace_inference(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> AtenGraph:
    """The functional ATen graph of `gm` on inputs like these (fakes, or real tensors); no gradients."""
    env = env_of_inputs(inputs)
    mode = TraceMode(env)
    fakes = enter_inputs(mode, inputs)
    with typed_errors():
        with state_restored(), torch._C._AutoDispatchBelowAutograd(), mode:
            returned = interpret(gm, fakes, mode)
        with torch._C._AutoDispatchBelowAutograd():
            epilogue = plan_epilogue(mode.recorder, fakes, flat(returned))
            epilogue = _clean(mode, epilogue)
    graph = build_graph(mode.recorder.tape, fakes, epilogue, gm, env)
    if config.verify_passes:
        verify(graph)
    log.write("aot", "%s", graph)
    return graph


def _clean(mode: TraceMode, epilogue: Epilogue) -> Epilogue:
    tape, nodes = clean(mode.recorder.tape, epilogue.nodes())
    mode.recorder.tape = tape
    return own_memory(mode.recorder, epilogue.with_nodes(nodes))
