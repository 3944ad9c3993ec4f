"""Backend `inductor`: the peer's code generator on our captured graphs, for comparison. Loaded only when asked for by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from dyncomp.backends.registry import Backend, CompileRequest


def compile_with_inductor(request: CompileRequest) -> Callable[..., Any]:
    compile_fx = importlib.import_module("torch._inductor.compile_fx").compile_fx
    return compile_fx(request.gm, list(request.real_inputs))


BACKEND = Backend("inductor", compile_with_inductor)
