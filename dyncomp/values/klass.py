"""Classes: attributes, and calls that make instances (`__new__` and `__init__` traced like any function)."""

from __future__ import annotations

import types
from collections.abc import Hashable, Sequence
from typing import Any

from dyncomp._frame import _core
from dyncomp.errors import GraphBreak
from dyncomp.guards.source import ClassAttr, SlotAttr, Source
from dyncomp.values import class_writes
from dyncomp.values.arity import call_by_rule
from dyncomp.values.attributes import guard_attribute
from dyncomp.values.base import ABSENT, Builder, Tracer, Value
from dyncomp.values.class_facts import C_METHODS, class_lookup, is_plain, is_structseq
from dyncomp.values.exception import ExceptionValue
from dyncomp.values.function import BoundMethodValue
from dyncomp.values.instance import InstanceValue
from dyncomp.values.instance_storage import empty_storage
from dyncomp.values.registry import call_rule, wrap_if
from dyncomp.values.sequence import TupleValue


class ClassValue(Value):
    """A class object; always a fixed one, pinned by an `id` guard when it came from outside."""

    def __init__(self, cls: type, source: Source | None = None):
        super().__init__(source)
        self.cls = cls

    def python_type(self) -> type:
        return type(self.cls)

    def describe(self) -> str:
        return f"class {self.cls.__qualname__}"

    def is_constant(self) -> bool:
        return True

    def as_constant(self) -> Any:
        return self.cls

    def real(self) -> Any:
        return self.cls

    def key(self, tx: Tracer) -> Hashable:
        return self.cls

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(self.cls)

    # -- attributes -----------------------------------------------------------------------------------------
    def lookup(self, tx: Tracer, name: str) -> Any:
        """What the class finds under a name, guarded."""
        raw = class_lookup(self.cls, name)
        if self.source is not None:
            guard_attribute(tx, self.source, name, raw)
        return raw

    def item(self, tx: Tracer, name: str, raw: Any) -> Value:
        return tx.constant(raw) if self.source is None else tx.wrap(raw, ClassAttr(self.source, name))

    def getattr(self, tx: Tracer, name: str) -> Value:
        meta = class_lookup(type(self.cls), name)
        if meta is not ABSENT and (isinstance(meta, property) or name in _TYPE_FACTS):
            return self._from_metaclass(tx, name, meta)
        written = class_writes.find(tx, self.cls, name)
        if isinstance(written, Value):
            return written
        raw = class_lookup(self.cls, name) if written is class_writes.UNTOUCHED else ABSENT
        if raw is not ABSENT:
            return self._bind(tx, name, raw)
        if meta is not ABSENT:
            return self._from_metaclass(tx, name, meta)
        fallback = class_lookup(type(self.cls), "__getattr__")
        self.lookup(tx, name)
        if isinstance(fallback, types.FunctionType):
            return tx.call(tx.constant(fallback), [self, tx.constant(name)])
        tx.raise_(AttributeError, f"type object {self.cls.__name__!r} has no attribute {name!r}")

    def _bind(self, tx: Tracer, name: str, raw: Any) -> Value:
        if isinstance(raw, types.FunctionType | _core.Dispatcher):
            return self.item(tx, name, raw)
        if isinstance(raw, staticmethod | classmethod | property):
            self.lookup(tx, name)
        if isinstance(raw, staticmethod):
            return tx.constant(raw.__func__)
        if isinstance(raw, classmethod):
            return BoundMethodValue(tx.constant(raw.__func__), self)
        if isinstance(raw, types.ClassMethodDescriptorType):
            return tx.constant(getattr(self.cls, name))
        if isinstance(raw, (property, *C_METHODS, types.MemberDescriptorType, types.GetSetDescriptorType)):
            return tx.constant(raw)
        getter = class_lookup(type(raw), "__get__")
        if isinstance(getter, types.FunctionType):
            return tx.call(tx.constant(getter), [self.item(tx, name, raw), tx.constant(None), self])
        if getter is not ABSENT and not isinstance(raw, (types.BuiltinFunctionType, type)):
            return tx.constant(getattr(self.cls, name))
        return self.item(tx, name, raw)

    def _from_metaclass(self, tx: Tracer, name: str, meta: Any) -> Value:
        if isinstance(meta, types.FunctionType):
            return BoundMethodValue(tx.constant(meta), self)
        if isinstance(meta, property):
            if isinstance(meta.fget, types.FunctionType) and type(self.cls).__module__ != "enum":
                return tx.call(tx.constant(meta.fget), [self])
            return tx.constant(getattr(self.cls, name))
        if name == "__dict__" and self.source is not None:
            if class_writes.any_written(tx, self.cls):
                raise GraphBreak("unsupported-mutation", f"__dict__ of the {self.describe()} after it was changed")
            return tx.wrap(vars(self.cls), SlotAttr(self.source, name))
        if name in _TYPE_FACTS:
            return tx.constant(getattr(self.cls, name))
        if isinstance(meta, C_METHODS):
            return BoundMethodValue(tx.constant(meta), self)
        raise GraphBreak("unsupported-attribute", f"{self.cls.__name__}.{name}")

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        self._change(tx, "__setattr__", name, value)

    def delattr(self, tx: Tracer, name: str) -> None:
        self._change(tx, "__delattr__", name)

    def _change(self, tx: Tracer, how: str, name: str, *value: Value) -> None:
        meta = class_lookup(type(self.cls), how)
        descriptor = class_lookup(type(self.cls), name)
        if isinstance(meta, types.FunctionType):
            tx.call(tx.constant(meta), [self, tx.constant(name), *value])
        elif isinstance(descriptor, property) and value and descriptor.fset is not None:
            tx.call(tx.constant(descriptor.fset), [self, *value])
        elif meta is getattr(type, how):
            class_writes.store(tx, self, self.cls, name, *(value or (None,)))
        else:
            raise GraphBreak("unsupported-mutation", f"setting attribute {name!r} of the {self.describe()}")

    # -- class operations -----------------------------------------------------------------------------------
    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        if op == "|" and other.is_constant():
            try:
                return tx.constant(other.as_constant() | self.cls if reflected else self.cls | other.as_constant())
            except TypeError as error:
                tx.raise_real(error)
        return None

    def getitem(self, tx: Tracer, key: Value) -> Value:
        if (done := self._by_metaclass(tx, "__getitem__", key)) is not None:
            return done
        meta = class_lookup(type(self.cls), "__getitem__")
        if meta is ABSENT and not key.is_constant():
            raise GraphBreak("unsupported-object", f"{self.cls.__name__}[...]")
        try:
            return tx.constant(self.cls[key.as_constant()])  # type: ignore[index]
        except (TypeError, KeyError) as error:
            tx.raise_real(error)

    def _by_metaclass(self, tx: Tracer, name: str, *args: Value) -> Value | None:
        """What a special method that is a Python function of the metaclass does; None if there is none. Members of an enumeration
        never change."""
        meta = class_lookup(type(self.cls), name)
        if not isinstance(meta, types.FunctionType) or type(self.cls).__module__ == "enum":
            return None
        return tx.call(tx.constant(meta), [self, *args])

    def iterate(self, tx: Tracer) -> Value:
        if (done := self._by_metaclass(tx, "__iter__")) is not None:
            return done.iterate(tx)
        if class_lookup(type(self.cls), "__iter__") is ABSENT:
            tx.raise_(TypeError, f"'{type(self.cls).__name__}' object is not iterable")
        return tx.constant(tuple(self.cls)).iterate(tx)  # type: ignore[arg-type]

    def length(self, tx: Tracer) -> Value:
        if (done := self._by_metaclass(tx, "__len__")) is not None:
            return done
        if class_lookup(type(self.cls), "__len__") is ABSENT:
            tx.raise_(TypeError, f"object of type '{type(self.cls).__name__}' has no len()")
        return tx.constant(len(self.cls))  # type: ignore[arg-type]

    def contains(self, tx: Tracer, item: Value) -> Value:
        if (done := self._by_metaclass(tx, "__contains__", item)) is not None:
            return tx.constant(done.truth(tx))
        if class_lookup(type(self.cls), "__contains__") is ABSENT or not item.is_constant():
            return super().contains(tx, item)
        try:
            return tx.constant(item.as_constant() in self.cls)  # type: ignore[operator]
        except TypeError as error:  # up to Python 3.11: something that is no member
            tx.raise_real(error)

    # -- calls ----------------------------------------------------------------------------------------------
    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        rule = call_rule(self.cls)
        if rule is not None:
            return call_by_rule(tx, self.cls, rule, args, kwargs)
        meta_call = class_lookup(type(self.cls), "__call__")
        if isinstance(meta_call, types.FunctionType):
            return self._custom_metaclass_call(tx, meta_call, args, kwargs)
        if isinstance(meta_call, type):  # `__call__ = dict`, as typed dictionaries have it: no descriptor, so nothing is bound
            return tx.call(tx.constant(meta_call), args, kwargs)
        return self.instantiate(tx, args, kwargs)

    def _custom_metaclass_call(
        self, tx: Tracer, meta_call: Any, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if type(self.cls).__module__ == "enum":
            if len(args) != 1 or kwargs or not self.cls.__members__:  # type: ignore[attr-defined]
                raise GraphBreak("unsupported-call", f"an enumeration made by calling {self.cls.__name__}")
            try:
                real = [arg.as_constant() for arg in args]
                return tx.constant(self.cls(*real))
            except (ValueError, TypeError, KeyError) as error:
                tx.raise_real(error)
        return tx.call(tx.constant(meta_call), [self, *args], kwargs)

    def instantiate(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """type.__call__"""
        new = self.lookup(tx, "__new__")
        if is_structseq(self.cls) and len(args) == 1 and not kwargs:
            return self._structseq(tx, args[0].unpack(tx))
        if isinstance(new, staticmethod):
            obj = tx.call(tx.constant(new.__func__), [self, *args], kwargs)
            if not issubclass(obj.python_type(), self.cls):
                return obj
        elif new in (tuple.__new__, frozenset.__new__):  # their contents come with them
            if kwargs and self.lookup(tx, "__init__") is object.__init__:
                base = "tuple" if new == tuple.__new__ else "frozenset"
                tx.raise_(TypeError, f"{base}() takes no keyword arguments")
            obj = tx.call(tx.constant(new), [self, *args])
            if not isinstance(self.lookup(tx, "__init__"), types.FunctionType):
                return obj
        else:
            obj = self.new_instance(tx, args)
        self._initialise(tx, obj, args, kwargs)
        return obj

    def _structseq(self, tx: Tracer, items: list[Value]) -> Value:
        cls: Any = self.cls
        if not len(items) == cls.n_sequence_fields == cls.n_fields:
            raise GraphBreak("unsupported-object", f"instantiating {self.cls.__qualname__} from {len(items)} items")
        return InstanceValue(self.cls, storage=TupleValue(items, tuple))

    def _initialise(self, tx: Tracer, obj: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> None:
        init = self.lookup(tx, "__init__")
        if isinstance(init, types.FunctionType):
            tx.call(self.item(tx, "__init__", init), [obj, *args], kwargs)
        elif init is object.__init__:
            if (args or kwargs) and class_lookup(self.cls, "__new__") is object.__new__:
                tx.raise_(TypeError, f"{self.cls.__name__}() takes no arguments")
        else:
            tx.call(tx.constant(init), [obj, *args], kwargs)

    def _exception(self, args: Sequence[Value]) -> ExceptionValue:
        if self.cls is OSError and len(args) > 1:  # the error number chooses the class
            if not all(arg.is_constant() for arg in args):
                raise GraphBreak("exception", "an OSError whose arguments are not known while tracing")
            return ExceptionValue(type(OSError(*[arg.as_constant() for arg in args])), args)
        return ExceptionValue(self.cls, args, class_source=self.source)

    def new_instance(self, tx: Tracer, args: Sequence[Value] = ()) -> InstanceValue:
        """`base.__new__(cls)` for the C class below it."""
        if issubclass(self.cls, BaseException):
            return self._exception(args)
        if class_lookup(self.cls, "__del__") is not ABSENT:
            raise GraphBreak("last-reference", f"making an object of {self.cls.__qualname__}, which has a __del__")
        abstract = getattr(self.cls, "__abstractmethods__", None)
        if abstract:
            raise GraphBreak("eager-error", f"instantiating the abstract class {self.cls.__qualname__}")
        if not is_plain(self.cls) or self.cls.__flags__ & 1 << 8 and self.cls.__module__ == "builtins":
            raise GraphBreak(
                "unsupported-object", f"instantiating {self.cls.__module__}.{self.cls.__qualname__}"
            )
        return InstanceValue(self.cls, storage=empty_storage(self.cls), class_source=self.source)


_TYPE_FACTS = frozenset(
    {
        "__name__",
        "__qualname__",
        "__module__",
        "__mro__",
        "__bases__",
        "__base__",
        "__flags__",
        "__basicsize__",
        "__class__",
        "__doc__",
        "__dict__",
        "__dictoffset__",
        "__abstractmethods__",
        "__annotations__",
        "__members__",
    }
)


@wrap_if(lambda obj: isinstance(obj, type), priority=30)
def wrap_class(tx: Tracer, obj: type, source: Source) -> Value:
    return ClassValue(obj, source)
