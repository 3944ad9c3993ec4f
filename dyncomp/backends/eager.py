"""Backend `eager`: the captured torch-level graph, run op by op. It also carries graphs that others hand back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dyncomp.backends.registry import Backend, CompileRequest


def run_graph(request: CompileRequest) -> Callable[..., Any]:
    """The graph as a Python function of flat tensor operations; autograd goes through it as in eager."""
    return request.gm.forward


BACKEND = Backend("eager", run_graph)
