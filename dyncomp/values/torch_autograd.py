"""Custom autograd functions where no gradient is recorded: `F.apply(x)` is `F.forward(ctx, x)` without grad.

What forward keeps on `ctx` is for a backward that will never run, so `ctx` is gone when the call ends. Where
a gradient is recorded the graph breaks: the backward belongs to autograd.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin_kind import BoundBuiltin
from dyncomp.values.context_state import set_flag
from dyncomp.values.instance import class_lookup
from dyncomp.values.sequence import TupleValue
from dyncomp.values.torch_tensor import TensorValue

_NOTES = frozenset(
    {"save_for_backward", "save_for_forward", "mark_non_differentiable", "set_materialize_grads"}
)
_no_setup: Any = class_lookup(torch.autograd.Function, "setup_context")


class AutogradContextValue(Value):
    """The `ctx` of one call."""

    def __init__(self, cls: type, inputs: int):
        super().__init__()
        self._cls, self._inputs = cls, inputs
        self._attributes: dict[str, Value] = {}

    def python_type(self) -> type:
        return self._cls._backward_cls  # type: ignore[attr-defined, no-any-return]

    def truth(self, tx: Tracer) -> bool:
        return True

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        self._attributes[name] = value

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name in self._attributes:
            return self._attributes[name]
        if name in _NOTES:
            return BoundBuiltin(self, name)
        if name == "needs_input_grad":
            return tx.constant((False,) * self._inputs)
        raise GraphBreak("autograd", f"ctx.{name} in the forward of a custom autograd function")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return tx.constant(None) if name in _NOTES else super().call_method(tx, name, args, kwargs)


def apply(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    cls_value, *inputs = args
    cls = cls_value.as_constant()
    if kwargs or (torch.is_grad_enabled() and any(_requires_grad(tx, value) for value in inputs)):
        raise GraphBreak("autograd", f"the custom autograd function {cls.__qualname__}")
    context = AutogradContextValue(cls, len(inputs))
    before = tx.constant(torch.is_grad_enabled())
    set_flag(tx, torch._C._set_grad_enabled, [tx.constant(False)], {})
    try:
        output = _forward(tx, cls_value, context, inputs)
    finally:
        set_flag(tx, torch._C._set_grad_enabled, [before], {})
    returned = output.unpack(tx) if issubclass(output.python_type(), tuple) else [output]
    if any(value is given for value in returned for given in inputs if isinstance(given, TensorValue)):
        raise GraphBreak("autograd", f"{cls.__qualname__} returns an input")
    return output


def _is_bound_apply(fn: Any) -> bool:
    owner = getattr(fn, "__self__", None)
    return isinstance(owner, type) and issubclass(owner, torch.autograd.Function) and fn.__name__ == "apply"


def _bound_apply(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return apply(tx, [tx.constant(fn.__self__), *args], kwargs)


# A class method written in Python up to torch 2.13; from 2.14 on a method of C, met bound to its class.
_APPLY = inspect.getattr_static(torch.autograd.Function, "apply")
if isinstance(_APPLY, classmethod):
    registry.on_call(_APPLY.__func__)(apply)
else:
    registry.call_if(lambda fn: isinstance(fn, types.BuiltinFunctionType) and _is_bound_apply(fn))(_bound_apply)


def _forward(tx: Tracer, cls_value: Value, context: Value, inputs: Sequence[Value]) -> Value:
    forward = cls_value.getattr(tx, "forward")
    if class_lookup(cls_value.as_constant(), "setup_context") is _no_setup:
        return tx.call(forward, [context, *inputs])
    output = tx.call(forward, inputs)
    packed = TupleValue(list(inputs), tuple)
    tx.call(cls_value.getattr(tx, "setup_context"), [context, packed, output])
    return output


def _requires_grad(tx: Tracer, value: Value) -> bool:
    return isinstance(value, TensorValue) and bool(value.fake(tx).requires_grad)
