"""Objects of classes written in Python, from outside or made while tracing: the attribute protocol of
CPython.

    obj.name    a data descriptor of the class, else the object's __dict__, else the class, else __getattr__

`storage` holds the built-in contents of instances of dict, list, tuple and set subclasses (and of
exceptions). What is read of the class is guarded by `class_attrs`, what is read of the object by its
`__dict__` entries.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Hashable, Sequence
from typing import Any

from dyncomp._frame import _core
from dyncomp.errors import GraphBreak
from dyncomp.guards.source import ClassAttr, InstanceDict, SlotAttr, Source, Type
from dyncomp.values.base import ABSENT, Builder, Tracer, Value
from dyncomp.values.builtin_kind import BuiltinKind
from dyncomp.values.function import BoundMethodValue
from dyncomp.values.identity_key import IdentityKey
from dyncomp.values.mapping import DictValue
from dyncomp.values.operators import BINARY_SLOTS, COMPARE_SLOTS, UNARY_SLOTS
from dyncomp.values.registry import wrap_if
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.sets import SetValue

HEAP_TYPE = 1 << 9
NOT_INSTANTIABLE = 1 << 7
MEMBER = types.MemberDescriptorType
GETSET = types.GetSetDescriptorType
C_METHODS = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
TUPLE_GETTER = type(collections.namedtuple("_Probe", "x").x)  # type: ignore[attr-defined]

# The built-in classes whose subclasses can be followed.
CONTAINER_BASES = (dict, collections.OrderedDict, collections.defaultdict, list, tuple, set, frozenset)
# C classes whose instances are a `__dict__` and nothing else.
BARE_BASES = (object, types.SimpleNamespace)


def class_lookup(cls: type, name: str) -> Any:
    """The raw attribute that the MRO gives, or ABSENT."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return ABSENT


def type_name(cls: type) -> str:
    """The name that CPython's messages give: with the module for a class of C, but for the built-in ones."""
    plain = cls.__flags__ & HEAP_TYPE or cls.__module__ == "builtins"
    return cls.__name__ if plain else f"{cls.__module__}.{cls.__name__}"


@functools.lru_cache(maxsize=4096)
def solid_base(cls: type) -> type | None:
    """The C class that gives instances their layout; None for objects that C code may treat in its own
    way."""
    for base in cls.__mro__:
        if base in CONTAINER_BASES or base in BARE_BASES:
            return base
        new = base.__dict__.get("__new__")
        if new is not None and not isinstance(new, (staticmethod, types.FunctionType)):
            return base
        if not base.__flags__ & HEAP_TYPE or base.__flags__ & NOT_INSTANTIABLE:
            return None
    return None


def is_plain(cls: type) -> bool:
    """Instances are a `__dict__`, slots and perhaps one of the containers."""
    base = solid_base(cls)
    return base in BARE_BASES or base in CONTAINER_BASES


class InstanceValue(Value):
    """`class_source` reaches the class, for guards on what is read of it; None where the class is fixed."""

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

    # -- what it is -----------------------------------------------------------------------------------------
    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return str(self.source) if self.source is not None else f"a {self.cls.__qualname__} object"

    def real(self) -> Any:
        return self.outside

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

    # -- the class ------------------------------------------------------------------------------------------
    def class_attribute(self, tx: Tracer, name: str) -> Any:
        """The raw class attribute, guarded."""
        raw = class_lookup(self.cls, name)
        if self.source is not None:
            tx.guard(self.source, "class_attrs", ((name, _core.ABSENT if raw is ABSENT else raw),))
        elif self.class_source is not None and raw is not ABSENT:
            tx.guard(ClassAttr(self.class_source, name), "id", raw)
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
        custom = class_lookup(self.cls, "__getattribute__")
        if custom is object.__getattribute__ or isinstance(custom, C_METHODS):
            return self.generic_getattr(tx, name)
        return tx.call(tx.constant(self.class_attribute(tx, "__getattribute__")), [self, tx.constant(name)])

    def generic_getattr(self, tx: Tracer, name: str) -> Value:
        """object.__getattribute__, then __getattr__."""
        found = self.find_attribute(tx, name)
        if found is not None:
            return found
        fallback = class_lookup(self.cls, "__getattr__")
        if fallback is not ABSENT:
            return tx.call(
                self._class_item(tx, "__getattr__", self.class_attribute(tx, "__getattr__")),
                [self, tx.constant(name)],
            )
        tx.raise_(AttributeError, f"{type_name(self.cls)!r} object has no attribute {name!r}")

    def find_attribute(self, tx: Tracer, name: str) -> Value | None:
        """object.__getattribute__ without the error."""
        if name == "__class__":
            return self.class_value(tx)
        raw = self.class_attribute(tx, name)
        if raw is not ABSENT and is_data_descriptor(raw):
            return self.bind(tx, name, raw)
        if self.has_dict:
            if name == "__dict__":
                return self.namespace
            own = self.namespace.find_name(tx, name)
            if own is not None:
                return own
        return None if raw is ABSENT else self.bind(tx, name, raw)

    def bind(self, tx: Tracer, name: str, raw: Any) -> Value:
        """What reading the class attribute `raw` through this object gives."""
        if isinstance(raw, types.FunctionType | functools._lru_cache_wrapper | _core.Dispatcher):
            return BoundMethodValue(self._class_item(tx, name, raw), self)
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
        if isinstance(raw, C_METHODS):
            return BoundMethodValue(tx.constant(raw), self)
        if isinstance(raw, GETSET):
            raise GraphBreak("unsupported-attribute", f"attribute {name!r} of {self.describe()}")
        getter = class_lookup(type(raw), "__get__")
        if getter is not ABSENT:
            if not isinstance(getter, types.FunctionType):
                raise GraphBreak("unsupported-attribute", f"descriptor {name!r} of {self.describe()}")
            return tx.call(tx.constant(getter), [self._class_item(tx, name, raw), self, self.class_value(tx)])
        return self._class_item(tx, name, raw)

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

    # -- setattr --------------------------------------------------------------------------------------------
    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        raw = class_lookup(self.cls, "__setattr__")
        if isinstance(raw, types.FunctionType):
            tx.call(
                self._class_item(tx, "__setattr__", self.class_attribute(tx, "__setattr__")),
                [self, tx.constant(name), value],
            )
        else:
            self.generic_setattr(tx, name, value)

    def generic_setattr(self, tx: Tracer, name: str, value: Value | None) -> None:
        """object.__setattr__; None deletes, as object.__delattr__."""
        if name == "__class__":
            raise GraphBreak("unsupported-mutation", f"setting __class__ of {self.describe()}")
        raw = self.class_attribute(tx, name)
        if isinstance(raw, property):
            self._set_property(tx, name, raw, value)
        elif isinstance(raw, MEMBER) and name != "__dict__":
            self.touch_slot(tx, name, value)
        elif raw is not ABSENT and is_data_descriptor(raw):
            setter = class_lookup(type(raw), "__set__")
            if value is None or not isinstance(setter, types.FunctionType):
                raise GraphBreak("unsupported-mutation", f"setting descriptor {name!r} of {self.describe()}")
            tx.call(tx.constant(setter), [self._class_item(tx, name, raw), self, value])
        elif not self.has_dict:
            tx.raise_(AttributeError, f"{type_name(self.cls)!r} object has no attribute {name!r}")
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
        raw = class_lookup(self.cls, "__delattr__")
        if isinstance(raw, types.FunctionType):
            tx.call(tx.constant(self.class_attribute(tx, "__delattr__")), [self, tx.constant(name)])
        else:
            self.generic_setattr(tx, name, None)

    # -- special methods -------------------------------------------------------------------------------------
    def special(self, tx: Tracer, name: str, *args: Value) -> Value | None:
        """type(self).name(self, *args), or None if the class has no such method."""
        raw = class_lookup(self.cls, name)
        if raw is ABSENT:
            return None
        raw = self.class_attribute(tx, name)
        if raw is None:
            return None
        if isinstance(raw, C_METHODS) and self.storage is not None and raw.__objclass__ is not object:
            return self.storage_call(tx, name, list(args), {})
        return tx.call(self.bind(tx, name, raw), list(args))

    def storage_call(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """A method of the built-in base class, past what this class overrides."""
        assert self.storage is not None
        if name == "__getitem__" and isinstance(self.storage, DictValue) and len(args) == 1:
            if self.storage.find(tx, args[0]) is None and class_lookup(self.cls, "__missing__") is not ABSENT:
                return self._required(tx, "__missing__", "has no __missing__", args[0])
        return self.storage.call_method(tx, name, args, kwargs)

    def _required(self, tx: Tracer, name: str, what: str, *args: Value) -> Value:
        result = self.special(tx, name, *args)
        if result is None:
            tx.raise_(TypeError, f"{type_name(self.cls)!r} object {what}")
        return result

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        raw = class_lookup(self.cls, "__call__")
        if raw is ABSENT:
            tx.raise_(TypeError, f"{type_name(self.cls)!r} object is not callable")
        return tx.call(self.bind(tx, "__call__", self.class_attribute(tx, "__call__")), args, kwargs)

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
        return tx.tuple_of(self.unpack(tx)).contains(tx, item)

    def iterate(self, tx: Tracer) -> Value:
        result = self.special(tx, "__iter__")
        if result is not None:
            return result
        if class_lookup(self.cls, "__getitem__") is not ABSENT:
            raise GraphBreak("unsupported-object", f"iteration by __getitem__ over {self.describe()}")
        tx.raise_(TypeError, f"{type_name(self.cls)!r} object is not iterable")

    def next(self, tx: Tracer) -> Value | None:
        return tx.catch_stop(lambda: self._required(tx, "__next__", "is not an iterator"))

    def length(self, tx: Tracer) -> Value:
        return self._required(tx, "__len__", "has no len()")

    def truth(self, tx: Tracer) -> bool:
        result = self.special(tx, "__bool__")
        if result is None:
            result = self.special(tx, "__len__")
        return True if result is None else result.truth(tx)

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
        raw = class_lookup(self.cls, name)
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

    # -- code -----------------------------------------------------------------------------------------------
    def reconstruct(self, builder: Builder) -> None:
        if self.outside is not ABSENT:
            builder.load_const(self.outside)
            return
        if isinstance(self.storage, TupleValue):
            self._reconstruct_tuple(builder)
        else:
            base = solid_base(self.cls) or object
            builder.load_const(base.__new__)
            builder.load_const(self.cls)
            builder.call(1)
            builder.remember(self)
        if isinstance(self.storage, DictValue):
            self._fill_dict(builder, self.storage)
        elif isinstance(self.storage, (ListValue, SetValue)):
            self._fill_items(builder, self.storage)
        for name, value in self.slots.items():
            if value is not None:
                builder.load(value)
                builder.store_attr(name)
        for key, attribute in self.namespace.made_entries():
            builder.load(attribute)
            builder.store_attr(key.as_constant())

    def _reconstruct_tuple(self, builder: Builder) -> None:
        structseq = hasattr(self.cls, "n_sequence_fields")
        builder.load_const(self.cls if structseq else tuple.__new__)
        if not structseq:
            builder.load_const(self.cls)
        assert isinstance(self.storage, TupleValue)
        for item in self.storage.items:
            builder.load(item)
        builder.build_tuple(len(self.storage.items))
        builder.call(1 if structseq else 2)
        builder.remember(self)

    def _fill_dict(self, builder: Builder, storage: DictValue) -> None:
        """[obj] -> [obj], past a `__setitem__` of the user's class."""
        base = collections.OrderedDict if issubclass(self.cls, collections.OrderedDict) else dict
        for key, value in storage.made_entries():
            builder.load_const(base.__setitem__)
            builder.load(self)
            builder.load(key)
            builder.load(value)
            builder.call(3)
            builder.pop()

    def _fill_items(self, builder: Builder, storage: ListValue | SetValue) -> None:
        items = storage.items if isinstance(storage, ListValue) else list(storage.items.values())
        builder.load_const(list.extend if isinstance(storage, ListValue) else set.update)
        builder.load(self)
        for item in items:
            builder.load(item)
        builder.build_list(len(items))
        builder.call(2)
        builder.pop()


def _implemented(result: Value | None) -> Value | None:
    if result is None or result.is_constant() and result.as_constant() is NotImplemented:
        return None
    return result


def is_data_descriptor(raw: Any) -> bool:
    cls = type(raw)
    return hasattr(cls, "__set__") or hasattr(cls, "__delete__")


def _own_dict(obj: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def structseq_fields(cls: Any) -> list[str]:
    """Names of the fields of a C struct sequence, such as torch.return_types.max."""
    return list(cls.__match_args__)


def empty_storage(cls: type) -> BuiltinKind | None:
    """Contents of a new instance of a container subclass."""
    base = solid_base(cls)
    if base in (dict, collections.OrderedDict, collections.defaultdict):
        return DictValue(cls=base)
    if base is list:
        return ListValue([])
    if base in (set, frozenset):
        return SetValue({}, base)
    if base is tuple:
        return TupleValue([], tuple)
    return None


def outside_storage(tx: Tracer, obj: Any, source: Source) -> BuiltinKind | None:
    """Contents of an outside instance of a container subclass, read through the object's own source."""
    cls: type = type(obj)
    base = solid_base(cls)
    if base in (dict, collections.OrderedDict, collections.defaultdict):
        storage = DictValue(None, base, source, tx, obj)
        if base is collections.defaultdict:
            storage.factory = tx.wrap(obj.default_factory, SlotAttr(source, "default_factory"))
        return storage
    if base is list:
        return ListValue(None, list, source, tx, obj)
    if isinstance(obj, tuple):
        return TupleValue(None, tuple, source, tx, obj)
    if base in (set, frozenset):
        return SetValue(None, base, source, tx, obj)
    return None


def is_structseq(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields")


@wrap_if(lambda obj: is_plain(type(obj)) or is_structseq(type(obj)), priority=90)
def wrap_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    value = InstanceValue(type(obj), source, obj, outside_storage(tx, obj, source), tx=tx)
    return value


class OpaqueValue(Value):
    """An outside object of a kind that nobody here knows: it can be passed on, and nothing else."""

    def __init__(self, obj: Any, source: Source | None = None):
        super().__init__(source)
        self.obj = obj

    def python_type(self) -> type:
        return type(self.obj)

    def describe(self) -> str:
        return f"a {type(self.obj).__qualname__} object"

    def real(self) -> Any:
        return self.obj

    def key(self, tx: Tracer) -> Hashable:
        if type(self.obj).__hash__ is object.__hash__:
            return IdentityKey(self)
        return super().key(tx)

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(self.obj)

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__class__":
            return tx.constant(type(self.obj))
        return super().getattr(tx, name)


@wrap_if(lambda obj: True, priority=1000)
def wrap_opaque(tx: Tracer, obj: Any, source: Source) -> Value:
    return OpaqueValue(obj, source)
