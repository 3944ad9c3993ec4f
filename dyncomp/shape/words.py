"""Expressions and truths as a person would write them.

    words(FloorDiv(s0 + 1, 2))                            ->  "(s0 + 1) // 2"
    words(Op_ftrunc(Op_fmul(Op_tofloat(s1), 1.5)))        ->  "trunc(float(s1) * 1.5)"
    describe(IsZero(s0 - 2*s1))                           ->  "s0 == 2*s1"
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy.printing.str import StrPrinter

from dyncomp.shape.functions import Expr, FloatConstant, IsPositive, IsZero
from dyncomp.shape.truths import Defined, Fits, PinnedFloat

_SIGNS = {
    "floordiv": "//", "ffloordiv": "//", "mod": "%", "fmod": "%", "truediv": "/", "fdiv": "/", "fadd": "+", "fsub": "-",
    "fmul": "*", "fpow": "**", "pow": "**", "shl": "<<", "shr": ">>", "bitand": "&", "bitor": "|", "bitxor": "^",
    "feq": "==", "flt": "<", "fle": "<=",
}  # fmt: skip
_CALLED = {"tofloat": "float", "fneg": "-", "fisint": "is_integer"}


class _Words(StrPrinter):  # type: ignore[misc]
    """Our own functions by their signs and names; the rest as sympy writes it."""

    def _print_Function(self, e: Expr) -> str:
        return _function(e, self._print, self._operand)

    def _print_BooleanFunction(self, e: Expr) -> str:
        return _function(e, self._print, self._operand) if hasattr(e, "op") else describe(e)

    def _operand(self, e: Expr) -> str:
        text = self._print(e)
        called = getattr(e, "op", None) is not None and e.op not in _SIGNS and e.op != "select"
        return text if e.is_Atom or called else f"({text})"


def _function(e: Expr, write: Any, operand: Any) -> str:
    if isinstance(e, FloatConstant):
        return repr(e.value)
    if e.op == "select":
        condition, a, b = e.args
        return f"{operand(a)} if {describe(condition)} else {operand(b)}"
    if e.op in _SIGNS:
        return f" {_SIGNS[e.op]} ".join(map(operand, e.args))
    name = _CALLED.get(e.op) or (e.op[1:] if e.op.startswith("f") else e.op)
    return f"{name}({', '.join(map(write, e.args))})"


_printer = _Words()


def words(e: Expr) -> str:
    """An expression, over the names of its symbols."""
    return _printer.doprint(e)  # type: ignore[no-any-return]


def describe(truth: Expr) -> str:
    """A relation."""
    if isinstance(truth, IsZero | IsPositive):
        constant, rest = truth.args[0].as_coeff_Add()
        positive = [t for t in sympy.Add.make_args(rest) if not t.could_extract_minus_sign()]
        left, right = sympy.Add(*positive), sympy.Add(*positive) - rest
        if constant == 1 and positive and isinstance(truth, IsPositive):
            return f"{words(left)} >= {words(right)}"
        left, right = (left + constant, right) if constant > 0 else (left, right - constant)
        return f"{words(left)} {'==' if isinstance(truth, IsZero) else '>'} {words(right)}"
    if truth.is_Not:
        inner = describe(truth.args[0])
        return inner.replace(" == ", " != ") if isinstance(truth.args[0], IsZero) else f"not ({inner})"
    if isinstance(truth, Fits):
        return f"{words(truth.args[0])} fits in 64 bits"
    if isinstance(truth, Defined):
        return f"{words(truth.args[0])} is defined"
    if isinstance(truth, PinnedFloat):
        return f"{words(truth.args[0])} == {truth.args[1].value!r}"
    if isinstance(truth, sympy.And | sympy.Or):
        return (" and " if isinstance(truth, sympy.And) else " or ").join(f"({describe(a)})" for a in truth.args)
    return words(truth)
