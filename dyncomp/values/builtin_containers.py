"""Calls that make containers: list, tuple, set, dict and their kin, slice, range."""

from __future__ import annotations

import collections

from dyncomp.errors import GraphBreak
from dyncomp.values import special_results
from dyncomp.values.base import ABSENT, Tracer, Value
from dyncomp.values.builtin_arguments import Args, Kwargs
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.constant import fold_call
from dyncomp.values.mapping import DictValue, pairs_of
from dyncomp.values.registry import on_call
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.sets import SetValue, made_of


@on_call(list)
def _list(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(args[0].unpack(tx) if args else [])


@on_call(tuple)
def _tuple(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return tx.tuple_of(args[0].unpack(tx) if args else [])


@on_call(set)
def _set(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return made_of(tx, set, args[0]) if args else SetValue({})


@on_call(frozenset)
def _frozenset(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return made_of(tx, frozenset, args[0]) if args else SetValue({}, frozenset)


@on_call(collections.deque)
def _deque(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    limit = args[1] if len(args) > 1 else kwargs.get("maxlen")
    most = None if limit is None else limit.as_constant()
    if most is not None and not (isinstance(most, int) and most >= 0):
        raise GraphBreak("eager-error", f"a deque of {most!r} items at most")
    made = ListValue([], collections.deque, maxlen=most)
    for item in args[0].unpack(tx) if args else []:
        made.call_method(tx, "append", [item], {})
    return made


def filled_dict(tx: Tracer, made: DictValue, args: Args, kwargs: Kwargs) -> DictValue:
    for key, value in pairs_of(tx, args[0]) if args else []:
        made.store(tx, key, value)
    for name, value in kwargs.items():
        made.store(tx, tx.constant(name), value)
    return made


@on_call(dict)
def _dict(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return filled_dict(tx, DictValue(), args, kwargs)


@on_call(collections.OrderedDict)
def _ordered_dict(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return filled_dict(tx, DictValue(cls=collections.OrderedDict), args, kwargs)


@on_call(collections.defaultdict)
def _defaultdict(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue(cls=collections.defaultdict)
    if args and not (args[0].is_constant() and args[0].as_constant() is None):
        made.factory = args[0]
        if class_lookup(args[0].python_type(), "__call__") is ABSENT:
            tx.raise_(TypeError, "first argument must be callable or None")
    return filled_dict(tx, made, args[1:], kwargs)


@on_call(dict.fromkeys)
def _fromkeys(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue()
    for key in args[0].unpack(tx):
        made.store(tx, key, args[1] if len(args) > 1 else tx.constant(None))
    return made


@on_call(slice)
def _slice(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.slice_of(list(args) if len(args) > 1 else [tx.constant(None), *args])


@on_call(range)
def _range(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return fold_call(tx, range, [_as_int(tx, arg) for arg in args], kwargs)


def _as_int(tx: Tracer, value: Value) -> Value:
    return value if value.is_constant() else special_results.index(tx, value.call_method(tx, "__index__", [], {}))
