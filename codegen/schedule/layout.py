"""Chooses the loops of a kernel: splits, orders and merges variables so that lanes run along contiguous
memory.

    x[i, j] over strides (64, 1), shape (8, 64)         ->  one variable of extent 512
    y.t() + x, rows i, columns j                         ->  blocks of both; vector = j, tile = i
    sum over rows i of x[i, j]                           ->  vector = j (kept), i inside

Steps, each a function: `split_variables` (j//64, j%64 become variables), `ordered` (by the strides of the
accesses that move most), `merged`, then `choose_lanes`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from dyncomp.codegen.ir.index import (
    FloorDiv,
    Index,
    Mod,
    Var,
    as_index,
    atoms,
    coefficient_of,
    hint,
    substitute,
    variables,
)
from dyncomp.codegen.ir.nodes import Accumulate, Load, Position, Store
from dyncomp.codegen.ir.proofs import nonnegative, quotient
from dyncomp.codegen.schedule.loops import Program
from dyncomp.codegen.schedule.rewrite import walk

Mapping = dict[Var, Index]


@dataclasses.dataclass
class Access:
    """An index into a buffer, with the bytes it moves over the whole kernel as weight. `weight` 0: a
    position or a guard's bound."""

    index: Index
    weight: int
    store: bool


@dataclasses.dataclass
class Space:
    """Variables from the outermost to the innermost, and how the program's variables are written in them."""

    kept: list[Var]
    reduced: list[Var]
    mapping: Mapping
    accesses: list[Access]


def accesses_of(program: Program) -> list[Access]:
    found: dict[tuple[str, Index], Access] = {}
    roots = []
    for stage in program.stages:
        for stmt in (*stage.inner, *stage.outer):
            roots.append(stmt.value)
            if isinstance(stmt, Store):
                _note(found, stmt.buffer.name, stmt.index, True)
            elif isinstance(stmt, Accumulate) and stmt.position is not None:
                roots.append(stmt.position)
    for value in walk(roots):
        if isinstance(value, Load):
            _note(found, value.buffer.name, value.index, False)
        elif isinstance(value, Position):
            found.setdefault(("", value.index), Access(value.index, 0, False))
    return list(found.values())


def _note(found: dict[tuple[str, Index], Access], name: str, index: Index, store: bool) -> None:
    weight = 1
    for v in variables(index):
        weight *= hint(v.extent)
    found.setdefault((name, index), Access(index, weight, store))


def lay_out(kept: Iterable[Var], reduced: Iterable[Var], accesses: list[Access]) -> Space:
    space = Space(list(kept), list(reduced), {}, accesses)
    split_variables(space)
    space.kept = ordered(space.kept, space.accesses, bool(space.reduced))
    space.reduced = ordered(space.reduced, space.accesses, True)
    space.kept = merged(space, space.kept, "k")
    space.reduced = merged(space, space.reduced, "r")
    return space


def _apply(space: Space, change: Mapping) -> None:
    space.mapping = {v: substitute(i, change) for v, i in space.mapping.items()} | {
        v: i for v, i in change.items() if v not in space.mapping
    }
    space.accesses = [Access(substitute(a.index, change), a.weight, a.store) for a in space.accesses]


def split_variables(space: Space) -> None:
    """Replaces v by q*d + r where an index holds v//d or v%d, as often as needed."""
    for _ in range(8):
        split = _next_split(space)
        if split is None:
            return
        var, factor = split
        outer = Var(f"{var.name}q", var.extent // factor)
        inner = Var(f"{var.name}r", factor)
        for group in (space.kept, space.reduced):
            if var in group:
                at = group.index(var)
                group[at : at + 1] = [outer, inner]
        _apply(space, {var: outer * factor + inner})


def _next_split(space: Space) -> tuple[Var, Index] | None:
    for access in space.accesses:
        for atom in atoms(access.index):
            if isinstance(atom, (FloorDiv, Mod)):
                for term in sorted(variables(atom.num), key=lambda v: v.name):
                    coef = coefficient_of(atom.num, term)
                    factor = quotient(atom.den, coef) if coef else None
                    if factor is not None and _is_part(term.extent, as_index(factor)):
                        return term, as_index(factor)
    return None


def _is_part(extent: Index, factor: Index) -> bool:
    """factor lies between 1 and the extent, and divides it."""
    times = quotient(extent, factor)
    return times is not None and all(nonnegative(as_index(n) - 2) for n in (times, factor))


def ordered(vars_: list[Var], accesses: list[Access], prefer_loads: bool) -> list[Var]:
    """Outermost first: by the stride in the access that moves most; variables that it does not know keep
    their place."""
    if len(vars_) < 2:
        return vars_
    ranked = sorted((a for a in accesses if a.weight), key=lambda a: (a.weight, a.store != prefer_loads), reverse=True)
    best = ranked[0] if ranked else None
    if best is None:
        return vars_
    strides = {v: _stride(best.index, v) for v in vars_}
    known = sorted((v for v in vars_ if strides[v]), key=lambda v: strides[v], reverse=True)
    filled = iter(known)
    return [next(filled) if strides[v] else v for v in vars_]


def _stride(index: Index, var: Var) -> int:
    """Elements from one value of the variable to the next, as far as is known; 0 where it is not."""
    factor = coefficient_of(index, var)
    return 0 if factor is None else abs(hint(factor))


def merged(space: Space, vars_: list[Var], prefix: str) -> list[Var]:
    """Joins neighbours that every access walks through as one."""
    out: list[Var] = []
    for var in vars_:
        if out and _joins(space.accesses, out[-1], var):
            outer = out.pop()
            whole = Var(f"{outer.name}{var.name}", outer.extent * var.extent)
            _join(space, outer, var, whole)
            out.append(whole)
        else:
            out.append(var)
    renamed = [Var(f"{prefix}{n}", v.extent) for n, v in enumerate(out)]
    _apply(space, {old: as_index(new) for old, new in zip(out, renamed, strict=True)})
    return renamed


def _joins(accesses: list[Access], outer: Var, inner: Var) -> bool:
    if inner.extent == 0:  # nothing to walk through, and the joined index would be divided by 0
        return False
    for access in accesses:
        steps = coefficient_of(access.index, outer), coefficient_of(access.index, inner)
        if steps[0] is None or steps[1] is None or steps[0] != steps[1] * inner.extent:
            return False
    return True


def _join(space: Space, outer: Var, inner: Var, whole: Var) -> None:
    """Writes outer*c*E + inner*c as whole*c. Program variables keep a form with // and %, which only
    joined indices are free of."""
    size = inner.extent
    change: Mapping = {outer: whole // size, inner: whole % size}
    _apply(space, change)
