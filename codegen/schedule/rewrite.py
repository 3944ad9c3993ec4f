"""Rebuilding value DAGs: replace variables and values, collect what a value is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dyncomp.codegen.ir.index import Index
from dyncomp.codegen.ir.nodes import (
    Acc,
    Builder,
    Cast,
    Checked,
    Const,
    Load,
    Op,
    Position,
    Result,
    Value,
    value_children,
)

Indexer = Callable[[Index], Index]


def walk(roots: list[Value]) -> Iterator[Value]:
    """Every value once, children before parents."""
    seen: set[int] = set()
    stack: list[tuple[Value, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        value, done = stack.pop()
        if done:
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((c, False) for c in value_children(value) if id(c) not in seen)


def results_in(value: Value) -> set[Acc]:
    return {v.acc for v in walk([value]) if isinstance(v, Result)}


class Rewriter:
    """Rebuilds values with `index` applied to every index, and `given` values put in place of others."""

    def __init__(
        self,
        builder: Builder,
        index: Indexer,
        given: Mapping[Value, Value] | None = None,
        buffer: Callable[[Any], Any] = lambda buffer: buffer,
    ):
        self.b = builder
        self.buffer = buffer
        self.index = index
        self.done: dict[Value, Value] = dict(given or {})
        self._indices: dict[Index, Index] = {}

    def index_of(self, index: Index) -> Index:
        found = self._indices.get(index)
        if found is None:
            found = self._indices[index] = self.index(index)
        return found

    def value(self, root: Value) -> Value:
        stack = [root]
        while stack:
            value = stack[-1]
            if value in self.done:
                stack.pop()
                continue
            missing = [c for c in value_children(value) if c not in self.done]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self.done[value] = self._rebuild(value)
        return self.done[root]

    def _rebuild(self, value: Value) -> Value:
        b = self.b
        if isinstance(value, Const):
            return b.const(value.value, value.dtype)
        if isinstance(value, Position):
            return b.position(self.index_of(value.index))
        if isinstance(value, Load):
            dynamic = tuple((self.done[v], self.index_of(stride)) for v, stride in value.dynamic)
            guard = None if value.guard is None else self.done[value.guard]
            return b.load(self.buffer(value.buffer), self.index_of(value.index), dynamic, guard)
        if isinstance(value, Op):
            return b.op(value.name, *(self.done[a] for a in value.args))
        if isinstance(value, Cast):
            return b.cast(self.done[value.value], value.dtype)
        if isinstance(value, Checked):
            return b.checked(self.done[value.value], self.index_of(value.extent), value.flag)
        return b.result(value.acc, value.part)
