"""Reference execution of an ATen graph: computation op by op, then write-backs, then aliases."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.autograd.graph import increment_version

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
        writes: dict[tuple[str, int], int] | None = None,
    ):
        self.compute, self.mutated, self.rules = compute, mutated, rules
        self.overlaps, self.original, self.sizes, self.quiet = overlaps, original, sizes, quiet
        self.plain, self.writes = plain, writes or {}
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
        results = finish(rules, inputs, values, {index for kind, index in self.writes if kind == "apart"})
        if self.plain:
            apart = {id(results[i]): results[i].detach() for i in self.plain}
            results = tuple([apart.get(id(one), one) for one in results])  # one object stays one
        self._count_writes(inputs, results)
        return results

    def _count_writes(self, inputs: Any, results: tuple[Any, ...]) -> None:
        """Version counters as eager leaves them; some operations write to their own results."""
        for (kind, index), times in self.writes.items():
            if kind != "output":
                increment_version([inputs[index] if kind == "input" else results[index]] * times)
        for position, rule in enumerate(self.rules):
            if rule[0] == "node" and isinstance(one := results[position], torch.Tensor) and not one.is_inference():
                if one._version != (times := self.writes.get(("output", position), 0)):
                    torch._C._autograd._unsafe_set_version_counter((one,), (times,))


def finish(rules: list[tuple[Any, ...]], inputs: Any, values: Any, apart: Collection[int] = ()) -> tuple[Any, ...]:
    """The user's outputs from the inputs and the computed values, by the output rules. `apart`: positions of aliases that have a
    version counter of their own.
    """
    results: list[Any] = [None] * len(rules)
    fresh = iter(values)
    for position in sorted(range(len(rules)), key=lambda position: rules[position][0] != "node"):
        rule = rules[position]
        kind = rule[0]
        if kind == "node":
            results[position] = next(fresh)
        elif kind == "input":
            results[position] = inputs[rule[1]]
        elif kind == "output":
            results[position] = results[rule[1]]
        elif kind in ("view", "detached"):
            (base_kind, index), sizes, strides, offset = rule[1:]
            base = results[index] if base_kind == "output" else inputs[index]
            if kind == "detached" or base_kind == "detached input":
                base = base.data if position in apart else base.detach()
            alias = base.as_strided(sizes, strides, base.storage_offset() + offset)
            results[position] = alias.detach() if kind == "detached" else alias
        else:
            results[position] = rule[1]
    return tuple(results)
