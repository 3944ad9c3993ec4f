"""Emits the side effects of a trace, to be done after the graph has run.

In:  `Effects`: which outside objects changed, in order, their new state in their values
Out: code on a `RunBuilder` that leaves the stack as it was

    counter.total += 1          ->    object.__setattr__(counter, 'total', out0)
    seen.append(x)              ->    list.extend(seen, [x])

Changes go past the user's own `__setitem__`, `__setattr__` and the like: those ran while tracing.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dyncomp.errors import InternalError
from dyncomp.interp.effects import Call, ClassWrite, Contents, Effects, GradWrite, SlotWrite
from dyncomp.interp.emit import RunBuilder
from dyncomp.values.base import Value
from dyncomp.values.constant import ConstantValue
from dyncomp.values.function import CellValue
from dyncomp.values.instance import InstanceValue
from dyncomp.values.mapping import DictValue
from dyncomp.values.sequence import ListValue
from dyncomp.values.sets import SetValue

_SET_GRAD = vars(torch._C.TensorBase)["grad"].__set__  # past a `__setattr__` of the user's class


def replay(builder: RunBuilder, effects: Effects) -> None:
    """All effects, in order."""
    for effect in effects:
        if isinstance(effect, Call):
            _call(builder, effect.function, *effect.args, result=effect.result)
        elif isinstance(effect, GradWrite):
            assert effect.target.grad is not None, "an assignment has a value"
            _call(builder, _SET_GRAD, effect.target, effect.target.grad)
        elif isinstance(effect, SlotWrite):
            _slot(builder, effect.target, effect.name)
        elif isinstance(effect, ClassWrite):
            _class_attribute(builder, effect)
        else:
            _contents(builder, effect)


def _contents(builder: RunBuilder, effect: Contents) -> None:
    for kind, emit in _KINDS.items():
        if isinstance(effect.target, kind):
            emit(builder, effect.target)
            return
    raise InternalError(f"no way to replay a change of {effect.target.describe()}")


def _list(builder: RunBuilder, target: ListValue) -> None:
    if target.only_appended:
        new = target.appended if target.read_length is None else target.items[target.read_length :]
        if new:
            _extend(builder, target, collections.deque if _is_deque(target) else list, new)
    elif _is_deque(target):
        _call(builder, collections.deque.clear, target)
        _extend(builder, target, collections.deque, target.items)
    else:
        builder.load_const(list.__setitem__)
        builder.load(target)
        builder.load_const(slice(None))
        _load_list(builder, target.items)
        builder.call(3)
        builder.pop()


def _is_deque(target: ListValue) -> bool:
    return issubclass(target.cls, collections.deque)


def _extend(builder: RunBuilder, target: ListValue, base: Any, new: Sequence[Value]) -> None:
    builder.load_const(base.extend)
    builder.load(target)
    _load_list(builder, new)
    builder.call(2)
    builder.pop()


def _load_list(builder: RunBuilder, items: Sequence[Value]) -> None:
    builder.build_list(0)  # item by item: the stack stays low however long the list
    for item in items:
        builder.load(item)
        builder.list_append()


def _set(builder: RunBuilder, target: SetValue) -> None:
    """Step by step: the order of a set depends on its history."""
    for method, args in target.history:
        _call(builder, getattr(set, method), target, *args)


def _cell(builder: RunBuilder, target: CellValue) -> None:
    _attribute(builder, target, "cell_contents", target.contents)


def _dict(builder: RunBuilder, target: DictValue) -> None:
    base = collections.OrderedDict if issubclass(target.cls, collections.OrderedDict) else dict
    for kind, key, value in target.writes:
        name = _attribute_name(target, key)
        if name is not None and target.owner is not None:
            _attribute(builder, target.owner, name, value)
        elif kind == "del":
            _call(builder, base.__delitem__, target, key)
        else:
            assert value is not None, "a write has a value"
            _call(builder, base.__setitem__, target, key, value)


def _attribute_name(target: DictValue, key: Value) -> str | None:
    """The attribute that a key of an object's `__dict__` is; None if only the dictionary itself can be
    written."""
    if target.owner is None or not isinstance(key, ConstantValue) or key.unread:
        return None
    name = key.peek()
    if not isinstance(name, str):
        return None
    for cls in target.owner.python_type().__mro__:
        if name in cls.__dict__:  # a property, a slot: object.__setattr__ would go there
            return None if hasattr(type(cls.__dict__[name]), "__set__") else name
    return name


def _attribute(builder: RunBuilder, target: Value, name: str, value: Value | None) -> None:
    builder.load(target)
    if value is None:
        builder.delete_attr(name)
    else:
        builder.load(value)
        builder.store_attr(name)
    builder.pop()


def _slot(builder: RunBuilder, target: InstanceValue, name: str) -> None:
    value = target.slots[name]
    if value is None:
        builder.load_const(_empty_slot)
        builder.load(target)
        builder.load_const(name)
        builder.call(2)
        builder.pop()
    else:
        _attribute(builder, target, name, value)


def _class_attribute(builder: RunBuilder, effect: ClassWrite) -> None:
    """Past the metaclass's own `__setattr__`, which ran while tracing."""
    name = ConstantValue(effect.name)
    if effect.value is None:
        _call(builder, _empty_class_attribute, effect.target, name)
    else:
        _call(builder, type.__setattr__, effect.target, name, effect.value)


def _empty_class_attribute(cls: type, name: str) -> None:
    """Run-time helper: an attribute that was set and deleted again may not have been there before."""
    if name in cls.__dict__:
        type.__delattr__(cls, name)


def _empty_slot(obj: Any, name: str) -> None:
    """Run-time helper: a slot that was set and deleted again may have been empty before."""
    try:
        object.__delattr__(obj, name)
    except AttributeError:
        pass


def _call(builder: RunBuilder, function: object, *args: Value, result: Value | None = None) -> None:
    builder.load_const(function)
    for arg in args:
        builder.load(arg)
    builder.call(len(args))
    if result is not None:
        builder.remember(result)
    builder.pop()


_KINDS: dict[type[Value], Callable[[RunBuilder, Any], None]] = {
    ListValue: _list,
    DictValue: _dict,
    SetValue: _set,
    CellValue: _cell,
}
