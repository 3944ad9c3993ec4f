"""`super()`: attributes looked up behind a class in the receiver's MRO."""

from __future__ import annotations

import types

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import ClassAttr, Const, SlotAttr, Source, TupleItem
from dyncomp.values import class_writes
from dyncomp.values.base import ABSENT, Builder, Tracer, Value
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.exception import ExceptionValue
from dyncomp.values.function import BoundMethodValue
from dyncomp.values.instance import InstanceValue
from dyncomp.values.klass import ClassValue


class SuperValue(Value):
    def __init__(self, start: type, receiver: Value):
        super().__init__()
        self.start, self.receiver = start, receiver

    def python_type(self) -> type:
        return super

    def describe(self) -> str:
        return f"super({self.start.__name__}, {self.receiver.describe()})"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> Value:
        receiver = self.receiver
        as_class = isinstance(receiver, ClassValue) and self.start in receiver.cls.__mro__
        cls = receiver.cls if as_class else receiver.python_type()  # type: ignore[attr-defined]
        if class_writes.is_written(tx, self._behind(cls), name):
            raise GraphBreak("unsupported-mutation", f"{name!r} of {self.describe()} after it was changed")
        found = next((k for k in self._behind(cls) if name in k.__dict__), None)
        self._guard_classes(tx, cls, name)
        if found is None:
            tx.raise_(AttributeError, f"'super' object has no attribute {name!r}")
        raw, holder = found.__dict__[name], tx.constant(found).source or Const(found, found.__qualname__)
        if as_class:
            return self._bind_class(tx, raw, ClassAttr(holder, name))
        if isinstance(receiver, ClassValue):  # in a method of a metaclass
            return BoundMethodValue(tx.constant(raw), receiver)
        if isinstance(receiver, ExceptionValue) and name == "args":
            return receiver.getattr(tx, name)
        if isinstance(receiver, InstanceValue):
            if isinstance(raw, types.FunctionType):
                return BoundMethodValue(tx.constant(raw), receiver)
            return receiver.bind(tx, name, raw, holder)
        raise GraphBreak("unsupported-object", f"super() of {receiver.describe()}")

    def _guard_classes(self, tx: Tracer, cls: type, name: str) -> None:
        """What each class up to the one that has the attribute finds under its name: any of them may be given another later."""
        self._guard_order(tx, cls, name)
        for one in self._behind(cls):
            source = tx.constant(one).source
            found = class_lookup(one, name)
            if source is not None and found is not ABSENT:
                tx.guard(ClassAttr(source, name), "id", found)
            if name in one.__dict__:
                return

    def _guard_order(self, tx: Tracer, cls: type, name: str) -> None:
        """The classes up to the one that has the attribute: assigning `__bases__` puts others there."""
        source = tx.constant(cls).source
        if source is None:
            return
        order = SlotAttr(source, "__mro__")
        tx.guard(order, "len", len(cls.__mro__))
        for i, one in enumerate(cls.__mro__):
            tx.guard(TupleItem(order, i), "id", one)
            if i > cls.__mro__.index(self.start) and name in one.__dict__:
                return

    def _behind(self, cls: type) -> tuple[type, ...]:
        mro = cls.__mro__
        return mro[mro.index(self.start) + 1 :]

    def _bind_class(self, tx: Tracer, raw: object, source: Source) -> Value:
        if isinstance(raw, classmethod):
            return BoundMethodValue(tx.constant(raw.__func__), self.receiver)
        if isinstance(raw, staticmethod):
            return tx.constant(raw.__func__)
        if isinstance(raw, types.ClassMethodDescriptorType):  # object.__init_subclass__
            return tx.constant(raw.__get__(None, self.receiver.as_constant()))
        return tx.wrap(raw, source)

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(super)
        builder.load_const(self.start)
        builder.load(self.receiver)
        builder.call(2)
