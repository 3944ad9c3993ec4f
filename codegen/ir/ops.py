"""The operations that a value of the loop IR may apply, with their types.

One line of the table a family: names, number of arguments (all of one type), allowed types, rough cost,
result if not that type. Integer arithmetic wraps around. Integer division comes in two kinds (`div_trunc`,
`div_floor`); the divisor is never 0 there (lowering sees to it). NaN: `maximum`, `minimum` let NaN win
(the first one's), `fmax`, `fmin` prefer the number. Comparisons with NaN are false but for `ne`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dyncomp.codegen.ir.types import FLOATS, INTS

Types = tuple[str, ...]
NUMBERS = FLOATS | INTS
BITS = INTS | {"bool"}
ANY = NUMBERS | {"bool"}


@dataclasses.dataclass(frozen=True)
class OpInfo:
    """`cost` is a rough number of machine operations an element, for the choice between recomputing and
    storing."""

    name: str
    arity: int
    result: Callable[[Types], str]
    cost: int


OPS: dict[str, OpInfo] = {}


def _check(name: str, types: Types, arity: int, allowed: frozenset[str]) -> None:
    if len(types) != arity or len(set(types)) != 1 or types[0] not in allowed:
        raise TypeError(f"{name} does not take {types}")


def _same(names: str, arity: int, allowed: frozenset[str], cost: int, result: str | None = None) -> None:
    for name in names.split():

        def rule(types: Types, name: str = name) -> str:
            _check(name, types, arity, allowed)
            return result or types[0]

        OPS[name] = OpInfo(name, arity, rule, cost)


def _where(types: Types) -> str:
    if len(types) != 3 or types[0] != "bool" or types[1] != types[2]:
        raise TypeError(f"where does not take {types}")
    return types[1]


# numbers of any kind
_same("add sub mul", 2, NUMBERS, 1)
_same("neg abs sign", 1, NUMBERS, 1)
_same("maximum minimum", 2, ANY, 1)
_same("eq ne lt le gt ge", 2, ANY, 1, "bool")
OPS["where"] = OpInfo("where", 3, _where, 1)
# integers: quotient rounded towards zero or down, remainder with the dividend's (fmod) or the divisor's
# sign (remainder)
_same("div_trunc div_floor", 2, NUMBERS, 8)
_same("fmod remainder", 2, NUMBERS, 12)
# bits; on bool the logical meaning. shl/shr as ATen: a shift by a negative or too large count gives 0 (shr
# of a negative: -1)
_same("and or xor", 2, BITS, 1)
_same("not", 1, BITS, 1)
_same("shl shr", 2, INTS, 2)
# floats; "div_floor" on floats is Python's floor division as ATen computes it, "div_trunc" is trunc(a / b)
_same("div", 2, FLOATS, 4)
_same("fmax fmin copysign", 2, FLOATS, 2)
_same("fma", 3, FLOATS, 1)  # a * b + c, rounded once
_same("pow atan2 hypot nextafter", 2, FLOATS, 40)
_same("sqrt rsqrt reciprocal", 1, FLOATS, 6)
_same("floor ceil trunc round", 1, FLOATS, 1)  # round: half to even
_same("exp exp2 expm1 sigmoid log log1p log2 log10 erf tanh", 1, FLOATS, 20)
_same("erfc erfinv sin cos tan asin acos atan sinh cosh asinh acosh atanh lgamma digamma", 1, FLOATS, 30)
_same("isnan isinf signbit", 1, FLOATS, 1, "bool")
# i64 -> f64: the double with these bits (how a kernel is given floats of the call)
_same("float_of_bits", 1, frozenset({"i64"}), 0, "f64")
# f32 -> f32: rounds to the nearest number that the storage type can hold
_same("round_bf16 round_f16", 1, frozenset({"f32"}), 4)
