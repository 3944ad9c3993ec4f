"""Lists, tuples, torch.Size and deques.

Appending to an outside list that was never read needs no guard.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Hashable
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, ListItem, SlotAttr, Source
from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.builtin_kind import builtin_method
from dyncomp.values.operators import compare, equal
from dyncomp.values.registry import wrap_type
from dyncomp.values.sequence_base import SequenceValue, as_index, integer
from dyncomp.values.sym_number import product, wrap_number


class TupleValue(SequenceValue):
    """tuple and torch.Size."""

    def key(self, tx: Tracer) -> Hashable:
        return tuple(item.key(tx) for item in self.items)

    @builtin_method("__hash__")
    def _hash(self, tx: Tracer) -> Value:
        return tx.constant(hash(self.as_constant()))

    @builtin_method("numel")
    def _numel(self, tx: Tracer) -> Value:
        if self.cls is not torch.Size:
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute 'numel'")
        if any(item.symbolic for item in self.items):
            return product(tx, self.items)
        return tx.constant(self.as_constant().numel())

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "numel" and self.cls is not torch.Size:
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute 'numel'")
        return super().getattr(tx, name)

    def reconstruct(self, builder: Builder) -> None:
        if self.cls is not tuple:
            builder.load_const(self.cls)
        for item in self.items:
            builder.load(item)
        builder.build_tuple(len(self.items))
        if self.cls is not tuple:
            builder.call(1)


class ListValue(SequenceValue):
    """list and, with another `cls`, collections.deque."""

    def __init__(
        self,
        items: list[Value] | None,
        cls: type = list,
        source: Source | None = None,
        tx: Tracer | None = None,
        outside: Any = None,
        maxlen: int | None = None,
    ):
        super().__init__(items, cls, source, tx, outside)
        self.maxlen = maxlen
        self.only_appended = True  # effects: `extend` with the new items is enough
        self.read_length: int | None = None

    def _read(self) -> None:
        super()._read()
        self.read_length = len(self._items or ()) - len(self.appended)

    # -- an outside list that is not read: what a list that grows from call to call is asked for
    def length(self, tx: Tracer) -> Value:
        if self._is_growing():
            number = tx.sizes.length(len(self._outside), self.source)
            if number is None:
                tx.guard(self.source, "len", number := len(self._outside))  # type: ignore[arg-type]
            return wrap_number(tx, number + len(self.appended))
        return super().length(tx)

    def truth(self, tx: Tracer) -> bool:
        if not self._is_growing():
            return super().truth(tx)
        if not self.appended:
            tx.guard(self.source, "truth", bool(self._outside))  # type: ignore[arg-type]
        return bool(self.appended or self._outside)

    def getitem(self, tx: Tracer, key: Value) -> Value:
        if self._is_growing() and key.is_constant() and not key.symbolic:
            item = self._item_at(tx, key.as_constant())
            if item is not None:
                return item
        return super().getitem(tx, key)

    def _is_growing(self) -> bool:
        return self.cls is list and not self.is_read and self.source is not None

    def _item_at(self, tx: Tracer, index: Any) -> Value | None:
        """One item of many; None leaves it to the list that is read. What was appended, and what is counted from the start, needs no
        guard on the length: the item's own says that it is there."""
        if not isinstance(index, int):
            return None
        if -len(self.appended) <= index < 0:
            return self.appended[index]
        if index < 0:
            tx.guard(self.source, "len", len(self._outside))  # type: ignore[arg-type]
            index += len(self._outside) + len(self.appended)
        if 0 <= index < len(self._outside):
            return tx.wrap(self._outside[index], self._item_source(index))
        return None

    def _item_source(self, index: int) -> Source:
        assert self.source is not None
        if self.cls is collections.deque:
            return ListItem(Call(self.source, list), index)
        return super()._item_source(index)

    def _made(self, items: list[Value]) -> ListValue:
        made = ListValue(items, self.cls, maxlen=self.maxlen)
        made._trim()
        return made

    def touch(self, tx: Tracer, appending: bool = False) -> None:
        """Announces a change of the contents."""
        if self.source is not None:
            if not appending:
                _ = self.items
                self.only_appended = False
            tx.effects.touch(self)

    def _trim(self, left: bool = False) -> None:
        if self.maxlen is not None and len(self.items) > self.maxlen:
            self.only_appended = False
            extra = len(self.items) - self.maxlen
            self.items[:] = self.items[:-extra] if left else self.items[extra:]

    def replace(self, tx: Tracer, items: list[Value]) -> None:
        self.touch(tx)
        self.items[:] = items
        self._trim()

    def setitem(self, tx: Tracer, key: Value, value: Value) -> None:
        index = as_index(tx, key, self.cls)
        self.touch(tx)
        if isinstance(index, slice):
            new = value.unpack(tx)
            count = len(range(*index.indices(len(self.items))))
            if index.step not in (None, 1) and count != len(new):
                tx.raise_(
                    ValueError,
                    f"attempt to assign sequence of size {len(new)} to extended slice of size {count}",
                )
            self.items[index] = new
            return
        if not -len(self.items) <= index < len(self.items):
            tx.raise_(IndexError, f"{self.cls.__name__} assignment index out of range")
        self.items[index] = value

    def delitem(self, tx: Tracer, key: Value) -> None:
        index = as_index(tx, key, self.cls)
        self.touch(tx)
        if not isinstance(index, slice) and not -len(self.items) <= index < len(self.items):
            tx.raise_(IndexError, f"{self.cls.__name__} assignment index out of range")
        del self.items[index]

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        if inplace and op == "+":
            self._extend(tx, other)
            return self
        if inplace and op == "*" and other.is_constant() and isinstance(other.as_constant(), int):
            self.replace(tx, self._repeated(other.as_constant()))
            return self
        return super().binary(tx, op, other, reflected, inplace)

    @builtin_method("append")
    def _append(self, tx: Tracer, item: Value) -> Value:
        self.touch(tx, appending=True)
        if self.is_read or self.maxlen is not None:  # what falls off at the other end has to be known
            self.items.append(item)
            self._trim()
        else:
            self.appended.append(item)
        return tx.constant(None)

    @builtin_method("__iadd__")
    def _iadd(self, tx: Tracer, other: Value) -> Value:
        self._extend(tx, other)
        return self

    @builtin_method("__imul__")
    def _imul(self, tx: Tracer, times: Value) -> Value:
        result = self.binary(tx, "*", times, inplace=True)
        return tx.raise_(TypeError, "a sequence times no integer") if result is None else result

    @builtin_method("extend")
    def _extend(self, tx: Tracer, other: Value) -> Value:
        for item in other.unpack(tx):
            self._append(tx, item)
        return tx.constant(None)

    @builtin_method("insert")
    def _insert(self, tx: Tracer, index: Value, item: Value) -> Value:
        if self.maxlen is not None and len(self.items) >= self.maxlen:
            tx.raise_(IndexError, "deque already at its maximum size")
        self.touch(tx)
        self.items.insert(integer(index), item)
        return tx.constant(None)

    @builtin_method("pop")
    def _pop(self, tx: Tracer, index: Value | None = None) -> Value:
        if index is not None and self.cls is collections.deque:
            raise GraphBreak("eager-error", "pop() of a deque takes no arguments")
        return self._pop_at(tx, -1 if index is None else as_index(tx, index, self.cls))

    def _pop_at(self, tx: Tracer, where: int | slice) -> Value:
        if where == -1 and self.appended and self._is_growing():
            return self.appended.pop()
        if not self.items:
            tx.raise_(
                IndexError,
                "pop from an empty deque" if self.cls is collections.deque else "pop from empty list",
            )
        self.touch(tx)
        if not isinstance(where, int):
            raise GraphBreak("eager-error", f"{self.cls.__name__}.pop of a slice")
        try:
            return self.items.pop(where)
        except IndexError:
            tx.raise_(IndexError, "pop index out of range")

    @builtin_method("remove")
    def _remove(self, tx: Tracer, item: Value) -> Value:
        for i, own in enumerate(self.items):
            if equal(tx, own, item):
                self.touch(tx)
                del self.items[i : i + 1]
                return tx.constant(None)
        if self.cls is collections.deque:
            raise GraphBreak("eager-error", "deque.remove: not found")
        tx.raise_(ValueError, "list.remove(x): x not in list")

    @builtin_method("clear")
    def _clear(self, tx: Tracer) -> Value:
        self.replace(tx, [])
        return tx.constant(None)

    @builtin_method("reverse")
    def _reverse(self, tx: Tracer) -> Value:
        self.replace(tx, self.items[::-1])
        return tx.constant(None)

    @builtin_method("copy", "__copy__")
    def _copy(self, tx: Tracer) -> Value:
        return self._made(list(self.items))

    @builtin_method("sort")
    def _sort(self, tx: Tracer, *, key: Value | None = None, reverse: Value | None = None) -> Value:
        self.replace(tx, sort_values(tx, self.items, key, reverse))
        return tx.constant(None)

    @builtin_method("popleft")
    def _popleft(self, tx: Tracer) -> Value:
        return self._pop_at(tx, 0)

    @builtin_method("appendleft")
    def _appendleft(self, tx: Tracer, item: Value) -> Value:
        self.touch(tx)
        self.items.insert(0, item)
        self._trim(left=True)
        return tx.constant(None)

    @builtin_method("extendleft")
    def _extendleft(self, tx: Tracer, other: Value) -> Value:
        for item in other.unpack(tx):
            self._appendleft(tx, item)
        return tx.constant(None)

    @builtin_method("rotate")
    def _rotate(self, tx: Tracer, n: Value | None = None) -> Value:
        turned = collections.deque(self.items)
        turned.rotate(1 if n is None else integer(n))
        self.replace(tx, list(turned))
        return tx.constant(None)

    def call_method(self, tx: Tracer, name: str, args: Any, kwargs: dict[str, Value]) -> Value:
        self._refuse_foreign(tx, name)
        return super().call_method(tx, name, args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> Value:
        self._refuse_foreign(tx, name)
        if name == "maxlen" and self.cls is collections.deque:
            return tx.constant(self.maxlen)
        return super().getattr(tx, name)

    def _refuse_foreign(self, tx: Tracer, name: str) -> None:
        """Lists have no popleft, deques no sort."""
        if not hasattr(self.cls, name):
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def as_constant(self) -> Any:
        if self.cls is collections.deque:
            return collections.deque([item.as_constant() for item in self.items], self.maxlen)
        return super().as_constant()

    def reconstruct(self, builder: Builder) -> None:
        if self.cls is list:
            builder.build_list(0)
            builder.remember(self)
            for item in self.items:
                builder.load(item)
                builder.list_append()
            return
        builder.load_const(
            functools.partial(self.cls, maxlen=self.maxlen) if self.maxlen is not None else self.cls
        )
        for item in self.items:
            builder.load(item)
        builder.build_list(len(self.items))
        builder.call(1)


def sort_values(tx: Tracer, items: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
    """Python's stable sort, comparing values with `<`."""
    use_key = key is not None and not (key.is_constant() and key.as_constant() is None)
    keys = [tx.call(key, [item]) for item in items] if use_key and key is not None else items
    backwards = reverse is not None and reverse.truth(tx)

    def order(left: tuple[int, Value], right: tuple[int, Value]) -> int:
        return -1 if compare(tx, "<", left[1], right[1]).truth(tx) else 0  # sorting asks for nothing else

    ranked = sorted(enumerate(keys), key=functools.cmp_to_key(order), reverse=backwards)
    return [items[i] for i, _ in ranked]


@wrap_type(list)
def wrap_list(tx: Tracer, obj: list[Any], source: Source) -> Value:
    return ListValue(None, list, source, tx, obj)


@wrap_type(tuple, torch.Size)
def wrap_tuple(tx: Tracer, obj: tuple[Any, ...], source: Source) -> Value:
    return TupleValue(None, type(obj), source, tx, obj)


@wrap_type(collections.deque)
def wrap_deque(tx: Tracer, obj: collections.deque[Any], source: Source) -> Value:
    limit = tx.wrap(obj.maxlen, SlotAttr(source, "maxlen")).as_constant()
    return ListValue(None, collections.deque, source, tx, list(obj), maxlen=limit)
