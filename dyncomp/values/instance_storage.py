"""The built-in contents of instances of dict, list, tuple and set subclasses.

    class Config(dict): ...      Config() made while tracing -> an empty dictionary; one from outside -> read through its own source
"""

from __future__ import annotations

import collections
from typing import Any

from dyncomp.guards.source import SlotAttr, Source
from dyncomp.values.base import Tracer
from dyncomp.values.builtin_kind import BuiltinKind
from dyncomp.values.class_facts import solid_base
from dyncomp.values.mapping import DictValue
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.sets import SetValue


def empty_storage(cls: type) -> BuiltinKind | None:
    """Contents of a new instance of a container subclass."""
    base = solid_base(cls)
    if base in (dict, collections.OrderedDict, collections.defaultdict):
        return DictValue(cls=base)
    if base is list:
        return ListValue([])
    if base in (set, frozenset):
        return SetValue({}, base)
    if base is tuple:
        return TupleValue([], tuple)
    return None


def outside_storage(tx: Tracer, obj: Any, source: Source) -> BuiltinKind | None:
    """Contents of an outside instance of a container subclass, read through the object's own source."""
    cls: type = type(obj)
    base = solid_base(cls)
    if base in (dict, collections.OrderedDict, collections.defaultdict):
        storage = DictValue(None, base, source, tx, obj)
        if base is collections.defaultdict:
            storage.factory = tx.wrap(obj.default_factory, SlotAttr(source, "default_factory"))
        return storage
    if base is list:
        return ListValue(None, list, source, tx, obj)
    if isinstance(obj, tuple):
        return TupleValue(None, tuple, source, tx, obj)
    if base in (set, frozenset):
        return SetValue(None, base, source, tx, obj)
    return None
