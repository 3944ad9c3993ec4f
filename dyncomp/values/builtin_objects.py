"""What classes inherit from the builtin ones: `object.__setattr__`, `dict.__init__`, `tuple.__new__`..."""

from __future__ import annotations

import collections
import types
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values import class_writes
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin_arguments import Args, Kwargs, name_of
from dyncomp.values.builtin_containers import filled_dict
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.exception import ExceptionValue
from dyncomp.values.instance import InstanceValue
from dyncomp.values.klass import ClassValue
from dyncomp.values.mapping import DictValue
from dyncomp.values.registry import call_if, on_call
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.sets import SetValue


def _instance(value: Value, what: str) -> InstanceValue:
    if not isinstance(value, InstanceValue):
        raise GraphBreak("unsupported-builtin", f"{what} of {value.describe()}")
    return value


@on_call(object.__setattr__)
def _object_setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _instance(args[0], "object.__setattr__").generic_setattr(tx, name_of(args[1]), args[2])
    return tx.constant(None)


@on_call(object.__delattr__)
def _object_delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _instance(args[0], "object.__delattr__").generic_setattr(tx, name_of(args[1]), None)
    return tx.constant(None)


@on_call(type.__setattr__)
def _type_setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    class_writes.store(tx, args[0], _class_of(args[0]), name_of(args[1]), args[2])
    return tx.constant(None)


@on_call(type.__delattr__)
def _type_delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    class_writes.store(tx, args[0], _class_of(args[0]), name_of(args[1]), None)
    return tx.constant(None)


def _class_of(value: Value) -> type:
    if not isinstance(value, ClassValue):
        raise GraphBreak("unsupported-mutation", f"setting an attribute of {value.describe()} by type.__setattr__")
    return value.cls


@on_call(object.__getattribute__)
def _object_getattribute(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = _instance(args[0], "object.__getattribute__")
    found = value.find_attribute(tx, name_of(args[1]))
    if found is None:
        tx.raise_(AttributeError, f"{value.cls.__name__!r} object has no attribute {name_of(args[1])!r}")
    return found


@on_call(object)
def _object(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return InstanceValue(object)


@on_call(object.__new__, dict.__new__, list.__new__, set.__new__)  # OrderedDict and defaultdict have dict's
def _object_new(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = args[0]
    if not isinstance(cls, ClassValue):
        raise GraphBreak("unsupported-builtin", "__new__ of an unknown class")
    if len(args) > 1 or kwargs:
        _refuse_excess(tx, cls.cls)
    return cls.new_instance(tx, args[1:])


def _refuse_excess(tx: Tracer, cls: type) -> None:
    """object.__new__ takes arguments only for an `__init__` that follows."""
    if issubclass(cls, dict | list | set) or issubclass(cls, BaseException):
        return
    if class_lookup(cls, "__new__") is not object.__new__:
        tx.raise_(TypeError, "object.__new__() takes exactly one argument (the type to instantiate)")
    if class_lookup(cls, "__init__") is object.__init__:
        tx.raise_(TypeError, f"{cls.__name__}() takes no arguments")


@on_call(tuple.__new__)
def _tuple_new(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = args[1].unpack(tx) if len(args) > 1 else []
    if args[0].as_constant() is tuple:
        return tx.tuple_of(items)
    cls = args[0]
    assert isinstance(cls, ClassValue)
    made = cls.new_instance(tx)
    made.storage = TupleValue(items, tuple)
    return made


@on_call(frozenset.__new__)
def _frozenset_new(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    filled = tx.call(tx.constant(frozenset), args[1:])
    cls = args[0]
    if cls.as_constant() is frozenset:
        return filled
    assert isinstance(cls, ClassValue) and isinstance(filled, SetValue)
    made = cls.new_instance(tx)
    made.storage = SetValue(filled.items, frozenset, layout=filled.layout)
    return made


@on_call(object.__init_subclass__)
def _object_init_subclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(None)


@on_call(object.__init__)
def _object_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Arguments are an error where nobody else can have used them."""
    if len(args) > 1 or kwargs:
        cls = args[0].python_type()
        if class_lookup(cls, "__init__") is not object.__init__:
            tx.raise_(TypeError, "object.__init__() takes exactly one argument (the instance to initialize)")
        if class_lookup(cls, "__new__") is object.__new__:
            tx.raise_(TypeError, f"{cls.__name__}.__init__() takes exactly one argument (the instance to initialize)")
    return tx.constant(None)


@on_call(dict.__init__, collections.OrderedDict.__init__)
def _dict_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    storage = getattr(args[0], "storage", args[0])
    assert isinstance(storage, DictValue)
    filled_dict(tx, storage, args[1:], kwargs)
    return tx.constant(None)


@on_call(types.SimpleNamespace.__init__)
def _namespace_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = args[0]
    if len(args) > 1 or not isinstance(made, InstanceValue):
        raise GraphBreak("unsupported-builtin", "SimpleNamespace of a mapping")
    for name, value in kwargs.items():
        made.namespace.store(tx, tx.constant(name), value)
    return tx.constant(None)


@on_call(list.__init__)
def _list_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) > 2:
        raise GraphBreak("eager-error", "list() with these arguments")
    storage = getattr(args[0], "storage", args[0])
    assert isinstance(storage, ListValue)
    storage.replace(tx, args[1].unpack(tx) if len(args) > 1 else [])
    return tx.constant(None)


def _is_exception_init(fn: Any) -> bool:
    return (
        isinstance(fn, types.WrapperDescriptorType)
        and fn.__name__ == "__init__"
        and issubclass(fn.__objclass__, BaseException)
    )


@call_if(_is_exception_init, priority=60)
def call_exception_init(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    error = args[0]
    if kwargs or not isinstance(error, ExceptionValue):
        raise GraphBreak("exception", f"{error.describe()} initialised with keywords")
    error.args = list(args[1:])
    return tx.constant(None)


@on_call(object.__eq__)
def _object_eq(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(True if args[0] is args[1] else NotImplemented)


@on_call(type.__call__)
def _type_call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = args[0]
    if not isinstance(cls, ClassValue):
        raise GraphBreak("unsupported-builtin", "type.__call__ of an unknown class")
    return cls.instantiate(tx, args[1:], kwargs)
