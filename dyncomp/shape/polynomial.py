"""Bounds of polynomials over atoms whose ranges are known.

    s0*s1 - s0 - s1 + 3,  s0, s1 in [2, inf)     ->   lower bound 3

Plain interval arithmetic loses what the terms have in common (`s0*s1 - s0` would be unbounded), so every atom is
written as its lower bound plus a non-negative rest, and the products are multiplied out: here
s0 = 2 + a, s1 = 2 + b gives a*b + a + b + 3, which no rest can bring below 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy

from dyncomp.shape.functions import Expr

Number = Any  # int, or an infinite float
Range = tuple[Number, Number]
Monomial = tuple[tuple[Expr, int], ...]  # (atom, power), sorted as sympy sorts the factors
_MOST_TERMS = 256


def terms_of(e: Expr) -> dict[Monomial, int]:
    """The polynomial as {monomial: coefficient}; the constant is under ()."""
    terms: dict[Monomial, int] = {}
    for term in sympy.Add.make_args(e):
        coefficient, factors = term.as_coeff_mul()
        monomial = tuple([(base, int(power)) for base, power in (f.as_base_exp() for f in factors)])
        terms[monomial] = terms.get(monomial, 0) + int(coefficient)
    return terms


def lower_bound(e: Expr, range_of: Callable[[Expr], Range]) -> Number:
    """The greatest number found that `e` cannot be below; `range_of` gives the range of an atom."""
    terms = terms_of(e)
    constant = terms.pop((), 0)
    if not terms:
        return constant
    ranges = {atom: range_of(atom) for monomial in terms for atom, _ in monomial}
    rests, unshifted = _shifted(terms, ranges)
    constant += rests.pop((), 0)
    low: Number = constant
    for monomial, coefficient in rests.items():
        if coefficient < 0:
            low = _plus(low, _times(coefficient, _most(monomial, ranges)))
    for monomial, coefficient in unshifted:
        low = _plus(low, min(_times(coefficient, bound) for bound in _interval(monomial, ranges)))
    return low


def _shifted(
    terms: dict[Monomial, int], ranges: dict[Expr, Range]
) -> tuple[dict[Monomial, int], list[tuple[Monomial, int]]]:
    """The polynomial in the rests above the lower bounds; terms with an atom that has none stay apart."""
    result: dict[Monomial, int] = {}
    apart: list[tuple[Monomial, int]] = []
    for monomial, coefficient in terms.items():
        parts = None
        if all(ranges[atom][0] != -math.inf for atom, _ in monomial):
            parts = _expand(monomial, ranges)
        if parts is None:
            apart.append((monomial, coefficient))
            continue
        for part, factor in parts.items():
            result[part] = result.get(part, 0) + coefficient * factor
    return result, apart


def _expand(monomial: Monomial, ranges: dict[Expr, Range]) -> dict[Monomial, int] | None:
    parts: dict[Monomial, int] = {(): 1}
    for atom, power in monomial:
        low = ranges[atom][0]
        grown: dict[Monomial, int] = {}
        for part, factor in parts.items():
            for kept in range(power + 1):
                new = (*part, (atom, kept)) if kept else part
                times = math.comb(power, kept) * low ** (power - kept)
                if times:
                    grown[new] = grown.get(new, 0) + factor * times
        if len(grown) > _MOST_TERMS:
            return None
        parts = grown
    return parts


def _most(monomial: Monomial, ranges: dict[Expr, Range]) -> Number:
    """The greatest value of a product of rests, each of which is at least 0."""
    most: Number = 1
    for atom, power in monomial:
        low, high = ranges[atom]
        most = _times(most, math.inf if high == math.inf else (high - low) ** power)
    return most


def _interval(monomial: Monomial, ranges: dict[Expr, Range]) -> Range:
    low: Number = 1
    high: Number = 1
    for atom, power in monomial:
        first, last = ranges[atom]
        for _ in range(power):
            corners = [_times(a, b) for a in (low, high) for b in (first, last)]
            low, high = min(corners), max(corners)
        if power % 2 == 0 and first <= 0 <= last and len(monomial) == 1:
            low = max(low, 0)
    return low, high


# Exact ints are of any size, so they must not meet an infinity in float arithmetic.
def _times(a: Number, b: Number) -> Number:
    if a == 0 or b == 0:
        return 0
    if math.inf in (abs(a), abs(b)):
        return math.inf if (a > 0) == (b > 0) else -math.inf
    return a * b


def _plus(low: Number, more: Number) -> Number:
    """The sum of two lower bounds: one that is missing leaves none."""
    return -math.inf if -math.inf in (low, more) else low + more
