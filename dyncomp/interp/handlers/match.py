"""`match` statements."""

from __future__ import annotations

import collections.abc

from dyncomp.bytecode.canonical import Op
from dyncomp.errors import GraphBreak
from dyncomp.interp.handlers.registry import handler
from dyncomp.interp.machine import Frame, Host
from dyncomp.values.base import PyRaise, Value


@handler
def match_sequence(frame: Frame, op: Op) -> None:
    cls = frame.stack[-1].python_type()
    matches = issubclass(cls, collections.abc.Sequence) and not issubclass(cls, (str, bytes, bytearray))
    frame.push(frame.trace.constant(matches))


@handler
def match_mapping(frame: Frame, op: Op) -> None:
    matches = issubclass(frame.stack[-1].python_type(), collections.abc.Mapping)
    frame.push(frame.trace.constant(matches))


@handler
def match_keys(frame: Frame, op: Op) -> None:
    keys, subject = frame.stack[-1].unpack(frame.trace), frame.stack[-2]
    if all(subject.contains(frame.trace, key).truth(frame.trace) for key in keys):
        frame.push(frame.trace.tuple_of([subject.getitem(frame.trace, key) for key in keys]))
    else:
        frame.push(frame.trace.constant(None))


@handler
def match_class(frame: Frame, op: Op) -> None:
    """[subject, class, keyword names] -> [attributes, or None]"""
    trace = frame.trace
    names, pattern, subject = frame.pop().as_constant(), frame.pop(), frame.pop()
    if not issubclass(pattern.python_type(), type):
        raise GraphBreak("eager-error", f"{pattern.describe()} as a class pattern")
    cls = pattern.as_constant()
    attributes = _matched(trace, subject, pattern, cls, op.arg, names) if subject.isinstance_of(trace, cls) else None
    frame.push(trace.constant(None) if attributes is None else trace.tuple_of(attributes))


def _matched(
    trace: Host, subject: Value, pattern: Value, cls: type, count: int, keywords: tuple[str, ...]
) -> list[Value] | None:
    """The attributes that the sub-patterns are about, in CPython's order of checks; None where one is missing."""
    found: list[Value] = []
    seen: set[str] = set()

    def attribute(name: str) -> bool:
        if name in seen:
            trace.raise_(TypeError, f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        value = _attribute(trace, subject, name)
        if value is not None:
            found.append(value)
        return value is not None

    if count:
        own = _attribute(trace, pattern, "__match_args__")
        if own is not None and own.python_type() is not tuple:
            given = own.python_type().__name__
            trace.raise_(TypeError, f"{cls.__name__}.__match_args__ must be a tuple (got {given})")
        itself = own is None and bool(cls.__flags__ & _MATCHES_ITSELF)
        names = () if own is None else own.as_constant()
        allowed = 1 if itself else len(names)
        if allowed < count:
            plural = "" if allowed == 1 else "s"
            trace.raise_(TypeError, f"{cls.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)")
        if itself:
            found.append(subject)
        else:
            for name in names[:count]:
                if not isinstance(name, str):
                    trace.raise_(TypeError, f"__match_args__ elements must be strings (got {type(name).__name__})")
                if not attribute(name):
                    return None
    return found if all(map(attribute, keywords)) else None


def _attribute(trace: Host, value: Value, name: str) -> Value | None:
    """None where there is none."""
    try:
        return value.getattr(trace, name)
    except PyRaise as error:
        if issubclass(error.value.python_type(), AttributeError):
            return None
        raise


_MATCHES_ITSELF = 1 << 22  # Py_TPFLAGS: `case int(x)` binds the subject itself
