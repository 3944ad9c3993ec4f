"""What CPython checks of the results of special methods: their types, and the sizes that lengths and hashes may have.

    len(obj)     __len__ gives an integer from 0 to sys.maxsize
    bool(obj)    __bool__ gives a bool, nothing else
    hash(obj)    __hash__ gives an integer, of which as many bits are kept as a hash has
    str(obj)     __str__ gives a string; so __repr__, __format__
    obj as int   __index__ gives an int
"""

from __future__ import annotations

import sys

from dyncomp.errors import GraphBreak
from dyncomp.values.base import Tracer, Value
from dyncomp.values.class_facts import type_name


def _name(value: Value) -> str:
    return type_name(value.python_type())


def length(tx: Tracer, result: Value) -> Value:
    if not issubclass(result.python_type(), int):
        if hasattr(result.python_type(), "__index__"):
            raise GraphBreak("unsupported-object", f"a length given as {result.describe()}")
        tx.raise_(TypeError, f"'{_name(result)}' object cannot be interpreted as an integer")
    if result.symbolic or not result.is_constant():
        return result
    number = int(result.as_constant())
    if number < 0:
        tx.raise_(ValueError, "__len__() should return >= 0")
    if number > sys.maxsize:
        tx.raise_(OverflowError, "cannot fit 'int' into an index-sized integer")
    return tx.constant(number) if result.python_type() is not int else result


def truth(tx: Tracer, result: Value) -> bool:
    if result.python_type() is not bool:
        tx.raise_(TypeError, f"__bool__ should return bool, returned {_name(result)}")
    return result.truth(tx)


def hashed(tx: Tracer, result: Value) -> Value:
    if not issubclass(result.python_type(), int):
        tx.raise_(TypeError, "__hash__ method should return an integer")
    if not result.is_constant():
        raise GraphBreak("unsupported-builtin", f"a hash given as {result.describe()}")
    number = int(result.as_constant())
    if -sys.maxsize - 1 <= number <= sys.maxsize:
        return tx.constant(-2 if number == -1 else number)
    return tx.constant(hash(number))


def text(tx: Tracer, result: Value, name: str) -> Value:
    if not issubclass(result.python_type(), str):
        tx.raise_(TypeError, f"{name} returned non-string (type {_name(result)})")
    return result


def formatted(tx: Tracer, result: Value | None) -> Value:
    assert result is not None
    if not issubclass(result.python_type(), str):
        tx.raise_(TypeError, f"__format__ must return a str, not {_name(result)}")
    return result


def index(tx: Tracer, result: Value) -> Value:
    if not issubclass(result.python_type(), int):
        tx.raise_(TypeError, f"__index__ returned non-int (type {_name(result)})")
    return result
