"""Helpers for code that handles plain and symbolic numbers alike.

    number_key(torch.SymInt of s0 + 1)  ->  the expression, which hashes;  number_key(5)  ->  5

The engine itself needs sympy, which takes a third of a second to load. Programs without symbolic sizes never do, so
code outside this package reaches the engine through `new_env`, `guard_program` and `value_program` here.
"""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dyncomp.shape.int_program import Program, Readings
from dyncomp.shape.ops import OPS, OTHER_MATH

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
PLAIN_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def select(condition: Any, a: Any, b: Any) -> Any:
    """`a if condition else b`, undecided as long as the condition is."""
    if not isinstance(condition, torch.SymBool):
        return a if condition else b
    then, other = (condition.node.wrap_int(n) if isinstance(n, int) else n.node for n in (a, b))
    node = condition.node.sym_ite(then, other)
    return torch.SymInt(node) if node.is_int() else torch.SymFloat(node)


def _math_function(name: str) -> Callable[[Any], Any]:
    def function(number: Any) -> Any:
        if isinstance(number, (torch.SymInt, torch.SymFloat)):
            return torch.SymFloat(getattr(number.node, f"sym_{name}")())
        return getattr(math, name)(number)

    function.__name__ = function.__qualname__ = f"sym_{name}"
    return function


# As `torch._sym_cos` and its like: for plain and symbolic numbers.
MATH_FUNCTIONS: dict[str, Callable[[Any], Any]] = {name: _math_function(name) for name in OTHER_MATH}


def float_min(a: Any, b: Any) -> Any:
    """Python's `min`: the first of them unless the second is less, so nan and -0.0 count."""
    return _ordered("sym_min", a, b) if is_symbolic(a) or is_symbolic(b) else min(a, b)


def float_max(a: Any, b: Any) -> Any:
    return _ordered("sym_max", a, b) if is_symbolic(a) or is_symbolic(b) else max(a, b)


def _ordered(name: str, a: Any, b: Any) -> Any:
    wrap = (a if is_symbolic(a) else b).node.wrap_float
    first, second = (n.node if is_symbolic(n) else wrap(n) for n in (a, b))
    return torch.SymFloat(getattr(first, name)(second))


# The operations of integer programs as functions that take plain and symbolic numbers alike and decide nothing.
NUMBER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **OPS,
    "min": torch.sym_min, "max": torch.sym_max, "fmin": float_min, "fmax": float_max, "pow": operator.pow,
    "shl": operator.lshift, "shr": operator.rshift, "not": torch.sym_not, "and": operator.and_, "or": operator.or_,
    "select": select, "tofloat": torch.sym_float, "truediv": operator.truediv, "fpow": operator.pow,
    "ffloor": math.floor, "fceil": math.ceil, "ftrunc": math.trunc, "fround": round, "fsqrt": torch.sym_sqrt,
    **{f"f{name}": getattr(torch, f"_sym_{name}") for name in
       ("cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")},
    **{f"f{name}": function for name, function in MATH_FUNCTIONS.items()},
}  # fmt: skip


def new_env(**options: Any) -> ShapeEnv:
    return importlib.import_module("dyncomp.shape.env").ShapeEnv(**options)  # type: ignore[no-any-return]


def guard_program(env: ShapeEnv) -> Program | None:
    """All that a later call's numbers must fulfil to use what was traced; None if nothing."""
    return importlib.import_module("dyncomp.shape.program").guard_program(env)  # type: ignore[no-any-return]


def value_program(env: ShapeEnv, numbers: Sequence[Any], readings: Readings | None = None) -> Program:
    """Computes numbers (plain or symbolic, of this env) from the numbers of a call.

    `readings`: symbol -> (input, scale, shift), where the input brings scale * symbol + shift; without them the
    inputs are the origins of the symbols.
    """
    exprs = [env.expr_of(number) for number in numbers]
    engine = importlib.import_module("dyncomp.shape.program")
    return engine.value_program(env, exprs, readings)  # type: ignore[no-any-return]


def fact_program(
    env: ShapeEnv, numbers: Sequence[Any], facts: Sequence[Any], readings: Readings, whole: bool = False
) -> Program:
    """Computes numbers, and then truths (expressions) of `env.asserts`; see `program.fact_program`."""
    exprs = [env.expr_of(number) for number in numbers]
    engine = importlib.import_module("dyncomp.shape.program")
    return engine.fact_program(env, exprs, facts, readings, whole)  # type: ignore[no-any-return]


def late_symbol(number: Any) -> Any:
    """The symbol of a number that is one which only the running program gives; None for all others."""
    if not is_symbolic(number):
        return None
    e = number.node.expr
    return e if e.is_Symbol and number.node.shape_env.is_late(e) else None


def reading_of(env: ShapeEnv, number: Any) -> tuple[Any, int, int] | None:
    """(symbol, scale, shift) of a number that is scale * symbol + shift."""
    return importlib.import_module("dyncomp.shape.program").reading_of(env.expr_of(number))  # type: ignore[no-any-return]


def unread_origins(env: ShapeEnv, values: Iterable[Any]) -> list[tuple[Any, Any]]:
    """(origin, number) of what the call must bring beside these tensors (with `shape` and `stride()`) and numbers, for all of their
    numbers to be computable from what is read.
    """
    needed: set[Any] = set()
    readable: set[Any] = set()
    for value in values:
        for number in (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,):
            if is_symbolic(plain(number)):
                needed |= env.expr_of(number).free_symbols
                reading = reading_of(env, number)
                if reading is not None:
                    readable.add(reading[0])
    if needed <= readable:
        return []
    missing = {env.facts.parts[symbol][0] if symbol in env.facts.parts else symbol for symbol in needed - readable}
    origins = [env.symbols[symbol].origin for symbol in sorted(missing, key=str) if symbol in env.symbols]
    return [(origin, env.number_at(origin)) for origin in origins if origin is not None]


def is_symbolic(value: Any) -> bool:
    return isinstance(value, SYMBOLIC)


def number_key(value: Any) -> Hashable:
    """Equal for equal numbers; torch's symbolic numbers have no hash of their own."""
    return value.node.expr if isinstance(value, SYMBOLIC) else value  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """The number itself where the facts have pinned it."""
    if not isinstance(value, torch.SymInt):
        return value
    known = value.node.maybe_as_int()
    return value if known is None else known


def env_of(values: Iterable[Any]) -> ShapeEnv | None:
    """The env of the first symbolic number among these."""
    return next((value.node.shape_env for value in values if isinstance(value, SYMBOLIC)), None)


def layout_of(
    env: ShapeEnv,
    sizes: Sequence[int],
    strides: Sequence[int],
    size_at: Callable[[int], Any],
    stride_origin: Callable[[int], Hashable],
    stride_at: Callable[[int], Any] | None = None,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Sizes and strides of an outside tensor. `size_at(dim)` gives the size, symbolic or plain.

    A stride is written with the sizes inside it where it fits (`stride(0) == size(1) * stride(1)`, which is then
    guarded), so that contiguous stays contiguous at all sizes; else it is `stride_at(dim)`, by default the plain number.
    """
    shape = tuple([size_at(dim) for dim in range(len(sizes))])
    steps: dict[int, Any] = {}
    # Innermost first; among equal strides (dimensions of size 1) the one further back.
    for dim in sorted(range(len(sizes)), key=lambda d: (strides[d], -d)):
        steps[dim] = strides[dim]
        if strides[dim] <= 1:
            continue
        for inner, step in list(steps.items())[:-1][::-1]:
            if sizes[inner] * strides[inner] == strides[dim] and is_symbolic(product := shape[inner] * step):
                steps[dim] = product
                env.require_equal(stride_origin(dim), product)
                break
        else:
            steps[dim] = strides[dim] if stride_at is None else stride_at(dim)
    return shape, tuple([steps[dim] for dim in range(len(sizes))])


def numbers_in(value: Any) -> Iterator[Any]:
    """Symbolic numbers in nested arguments."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from numbers_in(item)
    elif isinstance(value, dict):
        yield from numbers_in(list(value.values()))
    elif isinstance(value, slice):
        yield from numbers_in([value.start, value.stop, value.step])
    elif is_symbolic(value):
        yield value
