"""keys(), values() and items() of dictionaries, and iterators over them: live, as in Python."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Protocol

from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.builtin_kind import BuiltinKind, builtin_method
from dyncomp.values.iterators import IteratorValue
from dyncomp.values.operators import equal


class Entries(Protocol):
    """What views ask of a dictionary, which makes them."""

    def entries(self, tx: Tracer) -> list[tuple[Value, Value]]:
        """Every key and value in order."""

    def read_all(self, tx: Tracer) -> dict[Hashable, tuple[Value, Value | None]]:
        """The same without values that nobody asked for yet."""

    def wrapped_at(self, k: Hashable) -> Value | None:
        """The value under a key, once all were read."""

    def length(self, tx: Tracer) -> Value: ...

    def contains(self, tx: Tracer, item: Value) -> Value: ...


class DictView(BuiltinKind):
    """keys(), values() or items() of a dictionary: live, as in Python."""

    def __init__(self, mapping: Entries, part: str):
        super().__init__()
        self.mapping, self.part = mapping, part
        self.cls = type(getattr({}, part)())

    def rows(self, tx: Tracer) -> list[Value]:
        return [_part(tx, self.part, entry) for entry in self.mapping.entries(tx)]

    def length(self, tx: Tracer) -> Value:
        return self.mapping.length(tx)

    def iterate(self, tx: Tracer) -> Value:
        return DictIterator(tx, self.mapping, self.part)

    def unpack(self, tx: Tracer) -> list[Value]:
        return self.rows(tx)

    def contains(self, tx: Tracer, item: Value) -> Value:
        if self.part == "keys":
            return self.mapping.contains(tx, item)
        return tx.constant(any(equal(tx, row, item) for row in self.rows(tx)))

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        if op not in ("&", "|", "-", "^") or self.part == "values":
            return None
        left, right = (other, self) if reflected else (self, other)
        return tx.set_of([]).combined(tx, op, left, right)  # type: ignore[attr-defined,no-any-return]

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if self.part == "values":
            return None
        mine = tx.set_of(self.rows(tx))
        theirs = tx.set_of(other.unpack(tx)) if isinstance(other, DictView) else other
        return mine.compare(tx, op, theirs)

    @builtin_method("isdisjoint")
    def _isdisjoint(self, tx: Tracer, other: Value) -> Value:
        if self.part == "values":
            tx.raise_(AttributeError, "'dict_values' object has no attribute 'isdisjoint'")
        return tx.set_of(self.rows(tx)).call_method(tx, "isdisjoint", [other], {})

    @builtin_method("__reversed__")
    def _reversed(self, tx: Tracer) -> Value:
        return tx.tuple_of(self.rows(tx)[::-1]).iterate(tx)

    def reconstruct(self, builder: Builder) -> None:
        builder.load(self.mapping)  # type: ignore[arg-type]  # a Value like all of them
        builder.load_attr(self.part)
        builder.call(0)


def dict_iterator_at(mapping: Any, part: str, used: int) -> Iterator[Any]:
    """Run-time helper: an iterator over a dictionary that has already given `used` items."""
    iterator = iter(getattr(mapping, part)())
    for _ in range(used):
        next(iterator)
    return iterator


class DictIterator(IteratorValue):
    def __init__(self, tx: Tracer, mapping: Entries, part: str):
        super().__init__()
        self.tx, self.mapping, self.part, self.position = tx, mapping, part, 0
        self.keys = list(mapping.read_all(tx))
        self.size = len(self.keys)
        self.cls = type(iter(getattr({}, part)()))

    def next(self, tx: Tracer) -> Value | None:
        if self.size < 0:
            return None
        items = self.mapping.read_all(tx)
        if len(items) != self.size:
            tx.raise_(RuntimeError, "dictionary changed size during iteration")
        if self.position >= self.size:
            self.size = -1
            return None
        k = self.keys[self.position]
        if k not in items:
            tx.raise_(RuntimeError, "dictionary keys changed during iteration")
        self.position += 1
        if self.part == "keys":
            return items[k][0]
        return _part(tx, self.part, (items[k][0], self.mapping.wrapped_at(k)))  # type: ignore[arg-type]

    def reconstruct(self, builder: Builder) -> None:
        if self.size >= 0 and len(self.mapping.read_all(self.tx)) != self.size:
            # Only the very iterator made before the change knows that its dictionary changed.
            super().reconstruct(builder)
        builder.load_const(dict_iterator_at)
        builder.load(self.mapping)  # type: ignore[arg-type]  # a Value like all of them
        builder.load_const(self.part)
        builder.load_const(self.position)
        builder.call(3)


def _part(tx: Tracer, part: str, entry: tuple[Value, Value]) -> Value:
    if part == "items":
        return tx.tuple_of(list(entry))
    return entry[0] if part == "keys" else entry[1]
