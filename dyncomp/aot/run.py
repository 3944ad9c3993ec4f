"""Reference execution of an ATen graph: computation op by op, then write-backs, then aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dyncomp import counters
from dyncomp.aot.sizes import GraphSizes


class Runner:
    """`runner(*inputs)` gives the user's outputs as a tuple."""

    def __init__(
        self,
        compute: Callable[..., tuple[Any, ...]],
        mutated: list[int],
        rules: list[tuple[Any, ...]],
        overlaps: Callable[[Any], bool],
        original: Callable[..., Any],
        sizes: GraphSizes | None = None,
        quiet: frozenset[int] = frozenset(),
        plain: frozenset[int] = frozenset(),
    ):
        self.compute, self.mutated, self.rules = compute, mutated, rules
        self.overlaps, self.original, self.sizes, self.quiet = overlaps, original, sizes, quiet
        self.plain = plain
        self.fresh = sum(rule[0] == "node" for rule in rules)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        if self.overlaps(inputs):
            counters.add_fallback("aliased-inputs")
            results = self.original(*inputs)
            return tuple(results) if isinstance(results, (tuple, list)) else (results,)
        # The casts of autocast are operations of the graph already.
        with torch.no_grad(), torch._C._DisableAutocast():
            values = self.compute(*inputs)
            late: Any = ()
            if self.sizes is not None and self.sizes.late:
                values, late = values[:-1], values[-1]
            for index, value in zip(self.mutated, values[self.fresh :], strict=True):
                (inputs[index].data if index in self.quiet else inputs[index]).copy_(value)
        rules = self.rules
        if self.sizes is not None:
            numbers = self.sizes.values(inputs, late)
            rules = [rule if rule[0] == "node" else self.sizes.resolve(rule, numbers) for rule in rules]
        results = finish(rules, inputs, values)
        return tuple([one.detach() if i in self.plain else one for i, one in enumerate(results)]) if self.plain else results


def finish(rules: list[tuple[Any, ...]], inputs: Any, values: Any) -> tuple[Any, ...]:
    """The user's outputs from the inputs and the computed values, by the output rules."""
    results: list[Any] = []
    fresh = iter(values)
    for rule in rules:
        kind = rule[0]
        if kind == "node":
            results.append(next(fresh))
        elif kind == "input":
            results.append(inputs[rule[1]])
        elif kind == "output":
            results.append(results[rule[1]])
        elif kind in ("view", "detached"):
            (base_kind, index), sizes, strides, offset = rule[1:]
            base = results[index] if base_kind == "output" else inputs[index]
            if kind == "detached" or base_kind == "detached input":
                base = base.detach()
            alias = base.as_strided(sizes, strides, base.storage_offset() + offset)
            results.append(alias.detach() if kind == "detached" else alias)
        else:
            results.append(rule[1])
    return tuple(results)
