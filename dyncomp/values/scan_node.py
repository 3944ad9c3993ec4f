"""The graph node of an associative scan: one operation for any length, with the function that combines two elements beside it.

    torch.ops.dyncomp.associative_scan([a, b], [w], 7)      ->  [a[0], combine(a[0], a[1]), ...], the same of b

`combine(*left, *right, *lifted)` is a graph on single elements (`PROGRAMS[7]`). A backend may compile it: then elements are folded one
after the other. Until then torch's own scan runs it, mapped over all pairs of a round at once. Not differentiable.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import generic_associative_scan


@dataclasses.dataclass
class Program:
    """`graph`: an fx.GraphModule that returns one tensor a leaf. `fakes`: of its inputs as a fold gives them, row-major."""

    graph: Any
    fakes: list[Any]
    compiled: Callable[..., Any] | None = None

    def fold(self, xs: Sequence[torch.Tensor], lifted: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        assert self.compiled is not None
        fixed = [tensor.contiguous() for tensor in lifted]
        rows = zip(*[x.contiguous().unbind(0) for x in xs], strict=True)
        state: Sequence[torch.Tensor] = next(rows)
        states = [state]
        for row in rows:
            state = self.compiled(*state, *row, *fixed)
            states.append(state)
        return [torch.stack(column) for column in zip(*states, strict=True)]

    def scan(self, xs: Sequence[torch.Tensor], lifted: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        combine = torch.vmap(lambda *pair: self.graph(*pair, *lifted))
        found: list[torch.Tensor] = generic_associative_scan(lambda *pair: list(combine(*pair)), list(xs))
        return found


# They live as long as the process: the plans that name them are compiled code, of which there is a limited number of versions.
PROGRAMS: dict[int, Program] = {}
_numbers = itertools.count()


def add_program(graph: Any, fakes: list[Any]) -> int:
    number = next(_numbers)
    PROGRAMS[number] = Program(graph, fakes)
    return number


def _run(xs: list[torch.Tensor], lifted: list[torch.Tensor], program: int) -> list[torch.Tensor]:
    found = PROGRAMS[program]
    return found.scan(xs, lifted) if found.compiled is None else found.fold(xs, lifted)


def _shape(xs: list[torch.Tensor], lifted: list[torch.Tensor], program: int) -> list[torch.Tensor]:
    return [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in xs]


_library = torch.library.Library("dyncomp", "DEF")
_library.define("associative_scan(Tensor[] xs, Tensor[] lifted, int program) -> Tensor[]")
_library.impl("associative_scan", _run, "CompositeExplicitAutograd")
_library.impl("associative_scan", _shape, "Meta")
associative_scan = torch.ops.dyncomp.associative_scan.default


def programs_of(gm: Any) -> list[Program]:
    """Those that a torch-level graph runs."""
    return [PROGRAMS[node.args[2]] for node in gm.graph.nodes if node.op == "call_function" and node.target is associative_scan]
