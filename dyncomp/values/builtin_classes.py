"""Calls that ask for attributes and classes: getattr, setattr, type, isinstance, super..."""

from __future__ import annotations

import abc
import operator
import types
import typing
from collections.abc import Iterator
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, Const
from dyncomp.values.base import ABSENT, PyRaise, Tracer, Value
from dyncomp.values.builtin_arguments import Args, Kwargs, name_of, one_argument
from dyncomp.values.class_facts import HEAP_TYPE, class_lookup
from dyncomp.values.constant import fold_call
from dyncomp.values.exception import note_attribute_error
from dyncomp.values.instance import InstanceValue
from dyncomp.values.registry import on_call
from dyncomp.values.sequence_base import SequenceValue
from dyncomp.values.super_value import SuperValue
from dyncomp.values.varying_key import note_key


@on_call(getattr)
def _getattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    note_key(tx, args[1], args[0])
    name = name_of(args[1])
    try:
        return args[0].getattr(tx, name)
    except PyRaise as error:
        if len(args) > 2 and issubclass(error.value.python_type(), AttributeError):
            return args[2]
        note_attribute_error(tx, error.value, args[0], name)
        raise


@on_call(hasattr)
def _hasattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    note_key(tx, args[1], args[0])
    return tx.constant(tx.has_attribute(args[0], name_of(args[1])))


@on_call(setattr)
def _setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    note_key(tx, args[1], args[0])
    args[0].setattr(tx, name_of(args[1]), args[2])
    return tx.constant(None)


@on_call(delattr)
def _delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    note_key(tx, args[1], args[0])
    args[0].delattr(tx, name_of(args[1]))
    return tx.constant(None)


@on_call(vars)
def _vars(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    obj = one_argument(tx, "vars", args, kwargs)
    try:
        return obj.getattr(tx, "__dict__")
    except PyRaise as error:
        if issubclass(error.value.python_type(), AttributeError):
            tx.raise_(TypeError, "vars() argument must have __dict__ attribute")
        raise


# -- classes ----------------------------------------------------------------------------------------------
@on_call(type)
def _type(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise GraphBreak("unsupported-builtin", "a class made by type()")
    value = args[0]
    return value.class_value(tx) if isinstance(value, InstanceValue) else tx.constant(value.python_type())


def _classes(tx: Tracer, value: Value) -> Iterator[Any]:
    """The classes in the second argument of isinstance, flattened."""
    if isinstance(value, SequenceValue):
        for item in value.items:
            yield from _classes(tx, item)
        return
    if not value.is_constant():
        raise GraphBreak("eager-error", f"isinstance with {value.describe()}, which is no class")
    cls = value.as_constant()
    yield from cls.__args__ if isinstance(cls, types.UnionType) else (cls,)


@on_call(isinstance)
def _isinstance(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    for cls in _classes(tx, args[1]):
        if not isinstance(cls, type):
            return fold_call(tx, isinstance, args, kwargs)
        if value.python_type() is cls:  # Python does not ask the metaclass then
            return tx.constant(True)
        custom = class_lookup(type(cls), "__instancecheck__")
        if isinstance(custom, types.FunctionType) and not _is_abc_check(custom) and not _knows_better(value):
            if tx.call(tx.constant(custom), [tx.constant(cls), value]).truth(tx):
                return tx.constant(True)
        elif _is_instance(tx, value, cls):
            return tx.constant(True)
    return tx.constant(False)


def _is_instance(tx: Tracer, value: Value, cls: type) -> bool:
    if getattr(cls, "_is_protocol", False) and type(cls).__module__ == "typing":
        return _fits_protocol(tx, value, cls)
    if value.isinstance_of(tx, cls):
        return True
    if isinstance(cls, abc.ABCMeta) and value.python_type().__flags__ & HEAP_TYPE:
        # Any class may be registered with an abstract one later.
        token = abc.get_cache_token()
        tx.guard(Call(Const(abc.get_cache_token, "abc.get_cache_token"), _CALL_IT), "equals", token)
    return False


def _fits_protocol(tx: Tracer, value: Value, cls: Any) -> bool:
    """isinstance with a protocol asks for its members, on the object itself too."""
    if not getattr(cls, "_is_runtime_protocol", False):
        raise GraphBreak("eager-error", f"isinstance with {cls.__qualname__}, which is no runtime protocol")
    if cls in value.python_type().__mro__:
        return True
    members = {
        name
        for base in cls.__mro__[:-1]
        if getattr(base, "_is_protocol", False) and base.__name__ not in ("Protocol", "Generic")
        for name in (*vars(base), *vars(base).get("__annotations__", {}))
        if not name.startswith("_abc_") and name not in _PROTOCOL_MACHINERY
    }
    return all(tx.has_attribute(value, name) for name in sorted(members))


_CALL_IT = operator.methodcaller("__call__")
# What a protocol class has besides its members.
_PROTOCOL_MACHINERY = frozenset(
    {
        *vars(typing.Protocol),
        *vars(type("_Plain", (), {})),
        "__abstractmethods__",
        "__annotations__",
        "__orig_bases__",
        "__class_getitem__",
        "__match_args__",
        "__firstlineno__",
        "__static_attributes__",
        "__protocol_attrs__",
        "__non_callable_proto_members__",
        "__callable_proto_members_only__",
        "_is_runtime_protocol",
    }
)


def _is_abc_check(custom: types.FunctionType) -> bool:
    return custom.__module__ in ("abc", "typing", "_py_abc")


def _knows_better(value: Value) -> bool:
    """Tensors answer for the metaclasses of torch themselves."""
    return type(value).isinstance_of is not Value.isinstance_of


@on_call(type.__instancecheck__)
def _plain_instancecheck(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(args[1].isinstance_of(tx, args[0].as_constant()))


@on_call(issubclass)
def _issubclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return fold_call(tx, issubclass, args, kwargs)


@on_call(callable)
def _callable(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = one_argument(tx, "callable", args, kwargs)
    if isinstance(value, InstanceValue):
        return tx.constant(value.class_attribute(tx, "__call__") is not ABSENT)
    return tx.constant(class_lookup(value.python_type(), "__call__") is not class_lookup(object, "__call__"))


@on_call(super)
def _super(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args:
        start = args[0].as_constant() if args[0].is_constant() else None
        if len(args) == 1 or not isinstance(start, type):
            raise GraphBreak("unsupported-builtin", "super() of one argument, or of no class")
        return SuperValue(start, args[1])
    frame = tx.frames[-1]
    if not frame.code.co_argcount:
        tx.raise_(RuntimeError, "super(): no arguments")
    first = frame.code.co_varnames[0]
    receiver = frame.variable(first) or (frame.cells[first].contents if first in frame.cells else None)
    if receiver is None:
        tx.raise_(RuntimeError, "super(): arg[0] deleted")
    if "__class__" not in frame.cells:
        tx.raise_(RuntimeError, "super(): __class__ cell not found")
    start = frame.cells["__class__"].contents
    if start is None:
        tx.raise_(RuntimeError, "super(): empty __class__ cell")
    return SuperValue(start.as_constant(), receiver)


@on_call(property, classmethod, staticmethod)
def _descriptor(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-builtin", "a descriptor made inside the compiled function")
