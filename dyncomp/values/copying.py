"""copy.copy and copy.deepcopy of values.

Containers and plain instances are copied as the `copy` module does by default (a new object of the class, its
`__dict__` copied); constants, functions and classes are their own copies. A class that takes part in copying
with methods of its own is followed where that is `__copy__` or `__deepcopy__`, and breaks the graph
otherwise.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Sequence

from dyncomp.errors import GraphBreak
from dyncomp.values.base import ABSENT, Tracer, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.constant import ConstantValue
from dyncomp.values.exception import ExceptionValue
from dyncomp.values.function import FunctionValue
from dyncomp.values.instance import InstanceValue
from dyncomp.values.instance_storage import empty_storage
from dyncomp.values.klass import ClassValue
from dyncomp.values.mapping import DictValue
from dyncomp.values.registry import on_call
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.sequence_base import SequenceValue
from dyncomp.values.sets import SetValue

Part = Callable[[Value], Value]  # what happens to the values inside

_ATOMS = (ConstantValue, FunctionValue, ClassValue, BuiltinValue)
_PICKLE_HOOKS = (
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
)


@on_call(copy.copy)
def _copy(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0]
    if isinstance(value, (*_ATOMS, TupleValue)) or isinstance(value, SetValue) and value.cls is frozenset:
        return value
    if isinstance(value, InstanceValue) and class_lookup(value.cls, "__copy__") is not ABSENT:
        return value.call_method(tx, "__copy__", [], {})
    return _rebuilt(tx, value, {}, lambda part: part)


@on_call(copy.deepcopy)
def _deepcopy(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or kwargs:
        raise GraphBreak("unsupported-builtin", "deepcopy with a memo")
    return _deep(tx, args[0], {})


def _deep(tx: Tracer, value: Value, memo: dict[int, Value]) -> Value:
    if isinstance(value, _ATOMS):
        return value
    done = memo.get(id(value))
    if done is not None:
        return done
    if isinstance(value, InstanceValue) and class_lookup(value.cls, "__deepcopy__") is not ABSENT:
        raise GraphBreak(
            "unsupported-builtin", f"deepcopy of {value.describe()} (its class defines __deepcopy__)"
        )
    return _rebuilt(tx, value, memo, lambda part: _deep(tx, part, memo))


def _rebuilt(tx: Tracer, value: Value, memo: dict[int, Value], part: Part) -> Value:
    """A new object of the same kind; recorded in `memo` before its parts are made, so that cycles close."""
    if isinstance(value, ListValue):
        made = memo[id(value)] = ListValue([], value.cls, maxlen=value.maxlen)
        made.items.extend(part(item) for item in list(value.items))
        return made
    if isinstance(value, SequenceValue):
        return TupleValue([part(item) for item in value.items], value.cls)
    if isinstance(value, SetValue):
        return SetValue({key: part(item) for key, item in value.items.items()}, value.cls)
    if isinstance(value, DictValue):
        copied = memo[id(value)] = DictValue(cls=value.cls)
        copied.factory = value.factory
        _fill(tx, copied, value, part)
        return copied
    if isinstance(value, InstanceValue) and type(value) is InstanceValue:
        return _instance(tx, value, memo, part)
    raise GraphBreak("unsupported-builtin", f"copy of {value.describe()}")


def _fill(tx: Tracer, made: DictValue, value: DictValue, part: Part) -> None:
    for key, item in value.entries(tx):
        made.store(tx, part(key), part(item))


def _reduced(tx: Tracer, value: InstanceValue, memo: dict[int, Value], part: Part) -> Value:
    """By the class's own `__reduce__`: what it says to call, and with what."""
    said = value.call_method(tx, "__reduce__", [], {})
    if not isinstance(said, TupleValue) or len(said.items) != 2 or not isinstance(said.items[1], TupleValue):
        raise GraphBreak("unsupported-builtin", f"copy of {value.describe()} (its __reduce__ gives a state)")
    made = memo[id(value)] = tx.call(said.items[0], [part(arg) for arg in said.items[1].items])
    return made


def _instance(tx: Tracer, value: InstanceValue, memo: dict[int, Value], part: Part) -> Value:
    hooks = [
        name for name in _PICKLE_HOOKS if class_lookup(value.cls, name) is not class_lookup(object, name)
    ]
    if hooks == ["__reduce__"]:
        if class_lookup(value.cls, "__reduce__") is types.SimpleNamespace.__reduce__:  # the class and the `__dict__`
            hooks = []
        else:
            return _reduced(tx, value, memo, part)
    if hooks or isinstance(value, ExceptionValue) or not value.has_dict:
        raise GraphBreak("unsupported-builtin", f"copy of {value.describe()} ({', '.join(hooks) or 'slots'})")
    storage = empty_storage(value.cls)
    made = memo[id(value)] = InstanceValue(value.cls, storage=storage, class_source=value.class_source)
    _fill(tx, made.namespace, value.namespace, part)
    if isinstance(storage, DictValue) and isinstance(value.storage, DictValue):
        _fill(tx, storage, value.storage, part)
    elif isinstance(storage, ListValue) and isinstance(value.storage, ListValue):
        storage.items.extend(part(item) for item in value.storage.items)
    elif storage is not None:
        raise GraphBreak("unsupported-builtin", f"copy of {value.describe()}")
    return made
