"""Truths that guards state beside relations of ints, and an expression's value from its operands.

    PinnedFloat(z0, 0.5)                 z0 has these bits
    Defined(10 % s0), Fits(s0 * s1)      Python gives it a result, a register holds it
"""

from __future__ import annotations

import math
from typing import Any

import sympy

from dyncomp.shape import ops
from dyncomp.shape.functions import FALSE, TRUE, Expr, FloatConstant, IsPositive, IsZero, float_constant
from dyncomp.shape.int_program import bits_of_float


class PinnedFloat(sympy.logic.boolalg.BooleanFunction):  # type: ignore[misc]
    """The float has exactly these bits."""

    nargs = (2,)


class Defined(sympy.logic.boolalg.BooleanFunction):  # type: ignore[misc]
    """The expression has a value: no division by zero, no domain error, no overflow on the way."""

    nargs = (1,)


class Fits(Defined):
    """The expression is within 64 bits, and so is every step of computing it."""


def is_total(e: Expr) -> bool:
    """Defined whatever the operands: only finite floats come in, or a constant that is allowed."""
    if e.op in ("ffloor", "fceil", "ftrunc", "fround"):
        return getattr(e.args[0], "op", "") in ("truediv", "tofloat")
    if e.op in ("fdiv", "ffloordiv", "fmod"):
        return isinstance(e.args[1], FloatConstant)
    return e.op == "shr" and e.args[1].is_Integer  # type: ignore[no-any-return]


def compute(e: Expr, operands: list[Any]) -> Any:
    """One step of an evaluation: `e`'s function on numbers."""
    if e.is_Add:
        return sum(operands)
    if e.is_Mul:
        return math.prod(operands)
    if e.is_Pow:
        return operands[0] ** operands[1]
    if isinstance(e, IsZero):
        return operands[0] == 0
    if isinstance(e, IsPositive):
        return operands[0] > 0
    if e.is_Not:
        return not operands[0]
    if isinstance(e, sympy.And):
        return all(operands)
    if isinstance(e, sympy.Or):
        return any(operands)
    if isinstance(e, Defined):
        return True
    if isinstance(e, PinnedFloat):
        return bits_of_float(operands[0]) == bits_of_float(operands[1])
    return ops.exact(e.op, *operands)


def expr_of(value: Any) -> Expr:
    """The expression of a number, symbolic or plain."""
    node = getattr(value, "node", None)
    if node is not None:
        return node.expr
    if isinstance(value, bool):
        return TRUE if value else FALSE
    return sympy.Integer(value) if isinstance(value, int) else float_constant(value)
