"""Walks through an index: its atoms, replacing some of them, its value.

    substitute(4*i + j, {i: 2*k})   ->   8*k + j         evaluate(4*i + j, {"i": 1, "j": 2})   ->   6
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dyncomp.codegen.ir import division
from dyncomp.codegen.ir.polynomial import (
    ONE,
    ZERO,
    Atom,
    FloorDiv,
    Index,
    IndexLike,
    Min,
    Mod,
    Product,
    Size,
    Var,
    as_index,
    const,
    product,
)


def atoms(index: Index) -> Iterator[Atom]:
    """All atoms, those inside divisions too."""
    for atom, _ in index.terms:
        yield from _with_parts(atom)


def _with_parts(atom: Atom) -> Iterator[Atom]:
    yield atom
    if isinstance(atom, (FloorDiv, Mod)):
        yield from atoms(atom.num)
        yield from atoms(atom.den)
    elif isinstance(atom, Min):
        yield from atoms(atom.a)
        yield from atoms(atom.b)
    elif isinstance(atom, Product):
        for part in atom.atoms:
            yield from _with_parts(part)


def variables(index: Index) -> set[Var]:
    return {a for a in atoms(index) if isinstance(a, Var)}


def substitute(index: Index, mapping: Mapping[Any, Index]) -> Index:
    """Replaces variables and sizes, simplifying again."""
    out = const(index.const)
    for atom, coef in index.terms:
        out = out + _substitute_atom(atom, mapping) * coef
    return out


def _substitute_atom(atom: Atom, mapping: Mapping[Any, Index]) -> Index:
    if isinstance(atom, (Var, Size)):
        found = mapping.get(atom)
        return as_index(atom) if found is None else found
    if isinstance(atom, FloorDiv):
        return division.floordiv(substitute(atom.num, mapping), substitute(atom.den, mapping))
    if isinstance(atom, Mod):
        return division.mod(substitute(atom.num, mapping), substitute(atom.den, mapping))
    if isinstance(atom, Min):
        return division.minimum(substitute(atom.a, mapping), substitute(atom.b, mapping))
    if isinstance(atom, Product):
        out = ONE
        for part in atom.atoms:
            out = out * _substitute_atom(part, mapping)
        return out
    return as_index(atom)


def evaluate(index: IndexLike, values: Mapping[str, int]) -> int:
    """The value under an assignment of names (works on anything with integer arithmetic, numpy arrays
    too)."""
    index = as_index(index)
    total = index.const
    for atom, coef in index.terms:
        total = total + _evaluate_atom(atom, values) * coef
    return total


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, (Var, Size)):
        return values[atom.name]
    if isinstance(atom, FloorDiv):
        return evaluate(atom.num, values) // evaluate(atom.den, values)
    if isinstance(atom, Mod):
        return evaluate(atom.num, values) % evaluate(atom.den, values)
    if isinstance(atom, Min):
        return min(evaluate(atom.a, values), evaluate(atom.b, values))
    if isinstance(atom, Product):
        return math.prod(_evaluate_atom(part, values) for part in atom.atoms)
    raise TypeError(f"not an atom: {atom!r}")


def hint(index: IndexLike) -> int:
    """The value for the sizes that the graph was traced with; 0 where it has none (a division by an empty size)."""
    index = as_index(index)
    if not index.terms:
        return index.const
    try:
        return evaluate(index, {a.name: a.hint for a in atoms(index) if isinstance(a, Size)})
    except ZeroDivisionError:
        return 0


def sizes_in(index: IndexLike) -> set[Size]:
    """The sizes in an index; those in the extents of its variables are not looked for."""
    return {a for a in atoms(as_index(index)) if isinstance(a, Size)}


def coefficient_of(index: Index, var: Var) -> Index | None:
    """What a variable is multiplied with, other terms apart; None where it stands inside a division, a minimum, or in
    a power."""
    out = ZERO
    for atom, coef in index.terms:
        if atom == var:
            out = out + coef
        elif isinstance(atom, Product) and var in atom.atoms:
            rest = list(atom.atoms)
            rest.remove(var)
            if var in rest or any(var in variables(as_index(a)) for a in rest):
                return None
            out = out + product(rest) * coef
        elif not isinstance(atom, (Var, Size)) and var in variables(as_index(atom)):
            return None
    return out


def runs_by_one(index: Index, var: Var) -> bool:
    """Whether the index grows by 1 with a variable except at jumps of one size: `(i + 3) % 8`, `i + 4 * (i // 8)`.

    Then from `i` to `i + n` it grows by n exactly if no jump (or one of size 0) lies between: k jumps add k times the same.
    """
    divided: set[tuple[Index, Index]] = set()
    step = 0
    for atom, coef in index.terms:
        if var not in variables(as_index(atom)):
            continue
        if not isinstance(atom, (Var, FloorDiv, Mod)):
            return False
        if not isinstance(atom, Var):
            divided.add((atom.num, atom.den))
        if not isinstance(atom, FloorDiv):
            step += coef
    if step != 1 or len(divided) != 1:
        return False
    ((num, den),) = divided
    return coefficient_of(num, var) == 1 and var not in variables(den)
