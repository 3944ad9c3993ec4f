"""The sympy functions that size expressions are made of, beside `+`, `*` and whole powers.

    FloorDiv(4*s0 + 2, 4)   ->   s0                Mod(4*s0 + s1, 4)   ->   Mod(s1, 4)

Integers are polynomials in expanded form over symbols and these functions, so that equal polynomials are equal
expressions. Floats are never rearranged: each operation on them is a function that nobody simplifies, and
constants are held by their bits. `op` names the row of `ops.OPS` that computes a function.
"""

from __future__ import annotations

import math
from typing import Any

import sympy
from sympy.logic.boolalg import BooleanFunction

from dyncomp.shape.int_program import bits_of_float, float_of_bits
from dyncomp.shape.ops import OTHER_MATH

Expr = Any  # sympy ships no types

ZERO, ONE = sympy.Integer(0), sympy.Integer(1)
TRUE, FALSE = sympy.true, sympy.false


class IntFunction(sympy.Function):  # type: ignore[misc]
    is_integer = True
    op = ""


class FloatFunction(sympy.Function):  # type: ignore[misc]
    is_commutative = True
    op = ""


class BoolFunction(BooleanFunction):  # type: ignore[misc]
    op = ""


# ---- integers


def _divide(a: Expr, b: Expr) -> Expr | None:
    """a / b if that is a polynomial of whole coefficients."""
    if b.is_Add:
        return ONE if a == b else -ONE if a == -b else None
    parts = []
    for term in sympy.Add.make_args(a):
        quotient = term / b
        if not _is_whole(quotient):
            return None
        parts.append(quotient)
    return sympy.Add(*parts)


def _is_whole(term: Expr) -> bool:
    """Syntactically free of fractions; sympy's `is_integer` cannot tell `s0/2` from a whole number."""
    coefficient, factors = term.as_coeff_mul()
    if not coefficient.is_Integer:
        return False
    return all(not f.is_Pow or f.exp.is_Integer and f.exp > 0 for f in factors)


def _split(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a = b * whole + rest, term by term: (whole, rest)."""
    whole, rest = [], []
    for term in sympy.Add.make_args(a):
        quotient = _divide(term, b)
        if quotient is not None:
            whole.append(quotient)
        elif term.is_Integer and b.is_Integer:
            whole.append(sympy.Integer(int(term) // int(b)))
            rest.append(sympy.Integer(int(term) % int(b)))
        else:
            rest.append(term)
    return sympy.Add(*whole), sympy.Add(*rest)


def _common_factor(a: Expr, b: Expr) -> Expr:
    """A product that divides both and is positive: their coefficients' divisor times common positive factors."""
    divisor = 0
    powers: dict[Expr, Expr] | None = None
    for term in (*sympy.Add.make_args(a), *sympy.Add.make_args(b)):
        coefficient, factors = term.as_coeff_mul()
        divisor = math.gcd(divisor, int(coefficient))
        own = dict(f.as_base_exp() for f in factors if f.is_positive)
        powers = own if powers is None else {k: min(e, own[k]) for k, e in powers.items() if k in own}
    return sympy.Mul(sympy.Integer(divisor), *[k**e for k, e in (powers or {}).items()])


class FloorDiv(IntFunction):
    """`a // b` of Python."""

    nargs = (2,)
    op = "floordiv"

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if b.is_zero:
            return None  # a case of some distinction that no call reaches; SymNode refuses divisions by zero
        if b == ONE or a == ZERO:
            return a
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) // int(b))
        if not (b.is_Integer or b.is_positive):
            return None
        whole, rest = _split(a, b)
        if whole != ZERO:
            return whole + FloorDiv(rest, b)
        factor = _common_factor(a, b)
        if factor != ONE:
            return FloorDiv(_divide(a, factor), _divide(b, factor))
        if isinstance(a, FloorDiv) and a.args[1].is_Integer and b.is_Integer and a.args[1] > 0 and b > 0:
            return FloorDiv(a.args[0], a.args[1] * b)
        return None


class Mod(IntFunction):
    """`a % b` of Python."""

    nargs = (2,)
    op = "mod"

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if b.is_zero:
            return None  # a case of some distinction that no call reaches; SymNode refuses divisions by zero
        if b == ONE or a == ZERO:
            return ZERO
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) % int(b))
        if not (b.is_Integer or b.is_positive):
            return None
        whole, rest = _split(a, b)
        if whole != ZERO:
            return Mod(rest, b)
        factor = _common_factor(a, b)
        if factor != ONE:
            return sympy.expand(factor * Mod(_divide(a, factor), _divide(b, factor)))
        return a if isinstance(a, Mod) and a.args[1] == b else None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if self.args[1].is_positive else None


class Max(IntFunction):
    nargs = (2,)
    op = "max"

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        return _extreme(cls, a, b, max)


class Min(IntFunction):
    nargs = (2,)
    op = "min"

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        return _extreme(cls, a, b, min)


def _extreme(cls: Any, a: Expr, b: Expr, choose: Any) -> Expr | None:
    difference = a - b
    if difference.is_Integer:
        return a if (int(difference) > 0) == (choose is max) else b
    ordered = sorted((a, b), key=sympy.default_sort_key)
    return None if ordered == [a, b] else cls(*ordered)


def _function(base: type, arity: int, op: str, called: str) -> Any:
    """The class of a function that nothing simplifies."""
    return type(called, (base,), {"nargs": (arity,), "op": op})


PowNatural = _function(IntFunction, 2, "pow", "PowNatural")  # `a ** b` for b >= 0 that is not known
ShiftLeft = _function(IntFunction, 2, "shl", "ShiftLeft")
ShiftRight = _function(IntFunction, 2, "shr", "ShiftRight")
BitAnd = _function(IntFunction, 2, "bitand", "BitAnd")
BitOr = _function(IntFunction, 2, "bitor", "BitOr")
BitXor = _function(IntFunction, 2, "bitxor", "BitXor")


class Select(IntFunction):
    """`a if condition else b`, of integers."""

    nargs = (3,)
    op = "select"

    @classmethod
    def eval(cls, condition: Expr, a: Expr, b: Expr) -> Expr | None:
        return a if condition is TRUE or a == b else b if condition is FALSE else None


# ---- truth of integers; made by `relation.py` alone, which brings them to one form


class IsZero(BoolFunction):
    """`e == 0`"""

    nargs = (1,)


class IsPositive(BoolFunction):
    """`e > 0`"""

    nargs = (1,)


# ---- floats


class FloatConstant(FloatFunction):
    """A float by its bits, so that -0.0 and nan are themselves."""

    nargs = (1,)

    @property
    def value(self) -> float:
        return float_of_bits(int(self.args[0]))


def float_constant(value: float) -> Expr:
    return FloatConstant(sympy.Integer(bits_of_float(value)))


def _family(base: type, arity: int, names: str) -> dict[str, Any]:
    return {name: _function(base, arity, name, f"Op_{name}") for name in names.split()}


FLOAT_FUNCTIONS: dict[str, Any] = {
    **_family(FloatFunction, 1, "tofloat fneg fabs fsqrt fcos fcosh fsin fsinh ftan ftanh fasin facos fatan flog2"),
    **_family(FloatFunction, 1, " ".join(f"f{name}" for name in OTHER_MATH)),
    **_family(FloatFunction, 2, "truediv fadd fsub fmul fdiv ffloordiv fmod fpow fmin fmax"),
    **_family(IntFunction, 1, "ffloor fceil ftrunc fround"),
    **_family(BoolFunction, 2, "feq flt fle"),
    **_family(BoolFunction, 1, "fisint"),
}


class FloatSelect(FloatFunction):
    nargs = (3,)
    op = "select"
