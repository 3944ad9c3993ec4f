"""Calls of tensor operations with numbers that only the running program knows (`running_number`).

    p.mul_(n)                      p.mul_(n as p's dtype)
    p.add_(g, alpha=n)             p.add_(n * g)
    p.addcdiv_(m, d, value=n)      p.add_(n * m / d)             in ATen's order of rounding
    torch._foreach_div_(ps, ns)    one call a tensor, as ATen's own loop on the CPU does
    torch._fused_adamw_(lr=n)      the overload that takes lr as a tensor
    torch.as_tensor(n)             n as the default dtype

ATen computes with a Python number in the tensor's dtype, and in float32 for half precision; so do these, whatever
the rank of the tensor. A number that has no such form is needed while tracing: its value is guarded if the call
brought it, else the graph breaks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.values.base import Tracer, Value
from dyncomp.values.constant import ConstantValue
from dyncomp.values.running_number import GivenNumberValue, RunningNumber, any_running, in_optimizer, read_number
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.torch_tensor import TensorValue

Kwargs = dict[str, Value]
_HALVES = (torch.float16, torch.bfloat16)
_FLOATS = (torch.float32, torch.float64)
_ARITHMETIC = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div",
    operator.iadd: "add_", operator.isub: "sub_", operator.imul: "mul_", operator.itruediv: "div_",
}  # fmt: skip
_SAME = {"true_divide": "div", "true_divide_": "div_", "multiply": "mul", "multiply_": "mul_",
         "divide": "div", "divide_": "div_", "subtract": "sub", "subtract_": "sub_"}  # fmt: skip


def rewrite(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: Kwargs) -> Value | None:
    """What the call gives; None if it has no such numbers, so that it is recorded as it stands."""
    if not any_running(tx):
        return None
    if not any(map(_is_or_holds_number, (*args, *kwargs.values()))):
        if not _tensor_as_number(tx, kwargs):
            return None
    if not in_optimizer(tx):
        return None
    name = fn if isinstance(fn, str) else str(_ARITHMETIC.get(fn) or getattr(fn, "__name__", ""))
    if name.startswith("_foreach_"):
        return _foreach(tx, name.removeprefix("_foreach_"), args, kwargs)
    if name.startswith("_fused_"):
        return _fused(tx, fn, args, kwargs)
    made = _literal(tx, fn, args, kwargs)
    if made is not None:
        return made
    known = _one(tx, name, list(args), dict(kwargs))
    if known is not None:
        return known
    _pin((*args, *kwargs.values()), name)
    return None


# -- which arguments are meant -------------------------------------------------------------------------------
def _is_running(value: Value) -> bool:
    return isinstance(value, RunningNumber) and not (isinstance(value, GivenNumberValue) and not value.unread)


def _is_or_holds_number(value: Value) -> bool:
    if isinstance(value, ListValue | TupleValue) and value.source is None:
        return any(map(_is_running, value.items))
    return _is_running(value)


def _tensor_as_number(tx: Tracer, kwargs: Kwargs) -> bool:
    """`p.add_(g, alpha=-lr)` with a tensor `lr`: ATen reads the number out of it."""
    return any(isinstance(kwargs.get(name), TensorValue) for name in ("alpha", "value"))


def _pin(values: Sequence[Value], name: str) -> None:
    """Looks at the value of numbers that the call brought; others have none to look at."""
    for value in values:
        items = value.items if isinstance(value, ListValue | TupleValue) and value.source is None else [value]
        for item in items:
            if isinstance(item, GivenNumberValue):
                item.as_constant()
            elif _is_running(item):
                raise GraphBreak("data-dependent-value", f"{name} with a number read from a tensor")


def _literal(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: Kwargs) -> Value | None:
    """A tensor of its own that holds one such number."""
    if fn not in (torch.as_tensor, torch.tensor, torch.scalar_tensor) or len(args) != 1 or set(kwargs) - {"device"}:
        return None
    device = kwargs["device"].as_constant() if "device" in kwargs else None
    if not isinstance(args[0], RunningNumber) or torch.device(device or torch.get_default_device()).type != "cpu":
        return None
    copy = {"copy": tx.constant(True)}
    return tx.graph_call("to", [args[0].tensor(tx), tx.constant(torch.get_default_dtype())], copy)


# -- one tensor ----------------------------------------------------------------------------------------------
def _one(tx: Tracer, name: str, args: list[Value], kwargs: Kwargs) -> Value | None:
    name = _SAME.get(name, name)
    base = name.removesuffix("_")
    form = _FORMS.get(base)
    if form is None:
        return None
    if not isinstance(args[0], TensorValue):  # 1 - t, n * t
        return _reflected(tx, base, args) if len(args) == 2 and not kwargs else None
    target = args[0]
    dtype = target.fake(tx).dtype
    if dtype not in (*_FLOATS, *_HALVES) or "out" in kwargs:
        return None
    for place, one in enumerate(args[1:], 1):
        if isinstance(one, TensorValue) and one.fake(tx).dtype != dtype:
            if not one.fake(tx).ndim or torch.promote_types(dtype, one.fake(tx).dtype) != dtype:
                return None
            args[place] = _cast(tx, one, dtype)  # as ATen's kernels read it
    if dtype in _FLOATS:
        return form(tx, name, args, kwargs, dtype)
    # One rounding for the whole operation, as ATen's kernels have it.
    wide = [_cast(tx, a, torch.float32) if isinstance(a, TensorValue) else a for a in args]
    result = form(tx, base, wide, kwargs, torch.float32)
    if result is None:
        return None
    if name != base:
        return tx.graph_call("copy_", [target, result])
    return _cast(tx, result, dtype)


def _cast(tx: Tracer, tensor: Value, dtype: torch.dtype) -> Value:
    return tx.graph_call("to", [tensor, tx.constant(dtype)])


def _number(tx: Tracer, value: Value, dtype: torch.dtype) -> Value:
    """The number as ATen's kernel takes it: a constant, or a 0-d tensor of the dtype that is computed in."""
    if isinstance(value, TensorValue):
        value = read_number(tx, value)
    if not _is_running(value):
        return value
    assert isinstance(value, RunningNumber)
    tensor = value.tensor(tx)
    return tensor if dtype == torch.float64 else _cast(tx, tensor, dtype)


def _operands(tx: Tracer, name: str, args: list[Value], kwargs: Kwargs, dtype: torch.dtype) -> Value | None:
    """`x op y`, `x.add(y, alpha=n)`"""
    alpha = kwargs.get("alpha")
    if len(args) != 2 or set(kwargs) - {"alpha"}:
        return None
    other = args[1]
    if alpha is None or _is_one(alpha):
        return tx.graph_call(name, [args[0], other if isinstance(other, TensorValue) else _number(tx, other, dtype)])
    if not isinstance(other, TensorValue):
        return None
    return tx.graph_call(name, [args[0], tx.graph_call(operator.mul, [_number(tx, alpha, dtype), other])])


def _is_one(value: Value) -> bool:
    return isinstance(value, ConstantValue) and not value.unread and value.peek() == 1


def _reflected(tx: Tracer, name: str, args: list[Value]) -> Value | None:
    tensor = args[1]
    if not isinstance(tensor, TensorValue) or tensor.fake(tx).dtype not in _FLOATS:
        return None
    number = _number(tx, args[0], tensor.fake(tx).dtype)
    return tx.graph_call(getattr(torch, name), [number, tensor])


def _scaled(operation: Any) -> Callable[..., Value | None]:
    """addcmul, addcdiv: `x + value * a op b`."""

    def form(tx: Tracer, name: str, args: list[Value], kwargs: Kwargs, dtype: torch.dtype) -> Value | None:
        given = kwargs.get("value", args[3] if len(args) == 4 else None)
        if len(args) < 3 or given is None or set(kwargs) - {"value"}:
            return None
        if not all(isinstance(a, TensorValue) for a in args[:3]):
            return None
        first = tx.graph_call(operator.mul, [_number(tx, given, dtype), args[1]])
        change = tx.graph_call(operation, [first, args[2]])
        return tx.graph_call("add_" if name.endswith("_") else "add", [args[0], change])

    return form


def _lerp(tx: Tracer, name: str, args: list[Value], kwargs: Kwargs, dtype: torch.dtype) -> Value | None:
    if kwargs or len(args) != 3:
        return None
    return tx.graph_call(name, [args[0], args[1], _number(tx, args[2], dtype)])


_FORMS: dict[str, Callable[..., Value | None]] = {
    "add": _operands, "sub": _operands, "mul": _operands, "div": _operands,
    "addcmul": _scaled(operator.mul), "addcdiv": _scaled(operator.truediv), "lerp": _lerp,
}  # fmt: skip


# -- many tensors --------------------------------------------------------------------------------------------
def _foreach(tx: Tracer, name: str, args: Sequence[Value], kwargs: Kwargs) -> Value:
    """ATen's loop over the tensors. Lists of numbers give one number a tensor."""
    columns = [arg.unpack(tx) if issubclass(arg.python_type(), list | tuple) else arg for arg in args]
    tensors = columns[0]
    assert isinstance(tensors, list)
    named = dict(kwargs)
    scale = "value" if name.startswith("addc") else None
    for extra in ("scalars", "scalar", "weight", "value"):
        if extra in named and scale is None:
            columns.append(named.pop(extra))
    results: list[Value] = []
    for i in range(len(tensors)):
        row = [column[i] if isinstance(column, list) else column for column in columns]
        more = dict(named)
        if scale and len(row) == 4:
            more[scale] = row.pop()
        results.append(tx.graph_call(name, row, more))
    return tx.constant(None) if name.endswith("_") else tx.list_of(results)


def _fused(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: Kwargs) -> Value:
    """Only lr may be a tensor."""
    rest = {name: value for name, value in kwargs.items() if name != "lr"}
    _pin((*args, *rest.values()), fn.__name__)
    lr = kwargs.get("lr")
    if lr is None or not _is_running(lr):
        return tx.graph_call(fn, args, kwargs)
    assert isinstance(lr, RunningNumber)
    return tx.graph_call(fn, args, {**kwargs, "lr": lr.tensor(tx)})
