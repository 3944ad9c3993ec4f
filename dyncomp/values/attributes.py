"""The attribute protocol of CPython for objects of classes written in Python.

    obj.name    a data descriptor of the class, else the object's __dict__, else the class, else __getattr__

What is read of the class is guarded by `class_attrs`, what is read of the object by its `__dict__` entries.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from dyncomp._frame import _core
from dyncomp.errors import GraphBreak
from dyncomp.guards.source import ClassAttr, InstanceDict, SlotAttr, Source, Type
from dyncomp.values import class_writes
from dyncomp.values.base import ABSENT, Tracer, Value
from dyncomp.values.builtin_kind import BuiltinKind
from dyncomp.values.class_facts import (
    C_METHODS,
    GETSET,
    MEMBER,
    TUPLE_GETTER,
    class_lookup,
    is_data_descriptor,
    structseq_fields,
    type_name,
)
from dyncomp.values.function import BoundMethodValue
from dyncomp.values.mapping import DictValue


class Attributes(Value):
    """`storage`: the built-in contents, of instances of container subclasses. `class_source` reaches the class, for guards on what is read of it; None where the class is fixed."""

    def __init__(
        self,
        cls: type,
        source: Source | None = None,
        outside: Any = ABSENT,
        storage: BuiltinKind | None = None,
        class_source: Source | None = None,
        tx: Tracer | None = None,
    ):
        super().__init__(source)
        self.cls, self.outside, self.storage = cls, outside, storage
        self.class_source = Type(source) if source is not None else class_source
        if outside is ABSENT:
            self.namespace = DictValue(owner=self)
        else:
            own = _own_dict(outside)
            dict_source = None if source is None else InstanceDict(source)
            if own is None or dict_source is None:
                items = (
                    None
                    if own is None or tx is None
                    else {k: (tx.constant(k), tx.constant(v)) for k, v in own.items()}
                )
                self.namespace = DictValue(items, owner=self)  # type: ignore[arg-type]
            else:
                self.namespace = DictValue(None, dict, dict_source, tx, own, owner=self)
        self.has_dict = bool(cls.__dictoffset__)
        self.slots: dict[str, Value | None] = {}

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return str(self.source) if self.source is not None else f"a {self.cls.__qualname__} object"

    def real(self) -> Any:
        return self.outside

    # -- the class ------------------------------------------------------------------------------------------
    def class_attribute(self, tx: Tracer, name: str) -> Any:
        """The raw class attribute, guarded."""
        raw = class_lookup(self.cls, name)
        if self.class_source is not None and class_writes.varies(self.cls, name, raw):
            tx.guard(ClassAttr(self.class_source, name), "type", type(raw))  # what it is, is guarded where it is used
        elif self.source is not None:
            tx.guard(self.source, "class_attrs", ((name, _core.ABSENT if raw is ABSENT else raw),))
        elif self.class_source is not None:
            guard_attribute(tx, self.class_source, name, raw)
        return raw

    def class_value(self, tx: Tracer) -> Value:
        return tx.constant(self.cls)

    def _class_item(self, tx: Tracer, name: str, raw: Any) -> Value:
        """A class attribute as a value of its own."""
        return (
            tx.constant(raw)
            if self.class_source is None
            else tx.wrap(raw, ClassAttr(self.class_source, name))
        )

    # -- getattr --------------------------------------------------------------------------------------------
    def getattr(self, tx: Tracer, name: str) -> Value:
        custom = self.class_attribute(tx, "__getattribute__")
        if custom is object.__getattribute__ or isinstance(custom, C_METHODS):
            return self.generic_getattr(tx, name)
        return tx.call(tx.constant(custom), [self, tx.constant(name)])

    def generic_getattr(self, tx: Tracer, name: str) -> Value:
        """object.__getattribute__, then __getattr__."""
        found = self.find_attribute(tx, name)
        if found is not None:
            return found
        fallback = self.class_attribute(tx, "__getattr__")
        if fallback is not ABSENT:
            return tx.call(self._class_item(tx, "__getattr__", fallback), [self, tx.constant(name)])
        tx.raise_(AttributeError, f"{type_name(self.cls)!r} object has no attribute {name!r}")

    def find_attribute(self, tx: Tracer, name: str) -> Value | None:
        """object.__getattribute__ without the error."""
        if name == "__class__":
            return self.class_value(tx)
        written = class_writes.find(tx, self.cls, name)
        raw = self.class_attribute(tx, name) if written is class_writes.UNTOUCHED else ABSENT
        if raw is not ABSENT and is_data_descriptor(raw):
            return self.bind(tx, name, raw)
        if self.has_dict:
            if name == "__dict__":
                return self.namespace
            own = self.namespace.find_name(tx, name)
            if own is not None:
                return own
        if isinstance(written, Value):
            return written
        return None if raw is ABSENT else self.bind(tx, name, raw)

    def bind(self, tx: Tracer, name: str, raw: Any, holder: Source | None = None) -> Value:
        """What reading the class attribute `raw` through this object gives. `holder`: the class that `super()` found it in."""

        def item() -> Value:
            return self._class_item(tx, name, raw) if holder is None else tx.wrap(raw, ClassAttr(holder, name))

        if isinstance(raw, types.FunctionType | functools._lru_cache_wrapper | _core.Dispatcher):
            return BoundMethodValue(item(), self)
        if isinstance(raw, property):
            if raw.fget is None:
                tx.raise_(AttributeError, f"property {name!r} of {type_name(self.cls)!r} object has no getter")
            return tx.call(tx.constant(raw.fget), [self])
        if isinstance(raw, staticmethod):
            return tx.constant(raw.__func__)
        if isinstance(raw, classmethod):
            return BoundMethodValue(tx.constant(raw.__func__), self.class_value(tx))
        if isinstance(raw, functools.cached_property):
            return self._cached_property(tx, raw)
        if name == "__dict__" and isinstance(raw, (MEMBER, GETSET)):
            return self.namespace
        if isinstance(raw, MEMBER):
            return self._slot(tx, name, raw)
        if isinstance(raw, TUPLE_GETTER) and self.storage is not None:
            return self.storage.getitem(tx, tx.constant(raw.__reduce__()[1][0]))
        if isinstance(raw, types.ClassMethodDescriptorType):  # dict.fromkeys
            return tx.constant(raw.__get__(None, self.cls))
        if isinstance(raw, C_METHODS):
            return BoundMethodValue(tx.constant(raw), self)
        if isinstance(raw, GETSET):
            raise GraphBreak("unsupported-attribute", f"attribute {name!r} of {self.describe()}")
        getter = class_lookup(type(raw), "__get__")
        if getter is not ABSENT:
            if not isinstance(getter, types.FunctionType):
                raise GraphBreak("unsupported-attribute", f"descriptor {name!r} of {self.describe()}")
            return tx.call(tx.constant(getter), [item(), self, self.class_value(tx)])
        return item()

    def _cached_property(self, tx: Tracer, raw: Any) -> Value:
        value = tx.call(tx.constant(raw.func), [self])
        self.namespace.store(tx, tx.constant(raw.attrname), value)
        return value

    def _slot(self, tx: Tracer, name: str, raw: Any) -> Value:
        if name in self.slots:
            value = self.slots[name]
            if value is None:
                tx.raise_(AttributeError, f"{type_name(self.cls)!r} object has no attribute {name!r}")
            return value
        if self.storage is not None and hasattr(self.cls, "n_sequence_fields"):
            return self.storage.getitem(tx, tx.constant(structseq_fields(self.cls).index(name)))
        if self.outside is ABSENT:
            tx.raise_(AttributeError, f"{type_name(self.cls)!r} object has no attribute {name!r}")
        try:
            obj = raw.__get__(self.outside)
        except AttributeError:
            raise GraphBreak("unsupported-attribute", f"unset slot {name!r} of {self.describe()}") from None
        return tx.constant(obj) if self.source is None else tx.wrap(obj, SlotAttr(self.source, name))

    def _require_slot(self, tx: Tracer, name: str, raw: Any) -> None:
        """What is to be deleted must be there."""
        if name in self.slots or self.outside is ABSENT:
            if self.slots.get(name) is None:
                tx.raise_(AttributeError, name)
        else:
            self._slot(tx, name, raw)

    # -- setattr --------------------------------------------------------------------------------------------
    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        raw = self.class_attribute(tx, "__setattr__")
        if isinstance(raw, types.FunctionType):
            tx.call(self._class_item(tx, "__setattr__", raw), [self, tx.constant(name), value])
        else:
            self.generic_setattr(tx, name, value)

    def generic_setattr(self, tx: Tracer, name: str, value: Value | None) -> None:
        """object.__setattr__; None deletes, as object.__delattr__."""
        if name == "__class__":
            raise GraphBreak("unsupported-mutation", f"setting __class__ of {self.describe()}")
        untouched = class_writes.find(tx, self.cls, name) is class_writes.UNTOUCHED  # only data is written
        raw = self.class_attribute(tx, name) if untouched else ABSENT
        if isinstance(raw, property):
            self._set_property(tx, name, raw, value)
        elif isinstance(raw, MEMBER) and name != "__dict__":
            if value is None:
                self._require_slot(tx, name, raw)
            self.touch_slot(tx, name, value)
        elif raw is not ABSENT and is_data_descriptor(raw):
            setter = class_lookup(type(raw), "__set__" if value is not None else "__delete__")
            if not isinstance(setter, types.FunctionType):
                raise GraphBreak("unsupported-mutation", f"setting descriptor {name!r} of {self.describe()}")
            given = [] if value is None else [value]
            tx.call(tx.constant(setter), [self._class_item(tx, name, raw), self, *given])
        elif not self.has_dict:
            what = "has no attribute {!r}" if raw is ABSENT else "attribute {!r} is read-only"
            tx.raise_(AttributeError, f"{type_name(self.cls)!r} object {what.format(name)}")
        elif value is not None:
            self.namespace.store(tx, tx.constant(name), value)
        else:
            if self.namespace.find_name(tx, name) is None:
                tx.raise_(AttributeError, f"{type_name(self.cls)!r} object has no attribute {name!r}")
            self.namespace.remove(tx, tx.constant(name))

    def _set_property(self, tx: Tracer, name: str, raw: Any, value: Value | None) -> None:
        function = raw.fset if value is not None else raw.fdel
        if function is None:
            verb = "setter" if value is not None else "deleter"
            tx.raise_(AttributeError, f"property {name!r} of {type_name(self.cls)!r} object has no {verb}")
        tx.call(tx.constant(function), [self] if value is None else [self, value])

    def touch_slot(self, tx: Tracer, name: str, value: Value | None) -> None:
        if self.source is not None:
            tx.effects.touch_slot(self, name)
        self.slots[name] = value

    def delattr(self, tx: Tracer, name: str) -> None:
        raw = self.class_attribute(tx, "__delattr__")
        if isinstance(raw, types.FunctionType):
            tx.call(tx.constant(raw), [self, tx.constant(name)])
        else:
            self.generic_setattr(tx, name, None)


def guard_attribute(tx: Tracer, cls: Source, name: str, raw: Any) -> None:
    """The class finds this, or nothing, under a name."""
    if raw is ABSENT:
        tx.guard(cls, "type_attrs", ((name, _core.ABSENT),))
    else:
        tx.guard(ClassAttr(cls, name), "id", raw)


def _own_dict(obj: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None
