"""Keeps costly values of a row for later stages, instead of computing them again.

    stage 1: s += exp(x - m)                 stage 1: row[c] = exp(x - m); s += row value
    stage 2: y = exp(x - m) / s      ->      stage 2: y = row[c] / s

A value that an earlier stage also stores to memory in full precision is loaded from there. Rows longer
than `LONGEST` are not kept.
"""

from __future__ import annotations

from dyncomp.codegen.ir.index import Index, IndexLike, Var, const, hint, variables
from dyncomp.codegen.ir.nodes import (
    Accumulate,
    Buffer,
    Builder,
    Load,
    Op,
    Position,
    Scratch,
    Store,
    Value,
    stmt_values,
    value_children,
)
from dyncomp.codegen.ir.ops import OPS
from dyncomp.codegen.ir.proofs import as_number
from dyncomp.codegen.ir.types import HALVES
from dyncomp.codegen.schedule.rewrite import Rewriter, walk

LONGEST = 16384  # elements
WORTH = 12  # machine operations saved an element

Statements = list[Accumulate | Store]


def cache_rows(b: Builder, stages: list[Statements], reduced: list[Var]) -> tuple[list[Statements], list[Scratch]]:
    """`stages`: the inner statements of each stage. Returns them rewritten, and the arrays that they use."""
    length: IndexLike = 1
    for var in reduced:
        length = var.extent * length
    if len(stages) < 2 or hint(length) > LONGEST or hint(length) == 0:  # nothing would be kept
        return stages, []
    return _RowCache(b, stages, reduced, as_number(length)).run()


class _RowCache:
    def __init__(self, b: Builder, stages: list[Statements], reduced: list[Var], length: IndexLike):
        self.b, self.stages, self.reduced, self.length = b, stages, set(reduced), length
        self.row_index: Index = const(0)
        for var in reduced:
            self.row_index = self.row_index * var.extent + var
        self.varies: dict[Value, bool] = {}
        self.cost: dict[Value, int] = {}
        self.first: dict[Value, int] = {}  # stage that computes a value first
        self.kept: dict[Value, Value] = {}  # value -> what later stages load instead
        self.scratch: list[Scratch] = []

    def run(self) -> tuple[list[Statements], list[Scratch]]:
        for number, statements in enumerate(self.stages):
            for value in walk([v for s in statements for v in stmt_values(s)]):
                self._measure(value)
                self.first.setdefault(value, number)
        for number in range(1, len(self.stages)):
            for statement in self.stages[number]:
                for value in stmt_values(statement):
                    self._look_down(value, number)
        if not self.kept:
            return self.stages, []
        return [self._rewritten(n, s) for n, s in enumerate(self.stages)], self.scratch

    def _measure(self, value: Value) -> None:
        children = value_children(value)
        own = False
        if isinstance(value, (Load, Position)):
            own = bool(variables(value.index) & self.reduced)
        self.varies[value] = own or any(self.varies[c] for c in children)
        here = OPS[value.name].cost if isinstance(value, Op) else 0
        self.cost[value] = here + sum(self.cost[c] for c in children if self.varies[c]) if self.varies[value] else 0

    def _look_down(self, root: Value, number: int) -> None:
        stack = [root]
        while stack:
            value = stack.pop()
            if value in self.kept or not self.varies[value]:
                continue
            if self.first[value] < number and self.cost[value] >= WORTH:
                self.kept[value] = self._keep(value)
            else:
                stack.extend(value_children(value))

    def _keep(self, value: Value) -> Value:
        stored = self._stored(value)
        if stored is not None:
            return self.b.load(stored.buffer, stored.index)
        buffer = Scratch(f"row{len(self.scratch)}", value.dtype, self.length)
        self.scratch.append(buffer)
        self.stages[self.first[value]].append(Store(buffer, self.row_index, value))
        return self.b.load(buffer, self.row_index)

    def _stored(self, value: Value) -> Store | None:
        for statement in self.stages[self.first[value]]:
            if isinstance(statement, Store) and statement.value is value and _exact(statement.buffer, value):
                return statement
        return None

    def _rewritten(self, number: int, statements: Statements) -> Statements:
        given = {v: load for v, load in self.kept.items() if self.first[v] < number}
        if not given:
            return statements
        rewriter = Rewriter(self.b, lambda index: index, given)
        out: Statements = []
        for s in statements:
            value = rewriter.value(s.value)
            if isinstance(s, Store):
                out.append(Store(s.buffer, s.index, value, s.guard, s.note))
            else:
                out.append(Accumulate(s.acc, value, s.position, s.note))
        return out


def _exact(buffer: Buffer, value: Value) -> bool:
    return buffer.dtype not in HALVES and buffer.dtype == value.dtype and not isinstance(buffer, Scratch)
