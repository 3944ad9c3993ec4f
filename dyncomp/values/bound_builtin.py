"""Methods of built-in objects and of tensors that come from outside, bound but not called yet: `items.append`, `y.add_`.

In:  the bound method and where it comes from
Out: the method of the value of its object

Programs rarely keep such an object, but a graph that breaks between `items.append(` and its argument does, or inside of `with lock:`:
the rest of the frame gets it on its stack. It is made anew by each call, so it is known by its object and its name, never by identity.
"""

from __future__ import annotations

import collections
import random
import types
from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.guards.source import Local, SlotAttr, Source
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.builtin_kind import BoundBuiltin
from dyncomp.values.registry import call_rule, wrap_if
from dyncomp.values.torch_tensor import TensorMethodValue

_OWNERS = frozenset(
    {
        list,
        dict,
        set,
        collections.OrderedDict,
        collections.defaultdict,
        collections.deque,
        random.Random,
        torch.Tensor,
        torch.nn.Parameter,
    }
)
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def _is_own_method(obj: Any) -> bool:
    """A method of one of the owners that have values of their own."""
    return isinstance(obj, types.BuiltinFunctionType) and type(obj.__self__) in _OWNERS and _says_its_name(obj)


def _says_its_name(obj: Any) -> bool:
    """Whether the type of the object has this very method: then its name says which one it is."""
    cls = type(obj.__self__)
    raw = next((vars(base)[obj.__name__] for base in cls.__mro__ if obj.__name__ in vars(base)), None)
    return isinstance(raw, _METHODS) and bool(raw.__get__(obj.__self__, cls) == obj)  # without the class some of C crash


@wrap_if(_is_own_method, priority=39)
def wrap_bound_builtin(tx: Tracer, obj: Any, source: Source) -> Value:
    """Its type is guarded by who wraps it."""
    owner = tx.wrap(obj.__self__, SlotAttr(source, "__self__"))
    value = owner.getattr(tx, obj.__name__)
    if not isinstance(value, BoundBuiltin | TensorMethodValue):
        return BuiltinValue(obj, source)
    tx.guard(SlotAttr(source, "__name__"), "equals", obj.__name__)
    value.source = source
    return value


class OutsideMethodValue(Value):
    """A method of an object of any class that is written in C, given to the frame by itself: `lock.__exit__`, `file.write`."""

    def __init__(self, obj: Any, source: Source):
        super().__init__(source)
        self.obj = obj

    def python_type(self) -> type:
        return type(self.obj)

    def describe(self) -> str:
        return f"{self.obj.__name__} of a {type(self.obj.__self__).__qualname__} object"

    def truth(self, tx: Tracer) -> bool:
        return True

    def real(self) -> Any:
        return self.obj

    def _owner(self, tx: Tracer) -> Value:
        assert self.source is not None
        return tx.wrap(self.obj.__self__, SlotAttr(self.source, "__self__"))

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__name__":
            return tx.constant(self.obj.__name__)
        return self._owner(tx) if name == "__self__" else super().getattr(tx, name)

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return tx.call(self._owner(tx).getattr(tx, self.obj.__name__), args, kwargs)


def _is_method_of_an_object(obj: Any) -> bool:
    if not isinstance(obj, types.BuiltinFunctionType | types.MethodWrapperType):
        return False
    return not isinstance(obj.__self__, type | types.ModuleType | types.NoneType) and _says_its_name(obj)


@wrap_if(_is_method_of_an_object, priority=39)
def wrap_outside_method(tx: Tracer, obj: Any, source: Source) -> Value:
    if not isinstance(source, Local) or call_rule(obj) is not None and type(obj.__self__) is not torch.device:
        return BuiltinValue(obj, source)
    tx.guard(SlotAttr(source, "__name__"), "equals", obj.__name__)
    tx.guard(SlotAttr(source, "__self__"), "type", type(obj.__self__))
    return OutsideMethodValue(obj, source)
