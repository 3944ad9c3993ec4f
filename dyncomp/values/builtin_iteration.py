"""Calls that walk through something: len, iter, zip, map, sorted, sum, any, max..."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator
from typing import Any

import torch

from dyncomp.errors import InternalError
from dyncomp.shape.symbolic import float_max, float_min
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin_arguments import Args, Kwargs, one_argument
from dyncomp.values.constant import ConstantValue, fold, fold_call
from dyncomp.values.instance import InstanceValue
from dyncomp.values.iterators import CallIterator, EnumerateValue, FilterValue, MapValue, ZipValue
from dyncomp.values.operators import binary, compare, equal
from dyncomp.values.registry import on_call
from dyncomp.values.running_number import ReadNumberValue, extreme
from dyncomp.values.sequence import ListValue, sort_values
from dyncomp.values.sym_number import SymNumberValue, is_number
from dyncomp.values.sym_number import compute as compute_number


@on_call(len)
def _len(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return one_argument(tx, "len", args, kwargs).length(tx)


@on_call(iter)
def _iter(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return args[0].iterate(tx)
    return UntilIterator(iter, args, {}, lambda: _until(tx, args[0], args[1]))


class UntilIterator(CallIterator):
    """`iter(function, last)`"""

    def python_type(self) -> type:
        return type(iter(int, 1))


def _until(tx: Tracer, function: Value, last: Value) -> Iterator[Value]:
    """`iter(function, last)`: what the calls give, up to something that equals `last`."""
    while True:
        item = tx.catch_stop(lambda: tx.call(function, []))
        if item is None or equal(tx, last, item):
            return
        yield item


@on_call(next)
def _next(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        if "__next__" in getattr(args[0], "methods", ()):
            return args[0].call_method(tx, "__next__", [], {})
        item = args[0].next(tx)
        return item if item is not None else tx.raise_(StopIteration)
    item = args[0].next(tx)
    return args[1] if item is None else item


@on_call(enumerate)
def _enumerate(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", tx.constant(0))
    inner = args[0] if args else kwargs["iterable"]
    count = start.as_constant()
    if not isinstance(count, int):
        tx.raise_(TypeError, "enumerate() counts with integers")
    return EnumerateValue(inner.iterate(tx), count)


@on_call(zip)
def _zip(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and kwargs["strict"].truth(tx)
    return ZipValue([arg.iterate(tx) for arg in args], strict)


@on_call(map)
def _map(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return MapValue(args[0], [arg.iterate(tx) for arg in args[1:]])


@on_call(filter)
def _filter(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return FilterValue(args[0], args[1].iterate(tx))


@on_call(reversed)
def _reversed(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = one_argument(tx, "reversed", args, kwargs)
    if isinstance(value, InstanceValue):
        result = value.special(tx, "__reversed__")
        if result is not None:
            return result
        length = value.length(tx).as_constant()
        return tx.list_of([value.getitem(tx, tx.constant(i)) for i in range(length)][::-1]).iterate(tx)
    if isinstance(value, ConstantValue):
        return tx.constant(tuple(fold(tx, lambda v: tuple(reversed(v)), value).as_constant())).iterate(tx)
    return value.call_method(tx, "__reversed__", [], {})


@on_call(sorted)
def _sorted(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(sort_values(tx, args[0].unpack(tx), kwargs.get("key"), kwargs.get("reverse")))


@on_call(sum)
def _sum(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", tx.constant(0))
    items = args[0].unpack(tx)
    if items and all(item.is_constant() and not item.symbolic for item in (start, *items)):
        # Not one addition at a time: CPython's sum of floats compensates rounding in some versions.
        return fold_call(tx, sum, [tx.tuple_of(items), start], {})
    for item in items:
        start = binary(tx, "+", start, item)
    return start


def _truths(tx: Tracer, value: Value) -> Iterator[bool]:
    iterator = value.iterate(tx)
    while (item := iterator.next(tx)) is not None:
        yield item.truth(tx)


@on_call(any)
def _any(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(any(_truths(tx, one_argument(tx, "any", args, kwargs))))


@on_call(all)
def _all(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(all(_truths(tx, one_argument(tx, "all", args, kwargs))))


_SYMBOLIC_EXTREMES = {
    int: {"max": torch.sym_max, "min": torch.sym_min},
    float: {"max": float_max, "min": float_min},
}


def _error_of(fn: Any, *args: Any) -> Exception:
    """What the call raises on this Python."""
    try:
        fn(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is, the user's call raises it too
        return error
    raise InternalError(f"{fn} was expected to raise")


def _extreme(name: str, op: str) -> Any:
    empty = _error_of(getattr(builtins, name), ())

    def pick(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        items = list(args) if len(args) > 1 else args[0].unpack(tx)
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            tx.raise_(type(empty), str(empty))
        key = kwargs.get("key")
        has_key = key is not None and not (key.is_constant() and key.as_constant() is None)
        if not has_key and any(isinstance(item, ReadNumberValue) for item in items):
            running = extreme(tx, op, items)
            if running is not None:
                return running
        if not has_key and any(isinstance(item, SymNumberValue) for item in items) and all(map(is_number, items)):
            kinds = {item.python_type() for item in items}
            symbolic = _SYMBOLIC_EXTREMES.get(kinds.pop(), {}).get(name) if len(kinds) == 1 else None
            if symbolic is not None:
                return functools.reduce(lambda a, b: compute_number(tx, symbolic, a, b), items)
        best, best_key = items[0], tx.call(key, [items[0]]) if has_key else items[0]  # type: ignore[arg-type]
        for item in items[1:]:
            item_key = tx.call(key, [item]) if has_key else item  # type: ignore[arg-type]
            if compare(tx, op, item_key, best_key).truth(tx):
                best, best_key = item, item_key
        return best

    return pick


on_call(max)(_extreme("max", ">"))
on_call(min)(_extreme("min", "<"))
