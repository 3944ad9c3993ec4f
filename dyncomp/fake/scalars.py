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


def check_numbers(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Raises what eager raises for numbers out of range. `args` and `kwargs` hold `TensorMeta`s for tensors."""
    positions, names = _number_places(op)
    if not positions:
        return
    numbers = [args[i] for i in positions if i < len(args) and type(args[i]) in (int, float)]
    numbers += [kwargs[name] for name in names if type(kwargs.get(name)) in (int, float)]
    if not numbers:
        return
    metas = [m for m in (*args, *kwargs.values(), result) if type(m) is TensorMeta]
    if any(not _fits(number, meta.dtype) for number in numbers for meta in metas):
        _ask(op, args, kwargs)


@functools.cache
def _number_places(op: torch._ops.OpOverload) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Arguments that take a number which meets elements of a tensor."""
    if facts_of(op).opaque:  # it must not run more often than in eager
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


def _ask(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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
