"""Checks in the graph: what was taken for a fact about numbers that only running the program tells.

    n = x.item(); torch._check(n <= 8)      ->      item = x.item();  le = item <= 8;  _assert_scalar(le, "n <= 8")

Where a check fails, the frame runs again as plain Python, so that the program gets what eager gives: the same error, or a result
where the check was only an assumption of this trace.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from dyncomp.errors import GraphBreak
from dyncomp.interp.number_nodes import CHECK, NumberNodes
from dyncomp.interp.sizes import Sizes


class RuntimeChecks:
    """`made`: how many are in the graph. `assumed`: one of them fails in programs that are right. `granted`: there are also those of
    `raising_branches`."""

    def __init__(self, graph: fx.Graph, numbers: NumberNodes, sizes: Sizes):
        self._graph, self._numbers, self._sizes = graph, numbers, sizes
        self.made = 0
        self.assumed = False
        self.granted = False

    def add(self) -> None:
        """Puts what was asserted since the last time into the graph, as far as all its numbers are there by now, in order."""
        env = self._sizes.env
        if env is None:
            return
        while self.made < len(env.asserts):
            check = env.asserts[self.made]
            try:
                truth = self._numbers.truth(env, check.truth)
            except KeyError:  # of the result of an operation that is about to enter the graph
                return
            node = self._graph.call_function(CHECK, (truth, check.message))
            node.meta.update(example_value=None, user_line=check.line)
            self.made += 1
            self.assumed = self.assumed or check.assumed

    def finish(self) -> None:
        """Raises GraphBreak if something that the graph relies on could not be checked."""
        self.add()
        env: Any = self._sizes.env
        if env is not None:
            if self.made < len(env.asserts):
                raise GraphBreak("data-dependent-shape", f"a run-time check that {env.asserts[self.made].message}")
