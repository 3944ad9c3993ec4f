"""Calls of C functions of the standard library by their Python stand-ins: heapq, bisect, Counter's counting, cmp_to_key, groupby, tee."""

from __future__ import annotations

import _heapq
import bisect
import collections
import functools
import heapq
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values import stand_ins
from dyncomp.values.base import Builder, Tracer, Unreconstructible, Value
from dyncomp.values.iterators import IteratorValue
from dyncomp.values.library_calls import GetterValue
from dyncomp.values.operators import binary, equal
from dyncomp.values.registry import on_call
from dyncomp.values.sequence import ListValue

Args = Sequence[Value]
Kwargs = dict[str, Value]
_OF_HEAPS: dict[Any, Any] = {
    heapq.heappush: stand_ins.heappush, heapq.heappop: stand_ins.heappop, heapq.heapify: stand_ins.heapify,
    heapq.heapreplace: stand_ins.heapreplace, heapq.heappushpop: stand_ins.heappushpop,
    _heapq._heapify_max: stand_ins.heapify_max,  # type: ignore[attr-defined]
    _heapq._heappop_max: stand_ins.heappop_max, _heapq._heapreplace_max: stand_ins.heapreplace_max,  # type: ignore[attr-defined]
}  # fmt: skip
_OF_SEQUENCES: dict[Any, Any] = {
    bisect.bisect_left: stand_ins.bisect_left, bisect.bisect_right: stand_ins.bisect_right,
    bisect.insort_left: stand_ins.insort_left, bisect.insort_right: stand_ins.insort_right,
}  # fmt: skip


def _register(function: Any, stand_in: Any, takes: Callable[[Value], bool]) -> None:
    @on_call(function)
    def call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not args or not takes(args[0]):
            raise GraphBreak("unsupported-builtin", f"{function.__name__} of {args[0].describe() if args else 'arguments by name'}")
        try:
            return tx.call(tx.constant(stand_in), args, kwargs)
        except GraphBreak as error:  # what broke it is the call, for the user
            error.stack = tuple([frame.where() for frame in tx.frames])  # type: ignore[attr-defined]
            raise


def _is_list(value: Value) -> bool:
    return isinstance(value, ListValue) and value.cls is list


for _function, _stand_in in _OF_HEAPS.items():
    _register(_function, _stand_in, _is_list)
for _function, _stand_in in _OF_SEQUENCES.items():
    _register(_function, _stand_in, _is_list)


@on_call(collections._count_elements)  # type: ignore[attr-defined]
def _count_elements(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.call(tx.constant(stand_ins.count_elements), args, kwargs)


# -- functools, operator -------------------------------------------------------------------------------------
class ComparisonKey(Value):
    """functools.cmp_to_key(compare)"""

    def __init__(self, compare: Value):
        super().__init__()
        self.compare_function = compare

    def python_type(self) -> type:
        return type(functools.cmp_to_key(min))

    def describe(self) -> str:
        return f"cmp_to_key of {self.compare_function.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if len(args) != 1 or kwargs:
            raise GraphBreak("eager-error", "arguments that the result of cmp_to_key does not take")
        return tx.call(tx.constant(stand_ins.ByComparison), [self.compare_function, *args])

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(functools.cmp_to_key)
        builder.load(self.compare_function)
        builder.call(1)


@on_call(functools.cmp_to_key)
def _cmp_to_key(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ComparisonKey(*args, *kwargs.values())


class MethodCaller(GetterValue):
    """operator.methodcaller(name, *args, **kwargs)"""

    def __init__(self, args: list[Value], kwargs: Kwargs):
        super().__init__(operator.methodcaller, args)
        self.kwargs = kwargs

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if len(args) != 1 or kwargs:
            raise GraphBreak("eager-error", "arguments that a methodcaller does not take")
        return args[0].call_method(tx, self.args[0].as_constant(), self.args[1:], self.kwargs)

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(self.cls)
        for arg in (*self.args, *self.kwargs.values()):
            builder.load(arg)
        builder.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))


@on_call(operator.methodcaller)
def _methodcaller(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not args or args[0].python_type() is not str:
        raise GraphBreak("eager-error", "methodcaller() without the name of a method")
    return MethodCaller(list(args), dict(kwargs))


@on_call(operator.concat)
def _concat(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _joined(tx, args, inplace=False)


@on_call(operator.iconcat)
def _iconcat(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _joined(tx, args, inplace=True)


def _joined(tx: Tracer, args: Args, inplace: bool) -> Value:
    if not all(issubclass(arg.python_type(), list | tuple | str | bytes) for arg in args):
        raise GraphBreak("unsupported-builtin", f"operator.{'i' if inplace else ''}concat of {args[0].describe()}")
    return binary(tx, "+", args[0], args[1], inplace=inplace)


# -- itertools -----------------------------------------------------------------------------------------------
class GroupBy(IteratorValue):
    """itertools.groupby: `group` is the one that was given last, which ends when the next one is asked for."""

    cls = itertools.groupby

    def __init__(self, items: Value, key: Value | None):
        super().__init__()
        self.items, self.key_function = items, key
        self.waiting: tuple[Value, Value] | None = None  # an item that no group has given yet, with its key
        self.key_now: Value | None = None
        self.group: Group | None = None
        self.ended = False

    def advance(self, tx: Tracer) -> bool:
        """Takes the next item; False at the end."""
        item = self.items.next(tx)
        if item is None:
            self.waiting, self.ended = None, True
            return False
        self.waiting = item, item if self.key_function is None else tx.call(self.key_function, [item])
        return True

    def next(self, tx: Tracer) -> Value | None:
        self.group = None
        if self.ended:
            return None
        while self.waiting is None or self.key_now is not None and equal(tx, self.key_now, self.waiting[1]):
            if not self.advance(tx):
                return None
        self.key_now = self.waiting[1]
        self.group = Group(self)
        return tx.tuple_of([self.key_now, self.group])

    def reconstruct(self, builder: Builder) -> None:
        if self.key_now is not None or self.waiting is not None or self.ended:
            raise Unreconstructible(self, "a groupby that has begun")
        builder.load_const(itertools.groupby)
        builder.load(self.items)
        if self.key_function is not None:
            builder.load(self.key_function)
        builder.call(1 if self.key_function is None else 2)


class Group(IteratorValue):
    cls: type = type(next(itertools.groupby("a"))[1])

    def __init__(self, of: GroupBy):
        super().__init__()
        self.of, self.key_of_group = of, of.key_now

    def next(self, tx: Tracer) -> Value | None:
        of = self.of
        if of.group is not self or of.ended:
            return None
        if of.waiting is None and not of.advance(tx):
            return None
        assert of.waiting is not None and self.key_of_group is not None
        item, key = of.waiting
        if not equal(tx, self.key_of_group, key):
            return None
        of.waiting = None
        return item


@on_call(itertools.groupby)
def _groupby(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("iterable", "key"), args, strict=False)) | kwargs
    items, key = given.get("iterable"), given.get("key")
    if items is None:
        raise GraphBreak("eager-error", "groupby() without an iterable")
    return GroupBy(items.iterate(tx), None if key is None or key.is_constant() and key.as_constant() is None else key)


class Branch(IteratorValue):
    """One of what itertools.tee gives: `seen` is shared, what none has been given yet comes from `items`."""

    cls: type = type(itertools.tee(())[0])

    def __init__(self, items: Value, seen: list[Value]):
        super().__init__()
        self.items, self.seen, self.position = items, seen, 0

    def next(self, tx: Tracer) -> Value | None:
        if self.position == len(self.seen):
            item = self.items.next(tx)
            if item is None:
                return None
            self.seen.append(item)
        self.position += 1
        return self.seen[self.position - 1]


@on_call(itertools.tee)
def _tee(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    count = args[1].as_constant() if len(args) > 1 else 2
    if type(count) is not int or not 0 <= count < 100:
        raise GraphBreak("eager-error", f"tee() into {count}")
    if isinstance(args[0], Branch):
        raise GraphBreak("unsupported-builtin", "tee() of what tee() gave")
    items, seen = args[0].iterate(tx), list[Value]()
    return tx.tuple_of([Branch(items, seen) for _ in range(count)])
