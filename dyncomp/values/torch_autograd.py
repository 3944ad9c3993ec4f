"""Custom autograd functions: `F.apply(x)`.

    no gradient wanted      `F.forward(ctx, x)` is inlined; what it keeps on ctx is for a backward that never runs
    a gradient wanted       `forward` is inlined without gradient, then `backward` is traced, and a node gives the results
                            their history (`backward_trace`)

What a backward cannot be told here breaks the graph: it stays autograd's.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version

from dyncomp.errors import GraphBreak
from dyncomp.values import registry
from dyncomp.values.backward_trace import in_custom_backward, trace_backward
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin_kind import BoundBuiltin, BuiltinKind
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.context_state import set_flag
from dyncomp.values.sequence import TupleValue
from dyncomp.values.torch_tensor import TensorValue, tensors_of

_NOTES = frozenset({"save_for_backward", "save_for_forward", "mark_non_differentiable", "mark_dirty", "set_materialize_grads"})
_MOST_RESULTS = 3
_no_setup: Any = class_lookup(torch.autograd.Function, "setup_context")


class AutogradContextValue(Value):
    """The `ctx` of one call: attributes, and what forward told autograd."""

    def __init__(self, cls: type, needs: tuple[bool, ...]):
        super().__init__()
        self._cls, self._needs = cls, needs
        self._attributes: dict[str, Value] = {}
        self._saved: list[Value] = []
        self.unmarked: set[int] = set()  # of results that get no gradient, by id of the value
        self.dirty: list[Value] = []
        self.in_backward = False
        self.was_read = False  # `saved_tensors`, by the backward that was traced last
        self.materializes = True

    def python_type(self) -> type:
        return self._cls._backward_cls  # type: ignore[attr-defined, no-any-return]

    def describe(self) -> str:
        return f"the ctx of {self._cls.__qualname__}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def saved_tensors(self) -> list[TensorValue]:
        """What forward put under autograd's watch."""
        return [value for value in self._saved if isinstance(value, TensorValue)]

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        if self.in_backward:
            raise GraphBreak("autograd", f"setting ctx.{name} in a custom backward")
        self._attributes[name] = value

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name in self._attributes:
            value = self._attributes[name]
            if self.in_backward and not _is_lasting(value):
                raise GraphBreak("autograd", f"ctx.{name}, an object made in forward, in a custom backward")
            return value
        if name == "saved_tensors" and self.in_backward:
            self.was_read = True
            return TupleValue(list(self._saved), tuple)
        if name in _NOTES and not self.in_backward:
            return BoundBuiltin(self, name)
        if name == "needs_input_grad":
            return tx.constant(self._needs)
        where = "backward" if self.in_backward else "forward"
        raise GraphBreak("autograd", f"ctx.{name} in the {where} of a custom autograd function")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if name not in _NOTES or kwargs:
            return super().call_method(tx, name, args, kwargs)
        if name == "save_for_backward":
            self._saved = list(args)
        elif name == "mark_non_differentiable":
            self.unmarked = set(map(id, args))
        elif name == "mark_dirty":
            self.dirty = list(args)
        elif name == "set_materialize_grads":
            self.materializes = args[0].truth(tx)
        return tx.constant(None)


def _is_lasting(value: Value) -> bool:
    """True for what is the same when backward reads it: no object that the trace made and may change."""
    if isinstance(value, TupleValue):
        return all(map(_is_lasting, value.items))
    if isinstance(value, BuiltinKind) and value.source is None:  # a list of constants may be written to by each backward
        return False
    return value.source is not None or value.symbolic or isinstance(value, TensorValue) or value.is_constant()


def apply(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    cls_value, *inputs = args
    cls = cls_value.as_constant()
    if kwargs:
        raise GraphBreak("autograd", f"the custom autograd function {cls.__qualname__} with keyword arguments")
    if tx.fake_mode.levels:  # eager follows rules of its own there, and refuses functions that have none
        raise GraphBreak("autograd", f"the custom autograd function {cls.__qualname__} inside of a function transform")
    if in_custom_backward(tx):  # eager could differentiate it once more, and by its own formula
        raise GraphBreak("autograd", f"the custom autograd function {cls.__qualname__} in the backward of another")
    needs = tuple([torch.is_grad_enabled() and _requires_grad(tx, value) for value in inputs])
    context = AutogradContextValue(cls, needs)
    before = {id(value) for value in tensors_of(tx)}
    output = _forward_without_gradient(tx, cls_value, context, inputs)
    returned = output.unpack(tx) if issubclass(output.python_type(), tuple) else [output]
    if any(needs):
        _refuse_what_stays_autograds(tx, cls, context, inputs, returned, before)
        with_history = iter(trace_backward(tx, cls, cls_value.getattr(tx, "backward"), context, inputs, returned))
        items = [next(with_history) if isinstance(value, TensorValue) else value for value in returned]
    else:
        for value in context.dirty:  # eager's counts it besides the writes
            if isinstance(value, TensorValue):
                tx.graph_call(increment_version, [value])
        given = [id(value) for value in inputs if isinstance(value, TensorValue) and all(value is not one for one in context.dirty)]
        items = [tx.graph_call("view_as", [value, value]) if id(value) in given else value for value in returned]
    return TupleValue(items, output.python_type()) if isinstance(output, TupleValue) else items[0]


def _refuse_what_stays_autograds(
    tx: Tracer, cls: type, context: AutogradContextValue, inputs: Sequence[Value], returned: Sequence[Value], before: set[int]
) -> None:
    name = f"the custom autograd function {cls.__qualname__}"
    tensors = [value for value in returned if isinstance(value, TensorValue)]
    if not context.materializes and len(tensors) > _MOST_RESULTS:  # a backward for each part of them
        raise GraphBreak("autograd", f"{name}, whose backward takes undefined gradients of more than {_MOST_RESULTS} results")
    if any(all(value is not one for one in inputs) for value in context.dirty):
        raise GraphBreak("autograd", f"{name}, which marks as written to what is no input")
    if len(set(map(id, tensors))) < len(tensors) or not tensors:
        raise GraphBreak("autograd", f"{name}, which returns no tensor or one twice")
    if any(id(value) in before and all(value is not given for given in inputs) for value in tensors):
        raise GraphBreak("autograd", f"{name}, which returns a tensor that it did not make")


def _forward_without_gradient(tx: Tracer, cls_value: Value, context: Value, inputs: Sequence[Value]) -> Value:
    before = tx.constant(torch.is_grad_enabled())
    set_flag(tx, torch._C._set_grad_enabled, [tx.constant(False)], {})
    try:
        return _forward(tx, cls_value, context, inputs)
    finally:
        set_flag(tx, torch._C._set_grad_enabled, [before], {})


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
