"""`str`, `repr` and formatting of values, where the text is known while tracing."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values import special_results
from dyncomp.values.base import Tracer, Value
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.constant import ConstantValue, fold
from dyncomp.values.instance import InstanceValue


def text_of(tx: Tracer, value: Value, how: Callable[[Any], str] = str) -> Value:
    """`str(value)`, `repr(value)` or `ascii(value)`."""
    if isinstance(value, InstanceValue):
        return _instance_text(tx, value, "__repr__" if how is not str else "__str__")
    if isinstance(value, ConstantValue) and value.unread and how is str and type(value.peek()) in (str, int):
        value.python_type()
        return value if type(value.peek()) is str else deferred_text(tx, value)
    if value.is_constant():
        return fold(tx, how, value)
    raise GraphBreak("unsupported-object", f"text of {value.describe()}")


def deferred_text(tx: Tracer, value: ConstantValue) -> Value:
    """`str(n)` of a number that is not read yet stays code."""
    return ConstantValue(str(value.peek()), tx=tx, expression=(str, (value,)))  # type: ignore[arg-type]


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
    plain = spec.is_constant() and spec.as_constant() == ""
    if plain and (isinstance(value, InstanceValue) or isinstance(value, ConstantValue) and value.unread):
        if not isinstance(value, InstanceValue) or class_lookup(value.cls, "__format__") is object.__format__:
            return text_of(tx, value)
    if isinstance(value, InstanceValue) and isinstance(class_lookup(value.cls, "__format__"), types.FunctionType):
        return special_results.formatted(tx, value.special(tx, "__format__", spec))
    if not value.is_constant():
        if value.symbolic:
            value.as_constant()  # the break that tells where the number comes from
        raise GraphBreak("unsupported-object", f"formatting {value.describe()}")
    return fold(tx, format, value, spec)
