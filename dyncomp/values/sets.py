"""set and frozenset. An outside set is read as a whole: its members, all constants, are guarded together."""

from __future__ import annotations

import types
from collections.abc import Hashable, Iterator
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, Source
from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.builtin_kind import BuiltinKind, builtin_method
from dyncomp.values.iterators import IteratorValue
from dyncomp.values.registry import wrap_type

_SET_OPERATORS = {"&", "|", "-", "^"}
_BY_IDENTITY = (type, types.FunctionType, types.BuiltinFunctionType)


class SetValue(BuiltinKind):
    def __init__(
        self,
        items: dict[Hashable, Value] | None,
        cls: type = set,
        source: Source | None = None,
        tx: Tracer | None = None,
        outside: Any = None,
    ):
        super().__init__(source)
        self.cls, self._items, self._tx, self._outside = cls, items, tx, outside
        self.untouched = False  # an outside set as it was found

    @property
    def items(self) -> dict[Hashable, Value]:
        if self._items is None:
            self._read()
        return self._items  # type: ignore[return-value]

    def _read(self) -> None:
        tx, source = self._tx, self.source
        assert tx is not None and source is not None
        members = list(self._outside)
        if all(isinstance(m, (str, int, float, bool, bytes, type(None))) for m in members):
            if members:
                tx.guard(Call(source, frozenset), "equals", frozenset(members))
            else:
                tx.guard(source, "len", 0)
        elif self.cls is frozenset and all(isinstance(m, _BY_IDENTITY) for m in members):
            tx.guard(source, "id", self._outside)
        else:
            raise GraphBreak(
                "unsupported-object", f"{source}: a set of other objects than numbers and strings"
            )
        values = [tx.constant(m) for m in members]
        self._items = {value.key(tx): value for value in values}
        self.untouched = True

    def describe(self) -> str:
        return str(self.source) if self.source else f"a {self.cls.__name__}"

    def touch(self, tx: Tracer) -> None:
        _ = self.items
        self.untouched = False
        if self.source is not None:
            tx.effects.touch(self)

    def found(self) -> set[Hashable]:
        """The members of an outside set when the trace began."""
        return set() if self._outside is None else set(self._outside)

    def is_constant(self) -> bool:
        return all(item.is_constant() for item in self.items.values())

    def as_constant(self) -> Any:
        return self.cls(item.as_constant() for item in self.items.values())

    def key(self, tx: Tracer) -> Hashable:
        if self.cls is frozenset:
            return frozenset(self.items)
        tx.raise_(TypeError, f"unhashable type: '{self.cls.__name__}'")

    def length(self, tx: Tracer) -> Value:
        return tx.constant(len(self.items))

    def contains(self, tx: Tracer, item: Value) -> Value:
        return tx.constant(item.key(tx) in self.items)

    def iterate(self, tx: Tracer) -> Value:
        return SetIterator(self)

    def unpack(self, tx: Tracer) -> list[Value]:
        """In the order of a real set of these members; that of an outside one depends on its history."""
        items = self.items
        if self.untouched and self.source is not None and len(items) > 1:
            tx.guard(Call(self.source, tuple), "equals", tuple(items))
            return list(items.values())
        if self.is_constant():
            return [self.items[member] for member in self.as_constant()]
        return list(self.items.values())

    def _made(self, items: dict[Hashable, Value]) -> SetValue:
        return SetValue(items, self.cls)

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        sibling = set_of(other)
        if sibling is None or op not in _SET_OPERATORS:
            return None
        left, right = (sibling, self) if reflected else (self, sibling)
        result = _combine(op, left.items, right.items)
        if inplace and self.cls is set:
            self.touch(tx)
            self._items = result
            return self
        return left._made(result)

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        sibling = set_of(other)
        if sibling is None:
            return None
        mine, theirs = set(self.items), set(sibling.items)
        answers = {
            "==": mine == theirs,
            "!=": mine != theirs,
            "<": mine < theirs,
            "<=": mine <= theirs,
            ">": mine > theirs,
            ">=": mine >= theirs,
        }
        return tx.constant(answers[op])

    @builtin_method("add")
    def _add(self, tx: Tracer, item: Value) -> Value:
        self.touch(tx)
        self.items.setdefault(item.key(tx), item)
        return tx.constant(None)

    @builtin_method("discard")
    def _discard(self, tx: Tracer, item: Value) -> Value:
        self.touch(tx)
        self.items.pop(item.key(tx), None)
        return tx.constant(None)

    @builtin_method("remove")
    def _remove(self, tx: Tracer, item: Value) -> Value:
        if item.key(tx) not in self.items:
            tx.raise_(KeyError, item)
        return self._discard(tx, item)

    @builtin_method("clear")
    def _clear(self, tx: Tracer) -> Value:
        self.touch(tx)
        self.items.clear()
        return tx.constant(None)

    @builtin_method("copy")
    def _copy(self, tx: Tracer) -> Value:
        return self if self.cls is frozenset else self._made(dict(self.items))

    @builtin_method("update")
    def _update(self, tx: Tracer, *others: Value) -> Value:
        for other in others:
            for item in other.unpack(tx):
                self._add(tx, item)
        return tx.constant(None)

    def _with(self, tx: Tracer, op: str, others: tuple[Value, ...]) -> SetValue:
        result = dict(self.items)
        for other in others:
            result = _combine(op, result, {item.key(tx): item for item in other.unpack(tx)})
        return self._made(result)

    @builtin_method("union")
    def _union(self, tx: Tracer, *others: Value) -> Value:
        return self._with(tx, "|", others)

    @builtin_method("intersection")
    def _intersection(self, tx: Tracer, *others: Value) -> Value:
        return self._with(tx, "&", others)

    @builtin_method("difference")
    def _difference(self, tx: Tracer, *others: Value) -> Value:
        return self._with(tx, "-", others)

    @builtin_method("symmetric_difference")
    def _symmetric_difference(self, tx: Tracer, other: Value) -> Value:
        return self._with(tx, "^", (other,))

    def _become(self, tx: Tracer, op: str, others: tuple[Value, ...]) -> Value:
        result = self._with(tx, op, others)
        self.touch(tx)
        self._items = result.items
        return tx.constant(None)

    @builtin_method("intersection_update")
    def _intersection_update(self, tx: Tracer, *others: Value) -> Value:
        return self._become(tx, "&", others)

    @builtin_method("difference_update")
    def _difference_update(self, tx: Tracer, *others: Value) -> Value:
        return self._become(tx, "-", others)

    @builtin_method("symmetric_difference_update")
    def _symmetric_difference_update(self, tx: Tracer, other: Value) -> Value:
        return self._become(tx, "^", (other,))

    @builtin_method("issubset")
    def _issubset(self, tx: Tracer, other: Value) -> Value:
        return tx.constant(set(self.items) <= {item.key(tx) for item in other.unpack(tx)})

    @builtin_method("issuperset")
    def _issuperset(self, tx: Tracer, other: Value) -> Value:
        return tx.constant(set(self.items) >= {item.key(tx) for item in other.unpack(tx)})

    @builtin_method("isdisjoint")
    def _isdisjoint(self, tx: Tracer, other: Value) -> Value:
        return tx.constant(not set(self.items) & {item.key(tx) for item in other.unpack(tx)})

    def call_method(self, tx: Tracer, name: str, args: object, kwargs: dict[str, Value]) -> Value:
        if not hasattr(self.cls, name):
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        return super().call_method(tx, name, args, kwargs)  # type: ignore[arg-type]

    def reconstruct(self, builder: Builder) -> None:
        if self.cls is frozenset:
            builder.load_const(frozenset)
        for item in self.items.values():
            builder.load(item)
        builder.build_set(len(self.items))
        if self.cls is frozenset:
            builder.call(1)


class SetIterator(IteratorValue):
    cls: type = type(iter(set[Any]()))

    def __init__(self, target: SetValue):
        super().__init__()
        self.target, self.size = target, len(target.items)
        self.rows: Iterator[Value] | None = None

    def next(self, tx: Tracer) -> Value | None:
        if self.rows is None:
            self.rows = iter(self.target.unpack(tx))
        if len(self.target.items) != self.size:
            tx.raise_(RuntimeError, "Set changed size during iteration")
        return next(self.rows, None)

    def reconstruct(self, builder: Builder) -> None:
        if self.rows is not None:
            super().reconstruct(builder)
        builder.load_const(iter)
        builder.load(self.target)
        builder.call(1)


def _combine(op: str, left: dict[Hashable, Value], right: dict[Hashable, Value]) -> dict[Hashable, Value]:
    if op == "|":
        return {**right, **left}
    if op == "&":
        return {k: v for k, v in left.items() if k in right}
    only_left = {k: v for k, v in left.items() if k not in right}
    if op == "-":
        return only_left
    return {**only_left, **{k: v for k, v in right.items() if k not in left}}


def set_of(value: Value) -> SetValue | None:
    """The set behind a value: itself, or the contents of an instance of a set subclass."""
    if isinstance(value, SetValue):
        return value
    storage = getattr(value, "storage", None)
    return storage if isinstance(storage, SetValue) else None


@wrap_type(set, frozenset)
def wrap_set(tx: Tracer, obj: Any, source: Source) -> Value:
    return SetValue(None, type(obj), source, tx, obj)
