"""`str`, `repr` and formatting of values, where the text is known while tracing."""

from __future__ import annotations

import functools
import re
import string
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.values import special_results
from dyncomp.values.base import Tracer, Value
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.constant import ConstantValue, fold, fold_call
from dyncomp.values.instance import InstanceValue
from dyncomp.values.mapping import DictValue
from dyncomp.values.operators import BINARY
from dyncomp.values.registry import on_call
from dyncomp.values.sequence import TupleValue
from dyncomp.values.sequence_base import SequenceValue
from dyncomp.values.sym_number import SymNumberValue


def text_of(tx: Tracer, value: Value, how: Callable[[Any], str] = str) -> Value:
    """`str(value)`, `repr(value)` or `ascii(value)`."""
    if isinstance(value, InstanceValue):
        return _instance_text(tx, value, "__repr__" if how is not str else "__str__")
    if how is str and isinstance(value, ConstantValue) and value.python_type() is str:
        return value
    later = deferred(tx, how, value)
    if later is not None:
        return later
    _read_all(tx, value)
    if value.is_constant():
        return fold(tx, how, value)
    raise GraphBreak("unsupported-object", f"text of {value.describe()}")


def _read_all(tx: Tracer, value: Value) -> None:
    """The text of a container shows all that is in it, so whether it can be told is known once it is read."""
    if isinstance(value, DictValue):
        for _, item in value.entries(tx):
            _read_all(tx, item)
    elif isinstance(value, SequenceValue):
        for item in value.items:
            _read_all(tx, item)


def deferred(tx: Tracer, function: Callable[..., str], *operands: Value) -> Value | None:
    """`function(*operands)` of numbers and strings that need not be looked at yet, or that vary, stays code; None for others.

    The function must not raise for any value of these types.
    """
    if not all(map(_is_plain, operands)) or all(map(_is_read, operands)):
        return None
    for operand in operands:
        operand.python_type()  # guarded
    return ConstantValue(function(*map(_at_hand, operands)), tx=tx, expression=(function, operands))


def _is_plain(value: Value) -> bool:
    if isinstance(value, SymNumberValue):
        return value.is_constant() and not isinstance(value.number, torch.SymBool)
    return isinstance(value, ConstantValue) and type(value.peek()) in (int, float, bool, str, type(None))


def _is_read(value: Value) -> bool:
    return isinstance(value, ConstantValue) and not value.unread


def _at_hand(value: Value) -> Any:
    """The value in this call, without a guard on it."""
    return value.number.node.hint if isinstance(value, SymNumberValue) else value.peek()  # type: ignore[attr-defined]


def _never_fails(kind: type, spec: str) -> bool:
    """True for a format that all values of the type have."""
    letter = spec[-1:]
    if kind is int:
        return letter not in ("c", "e", "E", "f", "F", "g", "G", "%")  # not every int is a character, or has a float near it
    return kind in (float, str, bool)


def deferred_format(tx: Tracer, template: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """`template.format(*args, **kwargs)` of plain fields, as `deferred`."""
    try:
        fields = [(name, spec) for _, name, spec, _ in string.Formatter().parse(template) if name is not None]
    except ValueError:
        return None
    given = {**{str(i): value for i, value in enumerate(args)}, **kwargs}
    numbered = [name or str(i) for i, (name, _) in enumerate(fields)]
    if any("{" in (spec or "") or name not in given or not _is_plain(given[name]) for name, (_, spec) in zip(numbered, fields, strict=True)):
        return None
    if not all(_never_fails(given[name].python_type(), spec or "") for name, (_, spec) in zip(numbered, fields, strict=True) if spec):
        return None
    return deferred(tx, functools.partial(_formatted, template, tuple(kwargs)), *args, *kwargs.values())


def _formatted(template: str, names: tuple[str, ...], *values: Any) -> str:
    """Run-time helper"""
    count = len(values) - len(names)
    return template.format(*values[:count], **dict(zip(names, values[count:], strict=True)))


_PERCENT = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?([a-zA-Z]))")
_PERCENT_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys("sra", (int, float, bool, str, type(None))), **dict.fromkeys("dixXo", (int, bool)), **dict.fromkeys("eEfFgG", (float,)),
}  # fmt: skip


def deferred_percent(tx: Tracer, template: str, values: Sequence[Value]) -> Value | None:
    """`template % values`, as `deferred`."""
    letters = [found[1] for found in _PERCENT.finditer(template) if found[1]]
    if _PERCENT.sub("", template).count("%") or len(letters) != len(values) or not all(map(_is_plain, values)):
        return None
    if not all(value.python_type() in _PERCENT_KINDS.get(letter, ()) for letter, value in zip(letters, values, strict=True)):
        return None
    return deferred(tx, functools.partial(_percent, template), *values)


@on_call(str.format)
def _format(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    template = args[0].as_constant()
    later = deferred_format(tx, template, args[1:], kwargs) if type(template) is str else None
    for value in (*args[1:], *kwargs.values()) if later is None else ():
        _read_all(tx, value)
    return fold_call(tx, str.format, args, kwargs) if later is None else later


@on_call(str.__mod__)
def _mod(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    template, operand = args[0].as_constant(), args[1]
    values = operand.items if isinstance(operand, TupleValue) and operand.cls is tuple else [operand]
    later = deferred_percent(tx, template, values) if type(template) is str else None
    if later is not None:
        return later
    _read_all(tx, operand)
    if not operand.is_constant():
        raise GraphBreak("unsupported-object", f"formatting {operand.describe()}")
    return fold(tx, BINARY["%"], *args)


def _percent(template: str, *values: Any) -> str:
    """Run-time helper"""
    return template % values


def _instance_text(tx: Tracer, value: InstanceValue, name: str) -> Value:
    raw = class_lookup(value.cls, name)
    if name == "__str__" and getattr(raw, "__objclass__", None) is object:
        name = "__repr__"
        raw = class_lookup(value.cls, name)
    if getattr(raw, "__objclass__", None) is object:
        raise GraphBreak("unsupported-object", f"text of {value.describe()}, which holds its address")
    result = value.special(tx, name)
    if result is None:
        raise GraphBreak("unsupported-object", f"text of {value.describe()}")
    return special_results.text(tx, result, name)


def format_value(tx: Tracer, value: Value, conversion: Callable[[Any], str] | None, spec: Value) -> Value:
    """One `{value!conversion:spec}` of an f-string."""
    if conversion is not None:
        value = text_of(tx, value, conversion)
    text = spec.as_constant() if spec.is_constant() else None
    if text == "" and (_is_plain(value) or isinstance(value, DictValue | SequenceValue)):
        return text_of(tx, value)
    if text == "" and isinstance(value, InstanceValue) and class_lookup(value.cls, "__format__") is object.__format__:
        return text_of(tx, value)
    if isinstance(text, str) and _is_plain(value) and _never_fails(value.python_type(), text):
        try:
            later = deferred(tx, format, value, tx.constant(text))
        except ValueError as error:  # no format of this type
            tx.raise_real(error)
        if later is not None:
            return later
    if isinstance(value, InstanceValue) and isinstance(class_lookup(value.cls, "__format__"), types.FunctionType):
        return special_results.formatted(tx, value.special(tx, "__format__", spec))
    if not value.is_constant():
        if value.symbolic:
            value.as_constant()  # the break that tells where the number comes from
        raise GraphBreak("unsupported-object", f"formatting {value.describe()}")
    return fold(tx, format, value, spec)
