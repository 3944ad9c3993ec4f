"""Attributes of classes that the traced code assigns or deletes, and those that vary from call to call.

    type(self).count += 1      type.__setattr__(Model, "count", <new value>) after the graph has run (`interp/effects.py`)
    self.count                 later in the same code: the new value, unless the object has its own

Only data is followed, on classes whose objects are followed: what has a special meaning to Python (`__len__`), takes part when it is
read (functions, properties) or is looked up past the values here breaks the graph. The metaclass's own `__setattr__` is traced.
"""

from __future__ import annotations

import functools
import operator
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, SlotAttr
from dyncomp.values.base import ABSENT, Tracer, Value
from dyncomp.values.class_facts import HEAP_TYPE, class_lookup, is_data_descriptor, is_plain

# What is read of classes elsewhere as it stands.
_READ_AS_IT_STANDS = frozenset({"_compiled_call_impl", "_fields", "_is_protocol", "_is_runtime_protocol"})
_OTHER_KINDS = (type, BaseException)
UNTOUCHED: Any = type("Untouched", (), {"__repr__": lambda self: "<untouched>", "__slots__": ()})()
Writes = dict[int, dict[str, Value | None]]  # id of a class (its metaclass may define a hash) -> name -> new value; None: deleted


def _writes(tx: Tracer) -> Writes:
    return tx.state.setdefault(__name__, {})  # type: ignore[no-any-return]


def any_written(tx: Tracer, cls: type) -> bool:
    """True if the traced code changed this very class."""
    return id(cls) in _writes(tx)


def is_written(tx: Tracer, classes: Sequence[type], name: str) -> bool:
    """True if the traced code assigned or deleted this attribute of one of the classes."""
    return bool(tx.state.get(__name__)) and any(name in _writes(tx).get(id(cls), ()) for cls in classes)


def find(tx: Tracer, cls: type, name: str) -> Value | Any:
    """What `cls` finds under a name that was written on its way there: the value, ABSENT once it was deleted; UNTOUCHED: what it
    found when the trace began."""
    if not is_written(tx, cls.__mro__, name):
        return UNTOUCHED
    writes, deleted = _writes(tx), False
    for base in cls.__mro__:
        own = writes.get(id(base), {})
        if own.get(name) is not None:
            return own[name]
        if name in own:
            deleted = True
            continue
        _guard_own(tx, base, name)
        if name in base.__dict__:
            if deleted:
                raise GraphBreak("unsupported-mutation", f"reading {name!r} of {base.__qualname__} past a deleted one of {cls.__qualname__}")
            return UNTOUCHED
    return ABSENT


def store(tx: Tracer, target: Value, cls: type, name: str, value: Value | None) -> None:
    """`type.__setattr__(cls, name, value)`, or `type.__delattr__(cls, name)`; `target` is the class's value."""
    _refuse_other_kinds(cls, name)
    if value is not None:
        kind = value.python_type()
        if class_lookup(kind, "__get__") is not ABSENT:
            raise GraphBreak("unsupported-mutation", f"setting {name!r} of the class {cls.__qualname__} to a {kind.__name__}")
    elif _writes(tx).get(id(cls), {}).get(name) is None:
        _guard_own(tx, cls, name)
        if name in _writes(tx).get(id(cls), ()) or name not in cls.__dict__:
            raise GraphBreak("eager-error", f"deleting {name!r}, which the class {cls.__qualname__} does not have")
    tx.effects.touch_class(target, name, value)
    _writes(tx).setdefault(id(cls), {})[name] = value


def _refuse_other_kinds(cls: type, name: str) -> None:
    what = f"setting attribute {name!r} of the class {cls.__qualname__}"
    if not cls.__flags__ & HEAP_TYPE or not is_plain(cls) or issubclass(cls, _OTHER_KINDS):
        raise GraphBreak("unsupported-mutation", what)
    meta = class_lookup(type(cls), name)
    if name.startswith("__") or name in _READ_AS_IT_STANDS or meta is not ABSENT and is_data_descriptor(meta):
        raise GraphBreak("unsupported-mutation", what)
    raw = class_lookup(cls, name)
    if raw is not ABSENT and (isinstance(raw, types.FunctionType) or class_lookup(type(raw), "__get__") is not ABSENT):
        raise GraphBreak("unsupported-mutation", f"{what}, which is a {type(raw).__name__}")


def _guard_own(tx: Tracer, cls: type, name: str) -> None:
    """Whether the class itself has this attribute, whatever its bases have."""
    source = tx.constant(cls).source
    if source is not None:
        tx.guard(Call(SlotAttr(source, "__dict__"), _has(name)), "equals", name in cls.__dict__)


@functools.cache
def _has(name: str) -> Callable[[Any], Any]:
    return operator.methodcaller("__contains__", name)


# -- data that varies ----------------------------------------------------------------------------------------
_VARIES = -1
_seen: dict[int, tuple[weakref.ref[type], dict[str, int]]] = {}  # by id of a class: name -> id of what was found last


def varies(cls: type, name: str, raw: Any) -> bool:
    """True for data that a class found under a name where it has found another object in an earlier trace."""
    if raw is ABSENT or callable(raw) or class_lookup(type(raw), "__get__") is not ABSENT or name.startswith("__"):
        return False
    key = id(cls)
    if key not in _seen:
        _seen[key] = weakref.ref(cls, lambda _: _seen.pop(key, None)), {}
    known = _seen[key][1]
    if known.setdefault(name, id(raw)) != id(raw):
        known[name] = _VARIES
    return known[name] == _VARIES
