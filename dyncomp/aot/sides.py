"""Where the gradients of inputs go: to their nodes, and for views that the program writes to their bases too.

    x is a view of b outside, f writes it      ->      "own": the node of x before the call
    y = x * 2; v = x.t(); x.mul_(3)                    "base": that of b before it, as far as x looks at it
    z = v + 1                                          y -> own      z -> base, for v is a view of b to autograd, as x is

A write to a view is one to its base, and what was made of other views of that does not pass by the input's node. Where the write has no
gradient the input has another node "after" it, and only that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from dyncomp._frame import _exec
from dyncomp.aot.store import track_of
from dyncomp.aot.tracer import TraceMode
from dyncomp.fake.tensor import FakeTensor, as_result

aten = torch.ops.aten


@dataclasses.dataclass
class Sides:
    """Parallel lists, one entry a gradient: the input, which side of it, and the tensor or edge where the gradient is taken.

    `roots`: by input the tensor that autograd knows as the base; the input itself but for the views in `viewed`. `own`: what else the
    edges need; torch's nodes of Python functions do not live by what Python has of them.
    """

    inputs: list[int]
    names: list[str]
    sought: list[Any]
    roots: list[Any]
    viewed: tuple[int, ...]
    own: list[FakeTensor] = dataclasses.field(default_factory=list)

    def add(self, index: int, name: str, tensor: FakeTensor) -> None:
        self.inputs.append(index)
        self.names.append(name)
        # A result that is written in place has another history afterwards.
        self.sought.append(tensor if tensor.grad_fn is None else GradientEdge(tensor.grad_fn, tensor.output_nr))

    def add_after(self, mode: TraceMode, fakes: list[Any], rebased: Collection[int]) -> None:
        """The nodes that views got from writes without a gradient; to be called when the program has run."""
        for index in self.viewed:
            fake = fakes[index]
            if index in rebased or not fake.requires_grad or not track_of(fake).writes.count:
                continue
            with mode:  # autograd makes the node when it is asked for
                self.add(index, "after", fake)
            _exec.lead_on(fake, None)


def enter(mode: TraceMode, fakes: list[Any], given: list[Any], viewed: Collection[int]) -> Sides:
    """Puts what stands for the inputs to autograd into `fakes`: results of operations stay such, since autocast and writes in place treat
    leaves otherwise; those in `viewed` become views.
    """
    sides = Sides([], [], [], [], tuple(sorted(viewed)))
    for index, fake in enumerate(fakes):
        root = fake
        if type(fake) is FakeTensor:
            if index in sides.viewed:
                root, fakes[index] = _as_view(mode, fake)
                if fake.requires_grad:
                    sides.own.append(as_result(fake))
                    _exec.set_history(fakes[index], sides.own[-1])
            elif fake.requires_grad and not given[index].is_leaf:
                root = fakes[index] = as_result(fake)
            if fake.requires_grad:
                sides.add(index, "own", fakes[index])
            if fake.requires_grad and index in sides.viewed:
                sides.add(index, "base", root)
        sides.roots.append(root)
    return sides


def _as_view(mode: TraceMode, fake: FakeTensor) -> tuple[FakeTensor, FakeTensor]:
    """(base, view of all of it)."""
    base = as_result(fake) if fake.requires_grad else fake
    tape = mode.recorder.tape
    count = len(tape)
    with mode, torch.enable_grad():
        view: FakeTensor = aten.alias.default(base)
    del tape[count:]  # it is no operation of the program's
    view.__dict__.update(base.__dict__)
    return base, view

