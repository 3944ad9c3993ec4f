"""The code that makes an instance that came to be while tracing.

    Point(x=1) in the traced program      ->      p = object.__new__(Point); p.x = 1

Past the class's own `__init__`, `__setitem__` and the like: they ran while tracing.
"""

from __future__ import annotations

import collections

from dyncomp.values.attributes import Attributes
from dyncomp.values.base import Builder, Value
from dyncomp.values.class_facts import solid_base
from dyncomp.values.mapping import DictValue
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.sets import SetValue


def rebuild(instance: Attributes, builder: Builder) -> None:
    """[] -> [the object], registered before its contents are loaded, which may refer to it."""
    if isinstance(instance.storage, TupleValue):
        _make_tuple(instance, builder)
    else:
        base = solid_base(instance.cls) or object
        builder.load_const(base.__new__)
        builder.load_const(instance.cls)
        if base is frozenset:
            assert isinstance(instance.storage, SetValue)
            _load_list(builder, instance.storage.in_order())
        builder.call(2 if base is frozenset else 1)
        builder.remember(instance)
    if isinstance(instance.storage, DictValue):
        _fill_dict(instance, builder, instance.storage)
    elif isinstance(instance.storage, (ListValue, SetValue)) and instance.storage.cls is not frozenset:
        _fill_items(instance, builder, instance.storage)
    for name, value in instance.slots.items():
        if value is not None:
            builder.load(value)
            builder.store_attr(name)
    for key, attribute in instance.namespace.made_entries():
        builder.load(attribute)
        builder.store_attr(key.as_constant())


def _make_tuple(instance: Attributes, builder: Builder) -> None:
    structseq = hasattr(instance.cls, "n_sequence_fields")
    builder.load_const(instance.cls if structseq else tuple.__new__)
    if not structseq:
        builder.load_const(instance.cls)
    assert isinstance(instance.storage, TupleValue)
    for item in instance.storage.items:
        builder.load(item)
    builder.build_tuple(len(instance.storage.items))
    builder.call(1 if structseq else 2)
    builder.remember(instance)


def _fill_dict(instance: Attributes, builder: Builder, storage: DictValue) -> None:
    """[obj] -> [obj], past a `__setitem__` of the user's class."""
    base = collections.OrderedDict if issubclass(instance.cls, collections.OrderedDict) else dict
    for key, value in storage.made_entries():
        builder.load_const(base.__setitem__)
        builder.load(instance)
        builder.load(key)
        builder.load(value)
        builder.call(3)
        builder.pop()


def _fill_items(instance: Attributes, builder: Builder, storage: ListValue | SetValue) -> None:
    items = storage.items if isinstance(storage, ListValue) else storage.in_order()
    builder.load_const(list.extend if isinstance(storage, ListValue) else set.update)
    builder.load(instance)
    _load_list(builder, items)
    builder.call(2)
    builder.pop()


def _load_list(builder: Builder, items: list[Value]) -> None:
    for item in items:
        builder.load(item)
    builder.build_list(len(items))
