"""Backend `eager`: the captured torch-level graph, run op by op. It also carries graphs that others hand back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dyncomp.backends.registry import Backend, CompileRequest
from dyncomp.values.node_by_node import node_by_node
from dyncomp.values.users_line import naming_lines


def run_graph(request: CompileRequest) -> Callable[..., Any]:
    """The graph as a Python function of flat tensor operations; autograd goes through it as in eager."""
    return node_by_node(request.gm)


def compile_eager(request: CompileRequest) -> Callable[..., Any]:
    """As `run_graph`; the driver sees to what a backend's callable leaves behind where it raises."""
    return naming_lines(request.gm)


BACKEND = Backend("eager", compile_eager)
