"""The symbolic sizes that a kernel's text mentions, in order of appearance."""

from __future__ import annotations

from collections.abc import Iterator

from dyncomp.codegen.ir.index import Index, Size, as_index, atoms, variables
from dyncomp.codegen.ir.nodes import (
    Checked,
    Kernel,
    Load,
    Loop,
    Position,
    Stmt,
    Store,
    Value,
    stmt_values,
    value_children,
)


def sizes_of(kernel: Kernel) -> tuple[Size, ...]:
    found: dict[Size, None] = {}
    for index in _indices(kernel):
        _collect(index, found)
    return tuple(found)


def _collect(index: Index, found: dict[Size, None]) -> None:
    for atom in atoms(index):
        if isinstance(atom, Size):
            found.setdefault(atom)
    for var in sorted(variables(index), key=lambda v: v.name):
        _collect(var.extent, found)


def _indices(kernel: Kernel) -> Iterator[Index]:
    for var in kernel.axes:
        yield var.extent
    for scratch in kernel.scratch:
        yield as_index(scratch.extent)
    seen: set[int] = set()
    yield from _of_statements(kernel.body, seen)


def _of_statements(body: tuple[Stmt, ...], seen: set[int]) -> Iterator[Index]:
    for stmt in body:
        if isinstance(stmt, Loop):
            yield stmt.var.extent
            yield from _of_statements(stmt.body, seen)
            continue
        if isinstance(stmt, Store):
            yield stmt.index
        for value in stmt_values(stmt):
            yield from _of_value(value, seen)


def _of_value(root: Value, seen: set[int]) -> Iterator[Index]:
    stack = [root]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (Position, Load)):
            yield value.index
        if isinstance(value, Load):
            yield from (stride for _, stride in value.dynamic)
        elif isinstance(value, Checked):
            yield value.extent
        stack.extend(reversed(value_children(value)))
