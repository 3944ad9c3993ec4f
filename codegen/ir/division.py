"""Divisions, remainders and minima, simplified as they are made, and what takes divisions apart put together again.

    (8*i + j) // 8,  0 <= j < 8     ->   i            8*(x//8) + x%8   ->   x
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from dyncomp.codegen.ir import proofs, ranges
from dyncomp.codegen.ir.polynomial import (
    ZERO,
    Atom,
    FloorDiv,
    Index,
    IndexLike,
    Min,
    Mod,
    Product,
    as_index,
    const,
    product,
)


def _within(index: Index, den: Index) -> bool:
    span = ranges.bounds(index)
    if span is not None and den.is_const:
        return 0 <= span[0] and span[1] < den.const
    return proofs.nonnegative(index) and proofs.nonnegative(den - 1 - index)


def floordiv(num: Index, den: Index) -> Index:
    """`num // den`: terms that den divides leave the division, the rest vanishes where it stays below den."""
    if not den.is_const:
        return _floordiv_symbolic(num, den)
    d = den.const
    if d == 1:
        return num
    if num.is_const:
        return const(num.const // d)
    out = Index(tuple((a, c // d) for a, c in num.terms if c % d == 0), num.const // d)
    rest = Index(tuple((a, c) for a, c in num.terms if c % d), num.const % d)
    if rest == ZERO or _within(rest, den):
        return out
    common = math.gcd(d, *(c for _, c in rest.terms))
    if common > 1:  # the remainder of the constant never carries over
        rest = Index(tuple((a, c // common) for a, c in rest.terms), rest.const // common)
        return out + floordiv(rest, const(d // common))
    if len(rest.terms) == 1 and rest.const == 0 and rest.terms[0][1] == 1:
        inner = rest.terms[0][0]
        if isinstance(inner, FloorDiv) and inner.den.is_const:
            return out + floordiv(inner.num, inner.den * den)
    return out + as_index(FloorDiv(rest, den))


def _floordiv_symbolic(num: Index, den: Index) -> Index:
    out, rest = proofs.divided(num, den)
    if rest == ZERO or _within(rest, den):
        return out
    if len(rest.terms) == 1 and rest.const == 0 and rest.terms[0][1] == 1:
        inner = rest.terms[0][0]
        if isinstance(inner, FloorDiv):
            return out + floordiv(inner.num, inner.den * den)
    return out + as_index(FloorDiv(rest, den))


def mod(num: Index, den: Index) -> Index:
    """`num % den`: multiples of den leave, the rest stands alone where it stays below den."""
    if not den.is_const:
        rest = proofs.divided(num, den)[1]
        return rest if rest == ZERO or _within(rest, den) else as_index(Mod(rest, den))
    d = den.const
    if d == 1:
        return ZERO
    rest = Index(tuple((a, c % d) for a, c in num.terms if c % d), num.const % d)
    if rest.is_const or _within(rest, den):
        return rest
    common = math.gcd(d, *(c for _, c in rest.terms))
    if common > 1:
        scaled = Index(tuple((a, c // common) for a, c in rest.terms), rest.const // common)
        return mod(scaled, const(d // common)) * common + rest.const % common
    if len(rest.terms) == 1 and rest.const == 0 and rest.terms[0][1] == 1:
        inner = rest.terms[0][0]
        if isinstance(inner, Mod) and inner.den.is_const and inner.den.const % d == 0:
            return mod(inner.num, den)
    return as_index(Mod(rest, den))


def minimum(a: IndexLike, b: IndexLike) -> Index:
    a, b = as_index(a), as_index(b)
    if a == b:
        return a
    if proofs.nonnegative(b - a):
        return a
    if proofs.nonnegative(a - b):
        return b
    return as_index(Min(a, b))


# ---- sums that a division took apart


def join_parts(collected: dict[Atom, int]) -> Index | None:
    """Takes one pair of terms out of a sum and gives what they make together:

    c*d*(x//d) + c*(x%d)        ->  c*x
    c*d*((x//d)%e) + c*(x%d)    ->  c*(x%(d*e))
    """
    for low in [a for a in collected if isinstance(a, Mod) and a.den.is_const and collected[a]]:
        coef, den = collected[low], low.den.const
        whole = FloorDiv(low.num, low.den)
        if collected.get(whole) == coef * den:
            del collected[low], collected[whole]
            return low.num * coef
        for high in [a for a in collected if isinstance(a, Mod) and a.den.is_const and collected[a] == coef * den]:
            if high.num == floordiv(low.num, low.den):
                del collected[low], collected[high]
                return mod(low.num, Index((), den * high.den.const)) * coef
    return None


def join_symbolic(collected: dict[Atom, int]) -> Index | None:
    """The same with symbolic divisors, whose terms are products."""
    for term, coef in list(collected.items()):
        parts = term.atoms if isinstance(term, Product) else (term,)
        for low in [a for a in parts if isinstance(a, Mod) and not a.den.is_const]:
            rest = list(parts)
            rest.remove(low)
            factor = product(rest) * coef
            for upper, joined in _partners(low, collected):
                pair = [(term, coef), *(factor * low.den * upper).terms]
                if all(collected.get(a) == c for a, c in pair):
                    for atom, _ in pair:
                        del collected[atom]
                    return factor * joined
    return None


def _partners(low: Mod, collected: Mapping[Atom, int]) -> Iterator[tuple[Index, Index]]:
    """What `low.den` times, plus `low`, is something simpler; and what it is."""
    yield as_index(FloorDiv(low.num, low.den)), low.num
    above = floordiv(low.num, low.den)
    for term in collected:
        for high in term.atoms if isinstance(term, Product) else (term,):
            if isinstance(high, Mod) and high.num == above:
                yield as_index(high), mod(low.num, low.den * high.den)
