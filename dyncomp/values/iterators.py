"""Iterators whose whole state is values, so that generated code can rebuild one that is half used up."""

from __future__ import annotations

import collections
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values.base import Builder, PyRaise, Tracer, Value
from dyncomp.values.builtin_kind import BuiltinKind, builtin_method


class IteratorValue(BuiltinKind):
    """Base: `next` is the one thing to write."""

    def iterate(self, tx: Tracer) -> Value:
        return self

    def truth(self, tx: Tracer) -> bool:
        return True

    @builtin_method("__next__")
    def _next(self, tx: Tracer) -> Value:
        item = self.next(tx)
        if item is None:
            tx.raise_(StopIteration)
        return item

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        return None


def list_iterator_at(sequence: Any, index: int, backwards: bool) -> Iterator[Any]:
    """Run-time helper: an iterator over a sequence that has already given some items."""
    iterator: Any = reversed(sequence) if backwards else iter(sequence)
    iterator.__setstate__(index)
    return iterator


class SequenceIterator(IteratorValue):
    """Over a live list or tuple: items appended meanwhile are seen, as in Python."""

    def __init__(self, sequence: Any, backwards: bool = False):
        super().__init__()
        self.sequence, self.backwards = sequence, backwards
        self.index = len(sequence.items) - 1 if backwards else 0
        self.begun = len(sequence.items)
        self.cls = (
            type(reversed([]))
            if backwards
            else type(iter([]))
            if issubclass(sequence.cls, list)
            else type(iter(()))
        )
        self.done = False

    def next(self, tx: Tracer) -> Value | None:
        if len(self.sequence.items) != self.begun and issubclass(self.sequence.cls, collections.deque) and not self.done:
            tx.raise_(RuntimeError, "deque mutated during iteration")
        if self.done or not 0 <= self.index < len(self.sequence.items):
            self.done = True
            return None
        item: Value = self.sequence.items[self.index]
        self.index += -1 if self.backwards else 1
        return item

    @builtin_method("__length_hint__")
    def _hint(self, tx: Tracer) -> Value:
        return tx.constant(
            self.index + 1 if self.backwards else max(0, len(self.sequence.items) - self.index)
        )

    def reconstruct(self, builder: Builder) -> None:
        if self.done:
            builder.load_const(iter)
            builder.build_tuple(0)
            builder.call(1)
            return
        if not issubclass(self.sequence.cls, (list, tuple)):
            super().reconstruct(builder)
        builder.load_const(list_iterator_at)
        builder.load(self.sequence)
        builder.load_const(self.index)
        builder.load_const(self.backwards)
        builder.call(3)


class ItemsIterator(IteratorValue):
    """Over an object with `__getitem__` alone: `obj[0]`, `obj[1]`... up to an IndexError."""

    cls = type(iter(type("Items", (), {"__getitem__": None})()))

    def __init__(self, items: Value):
        super().__init__()
        self.items, self.index, self.done = items, 0, False

    def next(self, tx: Tracer) -> Value | None:
        if self.done:
            return None
        try:
            item = self.items.getitem(tx, tx.constant(self.index))
        except PyRaise as error:
            if not issubclass(error.value.python_type(), (IndexError, StopIteration)):
                raise
            self.done = True
            return None
        self.index += 1
        return item

    def reconstruct(self, builder: Builder) -> None:
        if self.done:
            super().reconstruct(builder)
        builder.load_const(list_iterator_at)
        builder.load(self.items)
        builder.load_const(self.index)
        builder.load_const(False)
        builder.call(3)


class ConstantIterator(IteratorValue):
    """Over a range: the real iterator of a constant, which costs no memory for what is not reached."""

    def __init__(self, iterator: Iterator[Any]):
        super().__init__()
        self.iterator, self.cls = iterator, type(iterator)

    def next(self, tx: Tracer) -> Value | None:
        for item in self.iterator:
            return tx.constant(item)
        return None

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(copy.copy)
        builder.load_const(copy.copy(self.iterator))
        builder.call(1)


class EnumerateValue(IteratorValue):
    cls = enumerate

    def __init__(self, source: Value, count: int):
        super().__init__()
        self.inner, self.count = source, count

    def next(self, tx: Tracer) -> Value | None:
        item = self.inner.next(tx)
        if item is None:
            return None
        self.count += 1
        return tx.tuple_of([tx.constant(self.count - 1), item])

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(enumerate)
        builder.load(self.inner)
        builder.load_const(self.count)
        builder.call(2)


class ZipValue(IteratorValue):
    cls = zip

    def __init__(self, inner: list[Value], strict: bool):
        super().__init__()
        self.inner, self.strict = inner, strict

    def next(self, tx: Tracer) -> Value | None:
        row: list[Value] = []
        for position, iterator in enumerate(self.inner):
            item = iterator.next(tx)
            if item is None:
                self._check_strict(tx, position)
                return None
            row.append(item)
        return tx.tuple_of(row) if row else None

    def _check_strict(self, tx: Tracer, position: int) -> None:
        """Argument `position` ran out first."""
        if not self.strict:
            return
        if position > 0:
            others = " " if position == 1 else "s 1-"
            tx.raise_(ValueError, f"zip() argument {position + 1} is shorter than argument{others}{position}")
        for later in range(1, len(self.inner)):
            if self.inner[later].next(tx) is not None:
                others = " " if later == 1 else "s 1-"
                tx.raise_(ValueError, f"zip() argument {later + 1} is longer than argument{others}{later}")

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(zip)
        for iterator in self.inner:
            builder.load(iterator)
        if self.strict:
            builder.load_const(True)
            builder.call(len(self.inner) + 1, ("strict",))
        else:
            builder.call(len(self.inner))


class MapValue(IteratorValue):
    cls = map

    def __init__(self, function: Value, inner: list[Value]):
        super().__init__()
        self.function, self.inner = function, inner

    def next(self, tx: Tracer) -> Value | None:
        row: list[Value] = []
        for iterator in self.inner:
            item = iterator.next(tx)
            if item is None:
                return None
            row.append(item)
        return tx.call(self.function, row)

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(map)
        builder.load(self.function)
        for iterator in self.inner:
            builder.load(iterator)
        builder.call(1 + len(self.inner))


class FilterValue(IteratorValue):
    cls = filter

    def __init__(self, function: Value, inner: Value):
        super().__init__()
        self.function, self.inner = function, inner
        self.plain = function.is_constant() and function.as_constant() is None

    def next(self, tx: Tracer) -> Value | None:
        while (item := self.inner.next(tx)) is not None:
            if (item if self.plain else tx.call(self.function, [item])).truth(tx):
                return item
        return None

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(filter)
        builder.load(self.function)
        builder.load(self.inner)
        builder.call(2)


class CallIterator(IteratorValue):
    """An itertools object: `rows` gives its items; it can be rebuilt only before the first one was taken."""

    def __init__(
        self, cls: Any, args: Sequence[Value], kwargs: dict[str, Value], rows: Callable[[], Iterator[Value]]
    ):
        super().__init__()
        self.cls, self.args, self.kwargs = cls, list(args), dict(kwargs)
        self.rows = rows()
        self.started = False

    def python_type(self) -> type:
        made: Any = self.cls if isinstance(self.cls, type) else self.cls.__self__  # chain.from_iterable makes chains
        return made  # type: ignore[no-any-return]

    def next(self, tx: Tracer) -> Value | None:
        self.started = True
        return next(self.rows, None)

    def reconstruct(self, builder: Builder) -> None:
        if self.started:
            super().reconstruct(builder)
        builder.load_const(self.cls)
        for arg in (*self.args, *self.kwargs.values()):
            builder.load(arg)
        builder.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))


def chain_rows(tx: Tracer, parts: Iterator[Value]) -> Iterator[Value]:
    for part in parts:
        yield from drain(tx, part.iterate(tx))


def drain(tx: Tracer, iterator: Value) -> Iterator[Value]:
    """The items of an iterator value, one at a time."""
    while (item := iterator.next(tx)) is not None:
        yield item


def islice_rows(tx: Tracer, iterator: Value, window: slice) -> Iterator[Value]:
    stop = window.stop
    wanted = itertools.count(window.start or 0, window.step or 1)
    target = next(wanted)
    position = 0
    while stop is None or position < stop:
        if stop is not None and target >= stop:
            # islice still uses up the items before `stop`.
            target = stop
        item = iterator.next(tx)
        if item is None:
            return
        if position == target:
            yield item
            target = next(wanted)
        position += 1


def cycle_rows(tx: Tracer, iterator: Value) -> Iterator[Value]:
    seen: list[Value] = []
    for item in drain(tx, iterator):
        seen.append(item)
        yield item
    while seen:
        yield from seen


def accumulate_rows(
    tx: Tracer, items: Value, combine: Callable[[Value, Value], Value], initial: Value | None
) -> Iterator[Value]:
    total = initial
    if total is not None:
        yield total
    for item in drain(tx, items):
        total = item if total is None else combine(total, item)
        yield total


def bounded(rows: int, limit: int, what: str) -> None:
    """Refuses to list a product or permutation that would swamp the trace."""
    if rows > limit:
        raise GraphBreak("graph-too-large", f"{what} of {rows} items")
