"""Backend `codegen`, the default: fused native kernels and a native plan.

Graphs that autograd must go through run op by op (counted as `training-graph-eager`).
The code generator sits above this layer, so it is loaded by name.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

from dyncomp import aot, counters
from dyncomp.backends.eager import run_graph
from dyncomp.backends.registry import Backend, CompileRequest
from dyncomp.errors import ToolchainError

_no_compiler_told = False


def compile_codegen(request: CompileRequest) -> Callable[..., Any]:
    if request.needs_grad:
        counters.add_fallback("training-graph-eager")
        return run_graph(request)
    try:
        graph = aot.trace_inference(request.gm, request.fake_inputs)
    except aot.Unsupported as reason:
        counters.add_fallback(f"aot: {reason}")
        return run_graph(request)
    request.dump("aten_graph.py", str(graph))
    generator = importlib.import_module("dyncomp.codegen.compile")
    options = dict(request.context.options)
    given = {"dump": request.dump, "fallback": run_graph(request)}
    try:
        return generator.compile_graph(graph, generator.Options.of(options, **given))
    except ToolchainError as error:
        _tell_once(error)
        counters.add_fallback("no-compiler")
        return generator.compile_graph(graph, generator.Options.of(options, **given, kernels=False))


def _tell_once(error: ToolchainError) -> None:
    global _no_compiler_told
    if not _no_compiler_told:
        _no_compiler_told = True
        warnings.warn(f"dyncomp runs without generated kernels: {error}", RuntimeWarning, stacklevel=2)


BACKEND = Backend("codegen", compile_codegen, native=True)
