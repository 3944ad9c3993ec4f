"""Backend `aot_eager`: the functional ATen graph, run op by op with the epilogue for mutations and aliases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dyncomp import aot, counters
from dyncomp.backends.casts import taking_casts
from dyncomp.backends.eager import run_graph
from dyncomp.backends.registry import Backend, CompileRequest
from dyncomp.backends.step import compile_step
from dyncomp.backends.training import train_or_run
from dyncomp.values.backward_node import has_backward
from dyncomp.values.node_by_node import node_by_node


@dataclasses.dataclass
class _Runner:
    """Makes the halves of a training graph callable."""

    dump: Callable[[str, str], None]

    def __call__(self, graph: aot.AtenGraph, stage: str = "graph") -> Callable[..., Any]:
        self.dump(f"aten_{stage}.py", str(graph))
        return graph.run


def compile_aot_eager(request: CompileRequest) -> Callable[..., Any]:
    if has_backward(request.gm):
        return compile_step(request, _Runner(request.dump))
    if request.needs_grad:
        return train_or_run(request, _Runner(request.dump))
    try:
        graph = aot.trace_inference(request.gm, request.fake_inputs, None)
    except aot.Unsupported as reason:
        counters.add_fallback(f"aot: {reason}")
        return run_graph(request)
    request.dump("aten_graph.py", str(graph))
    return taking_casts(graph.run, graph.casts, node_by_node(request.gm))


BACKEND = Backend("aot_eager", compile_aot_eager, writes_last=True)
