"""Truths about integers in one form: `e == 0`, `e > 0`, and their combinations.

    less(4*s0, 6)         ->  IsPositive(2 - s0)         4*s0 < 6 as integers
    equal(s0*s1, 2*s0)    ->  IsZero(s1 - 2)             s0 is positive
    equal(2*s0, 3)        ->  false
"""

from __future__ import annotations

import math

import sympy

from dyncomp.shape.functions import FALSE, ONE, TRUE, ZERO, Expr, IsPositive, IsZero


def equal(a: Expr, b: Expr) -> Expr:
    return is_zero(a - b)


def less(a: Expr, b: Expr) -> Expr:
    return is_positive(b - a)


def less_equal(a: Expr, b: Expr) -> Expr:
    return is_positive(b - a + ONE)


def is_zero(e: Expr) -> Expr:
    """`e` is an expanded polynomial."""
    e = _without_common_factors(e)
    if e.is_Integer:
        return TRUE if e == ZERO else FALSE
    constant, divisor = _content(e)
    if constant % divisor:
        return FALSE
    if divisor != 1:
        e = sympy.Add(*[term / divisor for term in sympy.Add.make_args(e)])
    return IsZero(-e if e.could_extract_minus_sign() else e)


def is_positive(e: Expr) -> Expr:
    """`e` is an expanded polynomial."""
    e = _without_common_factors(e)
    if e.is_Integer:
        return TRUE if e > ZERO else FALSE
    constant, divisor = _content(e)
    if divisor != 1:
        # divisor * f + constant > 0  <=>  f > -constant / divisor  <=>  f + ceil(constant / divisor) > 0
        rest = [term / divisor for term in sympy.Add.make_args(e) if not term.is_Integer]
        e = sympy.Add(*rest, sympy.Integer(-(-constant // divisor)))
    return IsPositive(e)


def negate(truth: Expr) -> Expr:
    return is_positive(ONE - truth.args[0]) if isinstance(truth, IsPositive) else sympy.Not(truth)


def _content(e: Expr) -> tuple[int, int]:
    """The constant term, and the greatest divisor of all other coefficients."""
    constant, divisor = 0, 0
    for term in sympy.Add.make_args(e):
        if term.is_Integer:
            constant = int(term)
        else:
            divisor = math.gcd(divisor, int(term.as_coeff_Mul()[0]))
    return constant, divisor


def _without_common_factors(e: Expr) -> Expr:
    """Divides by factors of all terms that are known to be positive."""
    common: dict[Expr, Expr] | None = None
    terms = sympy.Add.make_args(e)
    for term in terms:
        own = dict(f.as_base_exp() for f in term.as_coeff_mul()[1] if f.is_positive)
        common = own if common is None else {k: min(n, own[k]) for k, n in common.items() if k in own}
        if not common:
            return e
    factor = sympy.Mul(*[k**n for k, n in (common or {}).items()])
    return sympy.Add(*[term / factor for term in terms])
