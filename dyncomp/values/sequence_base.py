"""What lists, tuples and deques share: items, reading them, comparing and searching.

An outside sequence is read on demand: its length is guarded when anything but appending happens to it, and
its items are wrapped with sources of their own.
"""

from __future__ import annotations

import collections
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, ListItem, Source, TupleItem
from dyncomp.values import special_results
from dyncomp.values.base import ABSENT, NotConstant, Tracer, Value
from dyncomp.values.builtin_kind import BuiltinKind, builtin_method
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.iterators import SequenceIterator
from dyncomp.values.operators import compare, equal
from dyncomp.values.varying_key import note_key

_MOST_ITEMS = 1_000_000  # of a repeated sequence, as values of the trace


class SequenceValue(BuiltinKind):
    """`outside`: the real object behind `source`, read when `items` is first needed."""

    _asked = False  # it is being asked whether it is constant

    def __init__(
        self,
        items: list[Value] | None,
        cls: type,
        source: Source | None = None,
        tx: Tracer | None = None,
        outside: Any = None,
    ):
        super().__init__(source)
        self.cls = cls
        self._tx = tx
        self._outside = outside
        self._items = items
        self.appended: list[Value] = []  # to an outside list that is not read yet

    @property
    def items(self) -> list[Value]:
        if self._items is None:
            self._read()
        return self._items  # type: ignore[return-value]

    @property
    def is_read(self) -> bool:
        return self._items is not None

    def _item_source(self, index: int) -> Source:
        assert self.source is not None
        return ListItem(self.source, index) if issubclass(self.cls, list) else TupleItem(self.source, index)

    def _read(self) -> None:
        tx, source = self._tx, self.source
        assert tx is not None and source is not None
        stored = (
            list.__iter__(self._outside) if isinstance(self._outside, list) else tuple.__iter__(self._outside)
        )
        values = list(stored)
        tx.guard(Call(source, list) if self.cls is collections.deque else source, "len", len(values))
        self._items = [tx.wrap(obj, self._item_source(i)) for i, obj in enumerate(values)]
        self._items.extend(self.appended)

    def describe(self) -> str:
        return str(self.source) if self.source else f"a {self.cls.__name__}"

    def is_constant(self) -> bool:
        if self._asked:
            return False  # it contains itself
        self._asked = True
        try:
            return all(item.is_constant() for item in self.items)
        finally:
            self._asked = False

    def as_constant(self) -> Any:
        items = [item.as_constant() for item in self.items]
        return items if self.cls is list else self.cls(items)

    def fx_arg(self, tx: Tracer) -> Any:
        if self.cls is collections.deque:
            raise GraphBreak("unsupported-object", "a deque as an argument of a tensor operation")
        items = [item.fx_arg(tx) for item in self.items]
        return items if issubclass(self.cls, list) else tuple(items)

    def _repeated(self, times: int) -> list[Value]:
        if len(self.items) * times > _MOST_ITEMS:
            raise GraphBreak("unsupported-builtin", f"{self.describe()} repeated {times} times")
        return self.items * times

    # -- reading --------------------------------------------------------------------------------------------
    def length(self, tx: Tracer) -> Value:
        return tx.constant(len(self.items))

    def iterate(self, tx: Tracer) -> Value:
        return SequenceIterator(self)

    def unpack(self, tx: Tracer) -> list[Value]:
        return list(self.items)

    def _made(self, items: list[Value]) -> SequenceValue:
        return type(self)(items, self.cls)

    def getitem(self, tx: Tracer, key: Value) -> Value:
        note_key(tx, key, self)
        index = as_index(tx, key, self.cls)
        if isinstance(index, slice):
            part = self.items[index]
            whole = len(part) == len(self.items) and index.step in (None, 1)
            return self if whole and self.cls is tuple else self._made(part)
        try:
            return self.items[index]
        except IndexError:
            tx.raise_(IndexError, f"{kind_of(self.cls).__name__} index out of range")

    def contains(self, tx: Tracer, item: Value) -> Value:
        return tx.constant(any(equal(tx, own, item) for own in self.items))

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        if op == "*" and other.is_constant() and isinstance(other.as_constant(), int):
            times = other.as_constant()
            return self if times == 1 and self.cls is tuple else self._made(self._repeated(times))
        if op == "+" and not reflected:
            sibling = sequence_of(other)
            if sibling is not None and _addable(self.cls, sibling.cls):
                if self.cls is sibling.cls is tuple and not (self.items and sibling.items):
                    return sibling if sibling.items else self  # tuples are not copied without need
                return self._made([*self.items, *sibling.items])
        return None

    def concatenation_error(self, other: Value) -> str | None:
        base = kind_of(self.cls).__name__
        return f'can only concatenate {base} (not "{other.python_type().__name__}") to {base}'

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        sibling = sequence_of(other)
        if sibling is None or kind_of(self.cls) is not kind_of(sibling.cls):
            return None
        mine, theirs = self.items, sibling.items
        if op in ("==", "!="):
            same = len(mine) == len(theirs) and all(
                equal(tx, a, b) for a, b in zip(mine, theirs, strict=True)
            )
            return tx.constant(same is (op == "=="))
        for a, b in zip(mine, theirs, strict=False):
            if not equal(tx, a, b):
                return compare(tx, op, a, b)
        return compare(tx, op, tx.constant(len(mine)), tx.constant(len(theirs)))

    @builtin_method("index")
    def _index(self, tx: Tracer, item: Value, start: Value | None = None, stop: Value | None = None) -> Value:
        lo = integer(start) if start is not None else 0
        hi = integer(stop) if stop is not None else len(self.items)
        for i in range(*slice(lo, hi).indices(len(self.items))):
            if i < len(self.items) and equal(tx, self.items[i], item):  # what compares may make it shorter
                return tx.constant(i)
        if not item.is_constant():
            raise GraphBreak("eager-error", f"{self.cls.__name__}.index: not found")
        tx.raise_(
            ValueError,
            "tuple.index(x): x not in tuple"
            if kind_of(self.cls) is tuple
            else f"{item.as_constant()!r} is not in {kind_of(self.cls).__name__}",
        )

    @builtin_method("count")
    def _count(self, tx: Tracer, item: Value) -> Value:
        return tx.constant(sum(equal(tx, own, item) for own in self.items))

    @builtin_method("__reversed__")
    def _reversed(self, tx: Tracer) -> Value:
        return SequenceIterator(self, backwards=True)

    @builtin_method("__add__")
    def _add(self, tx: Tracer, other: Value) -> Value:
        result = self.binary(tx, "+", other)
        return tx.raise_(TypeError, "a sequence plus no sequence") if result is None else result


def sequence_of(value: Value) -> SequenceValue | None:
    """The sequence behind a value: itself, or the contents of an instance of a list or tuple subclass."""
    if isinstance(value, SequenceValue):
        return value
    storage = getattr(value, "storage", None)
    return storage if isinstance(storage, SequenceValue) else None


def integer(value: Value) -> int:
    """A number among the arguments of a method."""
    number = value.as_constant()
    if not isinstance(number, int):
        raise GraphBreak("eager-error", f"{number!r} in place of an integer")
    return number


def as_index(tx: Tracer, key: Value, cls: type) -> int | slice:
    if not key.is_constant():
        if class_lookup(key.python_type(), "__index__") is ABSENT and not isinstance(key, BuiltinKind):
            raise GraphBreak("eager-error", f"{cls.__name__} index {key.describe()}")
        try:
            key = special_results.index(tx, key.call_method(tx, "__index__", [], {}))
            index = key.as_constant()
        except NotConstant:
            raise GraphBreak("data-dependent-value", f"{cls.__name__} index {key.describe()}") from None
    else:
        index = key.as_constant()
    if cls is collections.deque and not isinstance(index, int):
        tx.raise_(TypeError, f"sequence index must be integer, not {type(index).__name__!r}")
    if isinstance(index, slice) and index.step == 0:
        tx.raise_(ValueError, "slice step cannot be zero")
    if not isinstance(index, (int, slice)):
        tx.raise_(TypeError, f"{cls.__name__} indices must be integers or slices, not {type(index).__name__}")
    return index


def kind_of(cls: type) -> type:
    return next((kind for kind in (list, tuple, collections.deque) if issubclass(cls, kind)), cls)


def _addable(left: type, right: type) -> bool:
    return kind_of(left) is kind_of(right)
