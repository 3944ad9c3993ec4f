"""Python numbers that a tensor's type cannot hold: some operations raise, others wrap around, as eager does.

torch.clamp(int8, max=1000)   ->   RuntimeError: value cannot be converted to type int8_t without overflow
int8 < 1000                   ->   an ordinary result

Which of the two depends on the kernel, so the operation itself is asked, on small tensors.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from dyncomp.fake.facts import facts_of
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import must_hold
from dyncomp.shape.symbolic import PLAIN_TYPES


def check_numbers(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Raises what eager raises for numbers out of range. `args` and `kwargs` hold `TensorMeta`s for tensors."""
    positions, names = _number_places(op)
    if not positions:
        return
    args, kwargs = _with_numbers_in_range(op, args, kwargs, result)
    numbers = [args[i] for i in positions if i < len(args) and type(args[i]) in (int, float)]
    numbers += [kwargs[name] for name in names if type(kwargs.get(name)) in (int, float)]
    if not numbers:
        return
    metas = [m for m in (*args, *kwargs.values(), result) if type(m) is TensorMeta]
    if any(not _fits(number, meta.dtype) for number in numbers for meta in metas):
        ask(op, args, kwargs)


def _with_numbers_in_range(
    op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Numbers that vary are held in the range of the tensors' types (a guard) where eager raises beyond it; where this call's is
    beyond, it is pinned. Gives the arguments with plain numbers in place of those that were.
    """
    positions, names = _number_places(op)
    places: list[Any] = [i for i in positions if i < len(args) and type(args[i]) in PLAIN_TYPES]
    places += [name for name in names if type(kwargs.get(name)) in PLAIN_TYPES]
    if not places:
        return args, kwargs
    metas = [m for m in (*args, *kwargs.values(), result) if type(m) is TensorMeta]
    for place in places:
        number = args[place] if isinstance(place, int) else kwargs[place]
        limits = {limit for meta in metas if (limit := _limit(number, meta.dtype)) is not None}
        if limits and _raises(op, args, kwargs, place, max(limits)):
            if not must_hold(_within(number, min(limits))):
                args, kwargs = _put(args, kwargs, place, PLAIN_TYPES[type(number)](number))
    return args, kwargs


def _within(number: Any, limit: int | float) -> Any:
    """Whether it fits; nan and infinities do, where floats are meant."""
    inside = (-limit <= number) & (number <= limit)
    if isinstance(number, torch.SymInt) or isinstance(limit, int):
        return inside
    return inside | (number != number) | (abs(number) == math.inf)


def _limit(number: Any, dtype: torch.dtype) -> int | float | None:
    """What a number of this kind may not exceed to fit into a type; None where it always fits."""
    if dtype is torch.bool or dtype.is_complex or isinstance(number, torch.SymBool):
        return None
    if dtype.is_floating_point:
        most = torch.finfo(dtype).max
        if isinstance(number, torch.SymInt):
            return int(most) if most < 1 << 63 else None
        return None if dtype is torch.float64 else most
    return None if dtype is torch.int64 else torch.iinfo(dtype).max


def _raises(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], place: Any, limit: int | float) -> bool:
    """Whether eager raises for a number beyond the limit at this place."""
    args, kwargs = _put(args, kwargs, place, type(limit)(2 * limit + 2))
    try:
        ask(op, tuple(map(_some, args)), {name: _some(value) for name, value in kwargs.items()})
    except RuntimeError:
        return True
    return False


def _some(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_some(item) for item in value])
    return PLAIN_TYPES[type(value)](1) if type(value) in PLAIN_TYPES else value


def _put(args: tuple[Any, ...], kwargs: dict[str, Any], place: Any, value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(place, int):
        return (*args[:place], value, *args[place + 1 :]), kwargs
    return args, {**kwargs, place: value}


@functools.cache
def _number_places(op: torch._ops.OpOverload) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Arguments that take a number which meets elements of a tensor."""
    facts = facts_of(op)
    if facts.opaque or facts.random:  # it must not run, or draw, more often than in eager
        return (), ()
    places = [(i, a.name) for i, a in enumerate(op._schema.arguments) if _takes_number(a.type)]
    return tuple(i for i, _ in places), tuple(name for _, name in places)


def _takes_number(kind: Any) -> bool:
    if isinstance(kind, torch.OptionalType):
        return _takes_number(kind.getElementType())
    return isinstance(kind, (torch.NumberType, torch.TensorType))


def _fits(number: int | float, dtype: torch.dtype) -> bool:
    if dtype is torch.bool or dtype.is_complex:
        return True
    if dtype.is_floating_point:
        return not math.isfinite(number) or abs(number) <= torch.finfo(dtype).max
    if not math.isfinite(number):
        return False
    limits = torch.iinfo(dtype)
    return limits.min <= number <= limits.max


def ask(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Runs the operation on small tensors, for the error that it raises."""
    creates = not any(type(v) is TensorMeta for v in (*args, *kwargs.values()))

    def small(value: Any) -> Any:  # one element would take a way of its own in some kernels
        if type(value) is TensorMeta:
            return torch.ones((2,) * value.ndim, dtype=value.dtype)
        if isinstance(value, (list, tuple)):
            return [2 if creates and type(item) is int else small(item) for item in value]
        return torch.device("cpu") if isinstance(value, torch.device) else value

    named = {name: small(value) for name, value in kwargs.items()}
    with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
        op(*map(small, args), **named)
