"""The operations of size expressions, with Python's exact meaning: one row an operation.

    OPS["floordiv"](-7, 2) == -4        OPS["fround"](2.5) == 2

Names are those of the instructions of an integer program (`program.py`); the native checker has the same table.
Whatever Python would raise, and whatever a 64-bit register could not hold, is `Undefined`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

_EXACT = 2**53  # integers up to here are doubles
_LARGEST = 2**63 - 1


class Undefined(ArithmeticError):
    """The operation has no result here: a division by zero, a domain error, an overflow."""


def both(a: Any, b: Any) -> Any:
    return a and b


def either(a: Any, b: Any) -> Any:
    return a or b


def select(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def is_whole(a: float) -> bool:
    return a.is_integer()


OPS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "mod": operator.mod, "min": min, "max": max, "pow": operator.pow, "shl": operator.lshift, "shr": operator.rshift,
    "bitand": operator.and_, "bitor": operator.or_, "bitxor": operator.xor,
    "eq": operator.eq, "lt": operator.lt, "not": operator.not_,
    "and": both, "or": either, "select": select,
    "tofloat": float, "truediv": operator.truediv,
    "fadd": operator.add, "fsub": operator.sub, "fmul": operator.mul, "fdiv": operator.truediv,
    "ffloordiv": operator.floordiv, "fmod": operator.mod, "fpow": operator.pow,
    "fmin": min, "fmax": max, "fneg": operator.neg, "fabs": abs,
    "feq": operator.eq, "flt": operator.lt, "fle": operator.le, "fisint": is_whole,
    "ffloor": math.floor, "fceil": math.ceil, "ftrunc": math.trunc, "fround": round,
    "fsqrt": math.sqrt, "fcos": math.cos, "fcosh": math.cosh, "fsin": math.sin, "fsinh": math.sinh,
    "ftan": math.tan, "ftanh": math.tanh, "fasin": math.asin, "facos": math.acos, "fatan": math.atan,
    "flog2": math.log2, "fexp": math.exp, "fexp2": math.exp2, "fexpm1": math.expm1, "flog": math.log, "flog10": math.log10,
    "flog1p": math.log1p, "fcbrt": math.cbrt, "fasinh": math.asinh, "facosh": math.acosh, "fatanh": math.atanh,
    "ferf": math.erf, "ferfc": math.erfc,
}  # fmt: skip

# Operations that Python refuses for some operands: a trace that computed one holds only where it is defined.
PARTIAL = frozenset(
    "pow shl shr fdiv ffloordiv fmod fpow ffloor fceil ftrunc fround fsqrt fcos fcosh fsin fsinh ftan fasin facos flog2 "
    "fexp fexp2 fexpm1 flog flog10 flog1p facosh fatanh".split()
)
# Functions of `math` for which torch has no `torch._sym_<name>`.
OTHER_MATH = "exp exp2 expm1 log log10 log1p cbrt asinh acosh atanh erf erfc".split()
_ERRORS = (ZeroDivisionError, ValueError, OverflowError, TypeError)


def exact(name: str, *operands: Any) -> Any:
    """As `apply`, but ints may be of any size, as Python's are."""
    if name in _LIMITED and not _LIMITED[name](*operands):
        raise Undefined(f"{name}{operands} is beyond what a register computes exactly")
    try:
        result = OPS[name](*operands)
    except _ERRORS as error:
        raise Undefined(f"{name}{operands}: {error}") from error
    if isinstance(result, complex):
        raise Undefined(f"{name}{operands} is complex")
    return result


def apply(name: str, *operands: Any) -> Any:
    """The result; raises Undefined where there is none. A negative zero and nan are results like any other."""
    result = exact(name, *operands)
    if type(result) is int and abs(result) > _LARGEST:
        raise Undefined(f"{name}{operands} does not fit in 64 bits")
    return result


def _is_exact(*operands: int) -> bool:
    return all(abs(value) <= _EXACT for value in operands)


_LIMITED: dict[str, Callable[..., bool]] = {
    "pow": lambda a, b: 0 <= b <= 63 or b >= 0 and abs(a) <= 1,
    "shl": lambda a, b: 0 <= b < 64, "shr": lambda a, b: 0 <= b < 64,
    "tofloat": _is_exact, "truediv": _is_exact,
}  # fmt: skip
