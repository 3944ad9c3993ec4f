"""Tensors made from numbers that vary: `torch.tensor(x.shape[0])`.

    torch.tensor(n)                  torch.full((), n, dtype=torch.int64)
    torch.tensor([n, 2.5])           torch.stack([torch.full((), float(n)), torch.full((), 2.5)])
    x.new_tensor(n)                  torch.full((), n, dtype=x.dtype, device=x.device)

torch's own function reads the very number, which would pin it. dtypes and rounding are those of that function; a
number that the dtype may not hold is asked about, which is a guard. Data of other kinds, and options that no `full`
has, go to the function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dyncomp.shape.layout import must_hold
from dyncomp.values import numpy_values, registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.constant import ConstantValue
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.sym_number import SymNumberValue, asked, compute

Kwargs = dict[str, Value]
_MOST = 64  # numbers in a literal: each is an operation of its own in the graph


def _register(function: Any) -> None:
    @registry.on_call(function)
    def make(tx: Tracer, args: Sequence[Value], kwargs: Kwargs) -> Value:
        names = ("data", "dtype", "device")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if (data := given.pop("data", None)) is not None and numpy_values.holds_numpy(data):
            return numpy_values.tensor_of(tx, function, data, given)
        made = _literal(tx, args, kwargs, names if function is torch.as_tensor else names[:1])
        return tx.graph_call(function, args, kwargs) if made is None else made


for _function in (torch.tensor, torch.as_tensor):
    _register(_function)


@registry.on_tensor_method("new_tensor")
def new_tensor(tx: Tracer, tensor: Any, args: Sequence[Value], kwargs: Kwargs) -> Value | None:
    like = tensor.fake(tx)
    return _literal(
        tx, args, {"dtype": tx.constant(like.dtype), "device": tx.constant(like.device), **kwargs}, ("data",)
    )


def _literal(tx: Tracer, args: Sequence[Value], kwargs: Kwargs, positional: Sequence[str]) -> Value | None:
    """The tensor, or None where it holds no number that varies or is beyond this."""
    if len(args) > len(positional):
        return None
    given = {**dict(zip(positional, args, strict=False)), **kwargs}
    data = given.pop("data", None)
    numbers = [] if data is None else _numbers(data)
    if numbers is None or not any(n.symbolic for n in numbers):
        return None
    if len(numbers) > _MOST or not set(given) <= {"dtype", "device", "requires_grad", "pin_memory"}:
        return None
    if any(given[name].truth(tx) for name in ("requires_grad", "pin_memory") if name in given):
        return None
    chosen = given.get("dtype")
    dtype = None if chosen is None else chosen.as_constant()
    if dtype is None:
        dtype = _common_dtype(numbers)
    device = given.get("device", tx.constant(None))
    ready = {id(number): _as(tx, number, dtype) for number in numbers}
    if any(number is None for number in ready.values()):
        return None

    def build(value: Value) -> Value:
        items = _items(value)
        if items is None:
            number = ready[id(value)]
            assert number is not None
            how = {"dtype": tx.constant(dtype), "device": device}
            if not number.symbolic:
                return tx.graph_call(torch.tensor, [number], how)
            return tx.graph_call(torch.full, [tx.tuple_of([]), number], how)
        return tx.graph_call(torch.stack, [tx.list_of([build(item) for item in items])])

    assert data is not None
    return build(data) if _is_regular(data) else None


def _items(value: Value) -> list[Value] | None:
    return value.items if isinstance(value, ListValue | TupleValue) else None


def _numbers(value: Value) -> list[Value] | None:
    """All numbers of nested lists in order; None if there is anything else in them."""
    items = _items(value)
    if items is None:
        if isinstance(value, SymNumberValue):
            return [value]
        return [value] if isinstance(value, ConstantValue) and value.python_type() in (int, float, bool) else None
    found: list[Value] = []
    for item in items:
        inner = _numbers(item)
        if inner is None:
            return None
        found += inner
    return found


def _is_regular(value: Value) -> bool:
    """Lists of equal lengths, none of them empty: others are errors, or hold no number."""

    def shape(value: Value) -> tuple[int, ...] | None:
        items = _items(value)
        if items is None:
            return ()
        inner = {shape(item) for item in items}
        only = inner.pop() if len(inner) == 1 else None
        return None if only is None else (len(items), *only)

    return shape(value) is not None


def _common_dtype(numbers: Sequence[Value]) -> torch.dtype:
    kinds = {number.python_type() for number in numbers}
    if float in kinds:
        return torch.get_default_dtype()
    return torch.int64 if int in kinds else torch.bool


def _as(tx: Tracer, number: Value, dtype: torch.dtype) -> Value | None:
    """What stands in the tensor as the function stores it in this dtype; None where that needs the very number."""
    if number.python_type() is bool or not isinstance(number, SymNumberValue):
        return tx.constant(number.as_constant())
    whole = number.python_type() is int
    if dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        limit = torch.finfo(dtype).max
        held = dtype is torch.float64 or whole and limit > 2**64 or _within(number.number, -limit, limit)
        if not held:
            return None
        return compute(tx, torch.sym_float, number) if whole else number  # by way of a double, as the function reads it
    if dtype is torch.bool:
        return tx.constant(number.truth(tx))
    if dtype.is_complex or dtype.is_floating_point or not whole:
        return None
    limits = torch.iinfo(dtype)
    return number if dtype is torch.int64 or _within(number.number, limits.min, limits.max) else None


def _within(number: Any, low: float, high: float) -> bool:
    if isinstance(number, torch.SymInt):
        low, high = int(low), int(high)
    if not number.node.has_hint():  # checked while the program runs
        return must_hold((number >= low) & (number <= high))
    question: Callable[[], bool] = lambda: bool(number >= low) and bool(number <= high)  # noqa: E731
    return asked(question)  # type: ignore[no-any-return]
