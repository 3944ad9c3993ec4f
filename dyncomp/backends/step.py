"""Graphs that hold a captured backward: compiled whole; results come out with the history that eager leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dyncomp import aot, counters
from dyncomp.backends.eager import run_graph
from dyncomp.backends.registry import CompileRequest

_USED_UP = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after "
    "calling backward."
)


class UsedUp(torch.autograd.Function):
    """The history of a value whose backward has run."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(_USED_UP)


def compile_step(request: CompileRequest, build: Callable[[aot.AtenGraph, str], Callable[..., Any]]) -> Callable[..., Any]:
    """The compiled step, or where it has no such form the torch-level graph under eager's autograd."""
    try:
        step = aot.trace_step(request.gm, request.fake_inputs)
    except aot.Unsupported as reason:
        counters.add_fallback("training-graph-eager")
        counters.add_fallback(f"aot: {reason}")
        return run_graph(request)
    compiled = build(step.graph, "step")
    leaf = torch.empty(0, requires_grad=True)

    def run(*inputs: Any) -> Any:
        enabled = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # the trace made eager's checks, in the modes that the program set
        try:
            results = compiled(*inputs)
            if step.freed:
                torch._C._set_grad_enabled(True)
                results = list(results)
                for i in step.freed:
                    results[i] = UsedUp.apply(results[i], leaf)  # type: ignore[no-untyped-call]
        finally:
            torch._C._set_grad_enabled(enabled)
        return results

    return run
