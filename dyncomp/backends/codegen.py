"""Backend `codegen`, the default: fused native kernels and a native plan.

The code generator sits above this layer, so it is loaded by name.
"""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch

from dyncomp import aot, counters
from dyncomp.backends.casts import taking_casts
from dyncomp.backends.eager import run_graph
from dyncomp.backends.registry import Backend, CompileRequest
from dyncomp.backends.step import compile_step
from dyncomp.backends.training import train_or_run
from dyncomp.errors import ToolchainError
from dyncomp.shape.symbolic import is_symbolic
from dyncomp.values.backward_node import has_backward
from dyncomp.values.node_by_node import node_by_node
from dyncomp.values.scan_node import programs_of

_no_compiler_told = False


@dataclasses.dataclass
class _Generator:
    """Makes ATen graphs callable; it may be kept for backwards that are compiled later."""

    options: dict[str, Any]
    dump: Callable[[str, str], None]
    fallback: Callable[..., Any]

    def __call__(self, graph: aot.AtenGraph, stage: str = "graph") -> Callable[..., Any]:
        self.dump(f"aten_{stage}.py", str(graph))
        generator = importlib.import_module("dyncomp.codegen.compile")
        # a training plan looks for shared memory itself
        given = {
            "dump": self.dump,
            "fallback": self.fallback,
            "overlap_checked": stage == "forward",
            "training": stage != "graph",
        }
        try:
            return generator.compile_graph(graph, generator.Options.of(self.options, **given))
        except ToolchainError as error:
            _tell_once(error)
            counters.add_fallback("no-compiler")
            return generator.compile_graph(graph, generator.Options.of(self.options, **given, kernels=False))


def _other_device(request: CompileRequest) -> str | None:
    """The type of the first device in the graph that is not the CPU."""
    for node in request.gm.graph.nodes:
        value = node.meta.get("example_value")
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, torch.Tensor) and one.device.type != "cpu":
                return one.device.type
    return None


def compile_codegen(request: CompileRequest) -> Callable[..., Any]:
    if (device := _other_device(request)) is not None:
        counters.add_fallback(f"device-{device}")
        return run_graph(request)
    generate = _Generator(dict(request.context.options), request.dump, run_graph(request))
    _compile_programs(request, generate)
    if has_backward(request.gm):
        return compile_step(request, generate)
    if request.needs_grad:
        return train_or_run(request, generate)
    try:
        graph = aot.trace_inference(request.gm, request.fake_inputs, None)
    except aot.Unsupported as reason:
        counters.add_fallback(f"aot: {reason}")
        return run_graph(request)
    if graph.casts:
        generate = dataclasses.replace(generate, fallback=graph.original)
    return taking_casts(generate(graph), graph.casts, node_by_node(request.gm))


def _is_readable(size: Any) -> bool:
    """True for a number, or one that is the size of a tensor as it is: a program has no other way to tell it."""
    return not is_symbolic(size) or bool(size.node.expr.is_Symbol)


def _compile_programs(request: CompileRequest, generate: _Generator) -> None:
    """Makes code of the functions that scans of the graph run on each element."""
    for program in programs_of(request.gm):
        if not all(_is_readable(size) for fake in program.fakes for size in fake.shape):
            continue
        try:
            graph = aot.trace_inference(program.graph, program.fakes)
        except aot.Unsupported as reason:
            counters.add_fallback(f"aot: {reason}")
        else:
            quiet = dataclasses.replace(generate, dump=lambda stage, text: None, fallback=node_by_node(program.graph))
            program.compiled = quiet(graph)


def _tell_once(error: ToolchainError) -> None:
    global _no_compiler_told
    if not _no_compiler_told:
        _no_compiler_told = True
        warnings.warn(f"dyncomp runs without generated kernels: {error}", RuntimeWarning, stacklevel=2)


BACKEND = Backend("codegen", compile_codegen, native=True, writes_last=True)
