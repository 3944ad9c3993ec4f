"""Objects of classes written in Python, from outside or made while tracing: their special methods.

    obj[key], obj + 1, len(obj)     the method that type(obj) has, past the object's own attributes; of a container subclass that
                                    does not override it, the method of its built-in contents

Attributes are in `attributes.py`, the code that makes an instance in `instance_rebuild.py`.
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Source
from dyncomp.values import special_results
from dyncomp.values.attributes import Attributes
from dyncomp.values.base import ABSENT, Builder, Tracer, Value
from dyncomp.values.builtin_kind import BuiltinKind
from dyncomp.values.class_facts import C_METHODS, class_lookup, is_plain, is_structseq, type_name
from dyncomp.values.identity_key import IdentityKey
from dyncomp.values.instance_rebuild import rebuild
from dyncomp.values.instance_storage import outside_storage
from dyncomp.values.iterators import ItemsIterator
from dyncomp.values.mapping import DictValue
from dyncomp.values.operator_slots import BINARY_SLOTS, COMPARE_SLOTS, UNARY_SLOTS
from dyncomp.values.registry import wrap_if

# What CPython says of a special method that a class sets to None.
_TAKEN_BACK = {
    "__contains__": "'{}' object is not a container",
    "__iter__": "'{}' object is not iterable",
    "__reversed__": "'{}' object is not reversible",
}


class InstanceValue(Attributes):
    # -- what it is -----------------------------------------------------------------------------------------
    def key(self, tx: Tracer) -> Hashable:
        raw = self.class_attribute(tx, "__hash__")
        if raw is None:
            tx.raise_(TypeError, f"unhashable type: {type_name(self.cls)!r}")
        if isinstance(raw, C_METHODS):
            if raw.__objclass__ is object:
                return IdentityKey(self)
            if self.storage is not None:
                return self.storage.key(tx)
        raise GraphBreak(
            "unsupported-object", f"{self.describe()} as a dict key (its class defines __hash__)"
        )

    def fx_arg(self, tx: Tracer) -> Any:
        if self.storage is not None:
            return self.storage.fx_arg(tx)
        return super().fx_arg(tx)

    # -- special methods -------------------------------------------------------------------------------------
    def special(self, tx: Tracer, name: str, *args: Value) -> Value | None:
        """type(self).name(self, *args), or None if the class has no such method."""
        raw = self.class_attribute(tx, name)
        if raw is ABSENT:
            return None
        if raw is None:  # so a class takes a method back that its base has
            tx.raise_(TypeError, _TAKEN_BACK.get(name, "'NoneType' object is not callable").format(type_name(self.cls)))
        if isinstance(raw, C_METHODS) and self.storage is not None and raw.__objclass__ is not object:
            return self.storage_call(tx, name, list(args), {})
        return tx.call(self.bind(tx, name, raw), list(args))

    def storage_call(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """A method of the built-in base class, past what this class overrides."""
        assert self.storage is not None
        if name == "__getitem__" and isinstance(self.storage, DictValue) and len(args) == 1:
            if self.storage.find(tx, args[0]) is None and class_lookup(self.cls, "__missing__") is not ABSENT:
                return self._required(tx, "__missing__", "has no __missing__", args[0])
        result = self.storage.call_method(tx, name, args, kwargs)
        return self if result is self.storage else result  # of in-place methods

    def _required(self, tx: Tracer, name: str, what: str, *args: Value) -> Value:
        result = self.special(tx, name, *args)
        if result is None:
            tx.raise_(TypeError, f"{type_name(self.cls)!r} object {what}")
        return result

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        raw = self.class_attribute(tx, "__call__")
        if raw is ABSENT:
            tx.raise_(TypeError, f"{type_name(self.cls)!r} object is not callable")
        return tx.call(self.bind(tx, "__call__", raw), args, kwargs)

    def getitem(self, tx: Tracer, key: Value) -> Value:
        return self._required(tx, "__getitem__", "is not subscriptable", key)

    def setitem(self, tx: Tracer, key: Value, value: Value) -> None:
        self._required(tx, "__setitem__", "does not support item assignment", key, value)

    def delitem(self, tx: Tracer, key: Value) -> None:
        self._required(tx, "__delitem__", "does not support item deletion", key)

    def contains(self, tx: Tracer, item: Value) -> Value:
        result = self.special(tx, "__contains__", item)
        if result is not None:
            return tx.constant(result.truth(tx))
        walks = self.class_attribute(tx, "__iter__")
        if walks is None or walks is ABSENT and class_lookup(self.cls, "__getitem__") is ABSENT:
            tx.raise_(TypeError, f"argument of type {type_name(self.cls)!r} is not iterable")
        return tx.tuple_of(self.unpack(tx)).contains(tx, item)

    def iterate(self, tx: Tracer) -> Value:
        result = self.special(tx, "__iter__")
        if result is not None:
            return result
        if class_lookup(self.cls, "__getitem__") is not ABSENT:
            return ItemsIterator(self)
        tx.raise_(TypeError, f"{type_name(self.cls)!r} object is not iterable")

    def next(self, tx: Tracer) -> Value | None:
        return tx.catch_stop(lambda: self._required(tx, "__next__", "is not an iterator"))

    def length(self, tx: Tracer) -> Value:
        result = self.special(tx, "__len__")
        if result is None:
            tx.raise_(TypeError, f"object of type {type_name(self.cls)!r} has no len()")
        return special_results.length(tx, result)

    def truth(self, tx: Tracer) -> bool:
        result = self.special(tx, "__bool__")
        if result is not None:
            return special_results.truth(tx, result)
        result = self.special(tx, "__len__")
        return True if result is None else special_results.length(tx, result).truth(tx)

    def unary(self, tx: Tracer, op: str) -> Value:
        result = self.special(tx, UNARY_SLOTS[op])
        if result is None:
            tx.raise_(TypeError, f"bad operand type for unary {op}: {type_name(self.cls)!r}")
        return result

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        slot = BINARY_SLOTS[op]
        if inplace:
            result = _implemented(self.special(tx, f"__i{slot}__", other))
            if result is not None:
                return result
        return _implemented(self.special(tx, f"__r{slot}__" if reflected else f"__{slot}__", other))

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        name = COMPARE_SLOTS[op]
        raw = self.class_attribute(tx, name)
        if isinstance(raw, C_METHODS) and raw.__objclass__ is object:
            if op != "!=":
                return None
            inverse = self.compare(tx, "==", other, reflected)
            return None if inverse is None else tx.constant(not inverse.truth(tx))
        if raw in (types.SimpleNamespace.__eq__, types.SimpleNamespace.__ne__):
            alike = isinstance(other, InstanceValue) and issubclass(other.cls, types.SimpleNamespace)
            return self.namespace.compare(tx, op, other.namespace) if alike else None  # type: ignore[attr-defined]
        if isinstance(raw, C_METHODS) and self.storage is not None:
            storage = getattr(other, "storage", None)
            return self.storage.compare(tx, op, storage if isinstance(storage, BuiltinKind) else other)
        return _implemented(self.special(tx, name, other))

    def reconstruct(self, builder: Builder) -> None:
        if self.outside is not ABSENT:
            builder.load_const(self.outside)
        else:
            rebuild(self, builder)


def _implemented(result: Value | None) -> Value | None:
    if result is None or result.is_constant() and result.as_constant() is NotImplemented:
        return None
    return result


@wrap_if(lambda obj: is_plain(type(obj)) or is_structseq(type(obj)), priority=90)
def wrap_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    value = InstanceValue(type(obj), source, obj, outside_storage(tx, obj, source), tx=tx)
    return value
