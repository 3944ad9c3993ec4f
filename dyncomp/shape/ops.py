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


def _whole(value: float) -> int:
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise Undefined(f"int({value})")
    return int(value)


def _to_float(value: int) -> float:
    if abs(value) > _EXACT:
        raise Undefined(f"float({value}) is not exact")
    return float(value)


def _true_divide(a: int, b: int) -> float:
    return _to_float(a) / _to_float(b)


def _float_power(a: float, b: float) -> float:
    result = a**b
    if isinstance(result, complex):
        raise Undefined(f"{a} ** {b}")
    return result


def _int_power(a: int, b: int) -> int:
    if b < 0 or b > 63 and abs(a) > 1:
        raise Undefined(f"{a} ** {b}")
    return int(a**b)


def both(a: Any, b: Any) -> Any:
    return a and b


def either(a: Any, b: Any) -> Any:
    return a or b


def select(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def is_whole(a: float) -> bool:
    return a.is_integer()


def _shift(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def shift(a: int, b: int) -> int:
        if not 0 <= b < 64:
            raise Undefined(f"a shift by {b}")
        return function(a, b)

    return shift


OPS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "mod": operator.mod, "min": min, "max": max, "pow": _int_power,
    "shl": _shift(operator.lshift), "shr": _shift(operator.rshift),
    "bitand": operator.and_, "bitor": operator.or_, "bitxor": operator.xor,
    "eq": operator.eq, "lt": operator.lt, "not": operator.not_,
    "and": both, "or": either, "select": select,
    "tofloat": _to_float, "truediv": _true_divide,
    "fadd": operator.add, "fsub": operator.sub, "fmul": operator.mul, "fdiv": operator.truediv,
    "ffloordiv": operator.floordiv, "fmod": operator.mod, "fpow": _float_power,
    "fmin": min, "fmax": max, "fneg": operator.neg, "fabs": abs,
    "feq": operator.eq, "flt": operator.lt, "fle": operator.le, "fisint": is_whole,
    "ffloor": lambda a: _whole(math.floor(a)), "fceil": lambda a: _whole(math.ceil(a)),
    "ftrunc": lambda a: _whole(math.trunc(a)), "fround": lambda a: _whole(round(a)),
    "fsqrt": math.sqrt, "fcos": math.cos, "fcosh": math.cosh, "fsin": math.sin, "fsinh": math.sinh,
    "ftan": math.tan, "ftanh": math.tanh, "fasin": math.asin, "facos": math.acos, "fatan": math.atan,
    "flog2": math.log2,
}  # fmt: skip

_ERRORS = (ZeroDivisionError, ValueError, OverflowError)


def apply(name: str, *operands: Any) -> Any:
    """The result; raises Undefined where there is none. A negative zero and nan are results like any other."""
    try:
        result = OPS[name](*operands)
    except _ERRORS as error:
        raise Undefined(f"{name}{operands}: {error}") from error
    if type(result) is int and abs(result) > _LARGEST:
        raise Undefined(f"{name}{operands} does not fit in 64 bits")
    return result
