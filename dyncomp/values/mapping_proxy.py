"""`types.MappingProxyType`: a dictionary seen through a proxy that cannot write to it.

    inspect.signature(f).parameters.items()      of a proxy from outside the dictionary behind it is read: the garbage collector
                                                 tells it, as nothing else does
    types.MappingProxyType(self._items)          made here, and made again by the code where it is kept
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, Const, ListItem, Source
from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.mapping import DictValue
from dyncomp.values.registry import on_call, wrap_type

_READS = frozenset({"copy", "get", "items", "keys", "values"})


class MappingProxyValue(Value):
    """`mapping`: what it shows."""

    def __init__(self, mapping: DictValue, source: Source | None = None, obj: Any = None):
        super().__init__(source)
        self.mapping, self._obj = mapping, obj

    def python_type(self) -> type:
        return types.MappingProxyType

    def describe(self) -> str:
        return f"mappingproxy {self.source or self.mapping.describe()}"

    def real(self) -> Any:
        return super().real() if self._obj is None else self._obj

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(types.MappingProxyType)
        builder.load(self.mapping)
        builder.call(1)

    def getattr(self, tx: Tracer, name: str) -> Value:
        return self.mapping.getattr(tx, name) if name in _READS else super().getattr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if name in _READS or name in ("__contains__", "__getitem__", "__iter__", "__len__"):
            return self.mapping.call_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def getitem(self, tx: Tracer, key: Value) -> Value:
        return self.mapping.getitem(tx, key)

    def setitem(self, tx: Tracer, key: Value, value: Value) -> None:
        tx.raise_(TypeError, "'mappingproxy' object does not support item assignment")

    def delitem(self, tx: Tracer, key: Value) -> None:
        tx.raise_(TypeError, "'mappingproxy' object does not support item deletion")

    def contains(self, tx: Tracer, item: Value) -> Value:
        return self.mapping.contains(tx, item)

    def iterate(self, tx: Tracer) -> Value:
        return self.mapping.iterate(tx)

    def unpack(self, tx: Tracer) -> list[Value]:
        return self.mapping.unpack(tx)

    def length(self, tx: Tracer) -> Value:
        return self.mapping.length(tx)

    def truth(self, tx: Tracer) -> bool:
        return self.mapping.truth(tx)

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if op not in ("==", "!="):
            return super().compare(tx, op, other, reflected)
        return self.mapping.compare(tx, op, other.mapping if isinstance(other, MappingProxyValue) else other, reflected)


@on_call(types.MappingProxyType)
def make_proxy(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    if kwargs or len(args) != 1 or not isinstance(args[0], DictValue):
        raise GraphBreak("unsupported-object", "a mappingproxy of something other than a dictionary")
    return MappingProxyValue(args[0])


@wrap_type(types.MappingProxyType)
def wrap_proxy(tx: Tracer, obj: Any, source: Source) -> Value:
    if isinstance(source, Const):  # a fixed one
        pairs: list[tuple[Any, Any]] = [(tx.constant(key), tx.constant(value)) for key, value in obj.items()]
        value = DictValue({key.key(tx): (key, value) for key, value in pairs}, types.MappingProxyType)
        value.read_only = True
        return value
    behind = gc.get_referents(obj)[0]
    if type(behind) in (dict, collections.OrderedDict):
        mapping = tx.wrap(behind, ListItem(Call(source, gc.get_referents), 0))
        if isinstance(mapping, DictValue):
            return MappingProxyValue(mapping, source, obj)
    raise GraphBreak("unsupported-object", f"{source}: a mappingproxy of a {type(behind).__name__}")
