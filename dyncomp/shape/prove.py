"""Answers a relation from the facts alone, without looking at any hint.

    facts: s0 >= 2, s1 >= s0 + 1         s1 > 2  ->  True        s1 == 5  ->  None (it may be)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import sympy

from dyncomp.shape.facts import Facts
from dyncomp.shape.functions import FALSE, ONE, TRUE, Expr, FloorDiv, IsPositive, IsZero, Max, Min

_SPLITS = 3  # nested case distinctions on a maximum or minimum
_MOST_FACTS = 64
# "To the end" in a slice is written as 2**63 - 1. A number of elements that only the running program tells stays below.
_BEYOND = 2**62
_SMALL = 2**12


def prove(facts: Facts, truth: Expr) -> bool | None:
    """True, False, or None where neither follows."""
    truth = facts.simplify_truth(truth)
    if truth is TRUE or truth is FALSE:
        return bool(truth)
    known = facts.truths.get(truth)
    if known is not None:
        return known
    if truth.is_Not:
        inner = prove(facts, truth.args[0])
        return None if inner is None else not inner
    if isinstance(truth, sympy.And | sympy.Or):
        return _combined(facts, truth)
    if isinstance(truth, IsPositive):
        return _positive(facts, truth.args[0])
    if isinstance(truth, IsZero):
        return _zero(facts, truth.args[0])
    return None


def _combined(facts: Facts, truth: Expr) -> bool | None:
    deciding = isinstance(truth, sympy.Or)
    answers = [prove(facts, arg) for arg in truth.args]
    if deciding in answers:
        return deciding
    return None if None in answers else not deciding


def _positive(facts: Facts, e: Expr) -> bool | None:
    if _at_least(facts, e - ONE, _SPLITS):
        return True
    return False if _at_least(facts, -e, _SPLITS) else None


def _zero(facts: Facts, e: Expr) -> bool | None:
    if _at_least(facts, e - ONE, _SPLITS) or _at_least(facts, -e - ONE, _SPLITS):
        return False
    # The two bounds meet at 0 only where the facts pin the sum.
    return True if _at_least(facts, e, _SPLITS) and _at_least(facts, -e, _SPLITS) else None


def _at_least(facts: Facts, e: Expr, splits: int) -> bool:
    """e >= 0 follows."""
    if e.is_Integer:
        return bool(e >= 0)
    if facts.low(e) >= 0 or e.as_coeff_Add()[0] >= _BEYOND and _is_count(facts, e):
        return True
    if any(facts.low(e - known) + low >= 0 for known, low in list(facts.bounds.items())[:_MOST_FACTS]):
        return True
    if not splits:
        return False
    for atom in e.atoms(sympy.Function):
        cases, enough = _cases(e, atom)
        if cases and enough(_at_least(facts, case, splits - 1) for case in cases):
            return True
    return False


def _cases(e: Expr, atom: Expr) -> tuple[list[Expr], Callable[[Iterable[bool]], bool]]:
    """Expressions without the function `atom`, and how many of them must be at least 0 for `e` to be."""
    coefficient = e.coeff(atom)
    linear = coefficient.is_Integer and coefficient != 0 and not (e - coefficient * atom).has(atom)
    if isinstance(atom, Max | Min):
        # Max is at least each of its operands, so with a positive coefficient one of them is enough.
        one = linear and (coefficient > 0) == isinstance(atom, Max)
        return [sympy.expand(e.xreplace({atom: choice})) for choice in atom.args], any if one else all
    if isinstance(atom, FloorDiv) and linear and atom.args[1].is_Integer and atom.args[1] > 0:
        # b * (a // b) lies in a - (b - 1) .. a
        dividend, divisor = atom.args
        least = dividend - (divisor - ONE) if coefficient > 0 else dividend
        return [sympy.expand(divisor * (e - coefficient * atom) + coefficient * least)], all
    return [], all


def _is_count(facts: Facts, e: Expr) -> bool:
    """Constant apart, a few products of sizes, some known only to the running program: no guard could be asked instead."""
    late = False
    for term in sympy.Add.make_args(e.as_coeff_Add()[1]):
        coefficient, factors = term.as_coeff_mul()
        if abs(coefficient) > _SMALL or any(facts.range(factor)[0] < 0 for factor in factors):
            return False
        late = late or any(map(facts.is_late, term.free_symbols))
    return late
