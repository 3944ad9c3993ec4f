"""Numbers of the call that stand in tensors: known while tracing, as symbols where they are whole.

    n = torch.full((), x.size(0))    i64[]: s0
    2 * n - 1, n > 3                 i64[]: 2*s0 - 1, b8[]: s0 > 3
    y[:2 * n - 1]                    y[:2*s0 - 1], without a look at the tensor
    n.float().sqrt().item()          no symbol: the value for this call's s0, which is pinned
    torch.tensor([3, 5, 7])[i]       likewise, once somebody asks for it

Symbols are held for 0-d int64 and bool tensors, from where a number fills one, through copies, views, comparisons
and arithmetic that wraps around as int64 does: whatever a step overflows by, the number is right again where it fits.
The values for this call's numbers are held for all small tensors computed from such ones. Both die with the first
write.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from dyncomp.fake.constant import item_of, outside, value_of
from dyncomp.fake.facts import OpFacts
from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.symbolic import is_symbolic, plain

aten = torch.ops.aten
_LIMIT = 64
_SAME = frozenset({
    aten.clone.default, aten._to_copy.default, aten.detach.default, aten.alias.default, aten.lift_fresh.default,
    aten.lift.default, aten.view.default, aten.expand.default, aten.squeeze.default,
})  # fmt: skip
_BINARY: dict[Any, Callable[[Any, Any], Any]] = {
    aten.mul.Tensor: operator.mul, aten.mul.Scalar: operator.mul,
    aten.maximum.default: torch.sym_max, aten.minimum.default: torch.sym_min,
    **{getattr(getattr(aten, name), kind): getattr(operator, name)
       for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")},
}  # fmt: skip
_SUMS: dict[Any, Callable[[Any, Any, Any], Any]] = {
    aten.add.Tensor: lambda a, b, n: a + b * n, aten.add.Scalar: lambda a, b, n: a + b * n,
    aten.sub.Tensor: lambda a, b, n: a - b * n, aten.sub.Scalar: lambda a, b, n: a - b * n,
    aten.rsub.Tensor: lambda a, b, n: b - a * n, aten.rsub.Scalar: lambda a, b, n: b - a * n,
}  # fmt: skip
_KINDS = {torch.int64: torch.SymInt, torch.bool: torch.SymBool}


def number_of(fake: FakeTensor) -> Any:
    """The torch.SymInt or SymBool that this tensor holds, or None. An int fits into 64 bits from now on: a guard."""
    number = _held(fake)
    if isinstance(number, torch.SymInt) and not number.node.shape_env.fit(number.node.expr):
        return None
    return number


_KIND_OF: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def pinned_item(fake: FakeTensor) -> Any:
    """The one number that follows from this call's numbers, which are guarded to stay so; None if nothing follows."""
    value = _value(fake)
    if value is None or value[0].numel() != 1:
        return None
    found = pinned_value(fake)
    return outside(found.item)  # type: ignore[union-attr]


def pinned_value(fake: FakeTensor) -> torch.Tensor | None:
    """The same for all elements."""
    value = _value(fake)
    if value is None:
        return None
    found, numbers = value
    for number in numbers:
        _KIND_OF[type(number)](number)
    return found


def follow(facts: OpFacts, result: Any, args: Any, kwargs: Any) -> None:
    """Notes what is known of `result`."""
    if type(result) is not FakeTensor:
        return
    if not result.ndim and (kind := _KINDS.get(result.dtype)) is not None:
        number = _number(facts.op, args, kwargs)
        if isinstance(number, kind) and is_symbolic(plain(number)):
            result.__dict__["number"] = number
    _follow_value(facts, result, args, kwargs)


# -- symbols


def _held(fake: FakeTensor) -> Any:
    number = fake.__dict__.get("number")
    if number is None or fake.fake_storage.version != 0:
        return None
    return number if is_symbolic(plain(number)) else None


def _number(op: Any, args: Any, kwargs: Any) -> Any:
    if op is aten.full.default:
        return args[1]
    if op is aten.scalar_tensor.default:
        return args[0]
    if op is aten.neg.default:
        return None if (number := _operand(args[0])) is None else -number
    if op in _SAME:
        return _held(args[0]) if type(args[0]) is FakeTensor else None
    if (op not in _BINARY and op not in _SUMS) or len(args) < 2:
        return None
    a, b = _operand(args[0]), _operand(args[1])
    if a is None or b is None or not (is_symbolic(a) or is_symbolic(b)):
        return None
    if op in _BINARY:
        return _BINARY[op](a, b)
    factor = _operand(args[2] if len(args) > 2 else kwargs.get("alpha", 1))
    return None if factor is None else _SUMS[op](a, b, factor)


def _operand(value: Any) -> Any:
    """The whole number that an argument is or holds; None for all others."""
    if type(value) is not FakeTensor:
        return value if type(value) in (int, torch.SymInt) else None
    if value.dtype is not torch.int64 or value.ndim:
        return None
    known = item_of(value)
    return _held(value) if known is None else known


# -- values for this call's numbers


def _value(fake: FakeTensor) -> tuple[torch.Tensor, tuple[Any, ...]] | None:
    """The value and the numbers that it follows from."""
    if fake.fake_storage.version != 0:
        return None
    return fake.__dict__.get("value")


def _follow_value(facts: OpFacts, result: FakeTensor, args: Any, kwargs: Any) -> None:
    if facts.random or facts.opaque or facts.data_shape:
        return
    if facts.op not in _FILLS and not any(map(_has_value, args)) and not _of_literal(args, kwargs):
        return
    if not 0 <= _hint_of_elements(result) <= _LIMIT:
        return
    numbers: list[Any] = []
    try:
        known = [_known(arg, numbers) for arg in args]
        named = {name: _known(arg, numbers) for name, arg in kwargs.items()}
    except _Unknown:
        return
    result.__dict__["value"] = (outside(lambda: facts.op(*known, **named)), tuple(numbers))


def _hint_of_elements(fake: FakeTensor) -> int:
    """How many elements there are in this call; -1 where only the running program tells."""
    count = 1
    for size in fake.meta.shape:
        hint = size.node.hint if isinstance(size, torch.SymInt) else size
        if hint is None:
            return -1
        count *= hint
    return count


_FILLS = frozenset({aten.full.default, aten.scalar_tensor.default})


class _Unknown(Exception):
    """An argument whose value nothing tells."""


def _has_value(arg: Any) -> bool:
    if isinstance(arg, list | tuple):
        return any(map(_has_value, arg))
    return type(arg) is FakeTensor and _value(arg) is not None


def _of_literal(args: Any, kwargs: Any) -> bool:
    """A literal and a number of the call: `torch.tensor([1, 2, 3])[n]`."""
    literal = any(type(arg) is FakeTensor and arg.constant is not None for arg in args)
    return literal and any(map(is_symbolic, (*args, *kwargs.values())))


def _known(arg: Any, numbers: list[Any]) -> Any:
    if isinstance(arg, list | tuple):
        return [_known(item, numbers) for item in arg]
    if is_symbolic(arg):
        if not arg.node.has_hint():
            raise _Unknown
        numbers.append(arg)
        return arg.node.hint
    if type(arg) is FakeTensor:
        value = _value(arg)
        constant = value_of(arg) if value is None else None
        if value is None and constant is None:
            raise _Unknown
        numbers.extend(() if value is None else value[1])
        return constant if value is None else value[0]
    if isinstance(arg, torch.Tensor):
        raise _Unknown
    return arg
