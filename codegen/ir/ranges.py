"""The numbers an index can be, by the ranges of its variables alone.

    3*i + 1,  0 <= i < 4      ->   (1, 10)           3*i + n   ->   None: a symbolic size leaves it open
"""

from __future__ import annotations

from dyncomp.codegen.ir.polynomial import Atom, FloorDiv, IndexLike, Min, Mod, Var, as_index


def bounds(index: IndexLike) -> tuple[int, int] | None:
    """Smallest and largest value that the ranges of the variables allow; None when a symbolic size leaves
    it open."""
    index = as_index(index)
    low = high = index.const
    for atom, coef in index.terms:
        span = _atom_bounds(atom)
        if span is None:
            return None
        low += coef * (span[0] if coef > 0 else span[1])
        high += coef * (span[1] if coef > 0 else span[0])
    return low, high


def _atom_bounds(atom: Atom) -> tuple[int, int] | None:
    if isinstance(atom, Var):
        extent = bounds(atom.extent)
        return (0, max(extent[1] - 1, 0)) if extent else None
    if isinstance(atom, Mod):
        den = bounds(atom.den)
        num = bounds(atom.num)
        if den is None:
            return None
        return (0, min(den[1] - 1, num[1])) if num and num[0] >= 0 else (0, den[1] - 1)
    if isinstance(atom, FloorDiv):
        num, den = bounds(atom.num), bounds(atom.den)
        if num is None or den is None or den[0] != den[1] or den[0] <= 0:
            return None
        return num[0] // den[0], num[1] // den[0]
    if isinstance(atom, Min):
        a, b = bounds(atom.a), bounds(atom.b)
        return (min(a[0], b[0]), min(a[1], b[1])) if a and b else None
    return None
