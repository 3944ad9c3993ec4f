"""AtenGraph: a functional graph of ATen operations, and how its results become the user's outputs."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dyncomp._frame import _exec
from dyncomp.aot.printer import forward_source, graph_text
from dyncomp.aot.run import Runner
from dyncomp.aot.sizes import GraphSizes

Writes = dict[tuple[str, int], int]


@dataclasses.dataclass(eq=False)
class AtenGraph:
    """A functional graph and its epilogue.

    `mutations`: (input index, fx node of its new value); `quiet`: those of them whose version counter stays as it is, since eager
    writes them through `.data`, or as the statistics of a batch norm. `outputs`: rules, see `aot.epilogue`.
    `constants`: by target.

    `node.meta["val"]` is a FakeTensor, or a tuple/list of them; its strides are those of eager.
    `node.meta["user_line"]` is the user's (file, line) where known.
    `sizes` is there when some sizes are symbolic: torch.SymInts in arguments, rules and fakes, see `aot.sizes`.
    `writes`: what version counters rise by beyond that, since eager writes more than once, or to memory that is fresh here: by
    ("input", i), ("output", k), or ("apart", k) for an output that has a counter of its own although it shares memory.
    `plain`: ("node", n) outputs that are no views to autograd, whatever n is.
    `casts`: of inputs, which are the last inputs, as autocast's cache has them.
    `consumed`: inputs that nobody reads after this graph, so that their memory may go early.
    `original` is the torch-level graph. A graph with mutations holds for inputs that share no memory with a
    mutated one (see `overlaps`); for others the original must run.
    """

    graph: torch.fx.Graph
    constants: dict[str, torch.Tensor]
    mutations: list[tuple[int, torch.fx.Node]]
    outputs: list[tuple[Any, ...]]
    original: Callable[..., Any]
    consumed: tuple[int, ...] = ()
    sizes: GraphSizes | None = None
    quiet: frozenset[int] = frozenset()
    plain: frozenset[int] = frozenset()
    writes: Writes = dataclasses.field(default_factory=dict)
    casts: tuple[tuple[int, torch.dtype], ...] = ()

    @functools.cached_property
    def placeholders(self) -> list[torch.fx.Node]:
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    @functools.cached_property
    def _runner(self) -> Runner:
        mutated = [index for index, _ in self.mutations]
        return Runner(self.compute, mutated, self.outputs, self.overlaps, self.original, self.sizes, self.quiet, self.plain, self.writes)

    @functools.cached_property
    def compute(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """`(*inputs) -> values of the graph's output node`, op by op, without the epilogue."""
        namespace: dict[str, Any] = {"torch": torch, "math": math, **self.constants}
        source = forward_source(self.graph, self.sizes)
        exec(compile(source, "<aten graph>", "exec"), namespace)
        return namespace["forward"]

    def overlaps(self, inputs: Any) -> bool:
        """True if a mutated input shares memory with another input, which this graph was not traced for."""
        if not self.mutations:
            return False
        return bool(_exec.shares_memory(inputs, [index for index, _ in self.mutations]))

    def run(self, *inputs: Any) -> tuple[Any, ...]:
        """Runs the graph op by op, write-backs and aliases included: the reference for every backend."""
        return self._runner(*inputs)

    def __str__(self) -> str:
        return graph_text(self)
