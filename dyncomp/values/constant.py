"""Constants: immutable Python objects whose value is known while tracing.

An outside constant has a source and starts *unread*: its type is guarded when the type is asked for, its
value when the value is. So a number or string that is only stored somewhere adds no guard on its value.
Arithmetic on unread numbers and strings stays unread too (`self.step + 1` becomes code that adds 1 in every
call), until something needs the value.
"""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.values.base import Builder, NotConstant, Tracer, Value
from dyncomp.values.iterators import ConstantIterator
from dyncomp.values.operators import BINARY, COMPARE, UNARY
from dyncomp.values.registry import call_rule, wrap_if, wrap_type

SCALAR_TYPES = (int, float, bool, complex, str, bytes, type(None), type(...), type(NotImplemented))
PATTERN_TYPES = (re.Pattern, re.Match)
TORCH_TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo)
EQUALS_TYPES = frozenset({*SCALAR_TYPES, torch.dtype, torch.device}) - {type(NotImplemented)}
_MOST_ITEMS = 100_000  # of a range, as values of the trace
# Operators on these exact types give one of them again and cannot raise, so they may be left for run time.
_DEFERRABLE = {
    ("+", int, int),
    ("-", int, int),
    ("*", int, int),
    ("+", float, float),
    ("-", float, float),
    ("*", float, float),
    ("+", int, float),
    ("+", float, int),
    ("-", int, float),
    ("-", float, int),
    ("*", int, float),
    ("*", float, int),
    ("+", str, str),
}


class ConstantValue(Value):
    """`expression`: (function, operands) that computes an unread constant at run time, instead of a
    source."""

    def __init__(self, value: Any, source: Any = None, tx: Tracer | None = None, expression: Any = None):
        super().__init__(source)
        self._value = value
        self._tx = tx
        self._expression: tuple[Any, tuple[Value, ...]] | None = expression
        self._unread = source is not None or expression is not None
        self._untyped = source is not None

    @property
    def value(self) -> Any:
        if self._unread:
            self._unread = self._untyped = False
            if self._expression is not None:
                for operand in self._expression[1]:
                    operand.as_constant()
            else:
                self._guard("equals" if type(self._value) in EQUALS_TYPES else "id", self._value)
        return self._value

    @property
    def unread(self) -> bool:
        return self._unread

    @property
    def operands(self) -> tuple[Value, ...]:
        """What an unread constant is computed from, if it is computed."""
        return () if self._expression is None else self._expression[1]

    def peek(self) -> Any:
        """The value without a guard: for messages and for choices that `guarded` facts already decide."""
        return self._value

    def _guard(self, kind: str, payload: Any) -> None:
        if self.source is not None and self._tx is not None:
            self._tx.guard(self.source, kind, payload)

    def python_type(self) -> type:
        if self._untyped:
            self._untyped = False
            self._guard("type", type(self._value))
        return type(self._value)

    def describe(self) -> str:
        return (
            f"{self._value!r}" if self.source is None else f"{self.source} (a {type(self._value).__name__})"
        )

    def is_constant(self) -> bool:
        return True

    def is_running(self, tx: Tracer) -> bool:
        """True for a number of the call that the graph should compute with, whatever its value (`running_number`)."""
        return False

    def as_constant(self) -> Any:
        return self.value

    def real(self) -> Any:
        return self.value

    def key(self, tx: Tracer) -> Hashable:
        try:
            hash(self.value)
        except TypeError as error:
            tx.raise_real(error)
        return self.value

    def reconstruct(self, builder: Builder) -> None:
        if self._unread and self._expression is not None:
            function, operands = self._expression
            builder.load_const(function)
            for operand in operands:
                builder.load(operand)
            builder.call(len(operands))
        else:
            builder.load_const(self._value)

    # -- operations -----------------------------------------------------------------------------------------
    def truth(self, tx: Tracer) -> bool:
        if (
            self._unread
            and self.source is not None
            and isinstance(self._value, (int, float, str, type(None)))
        ):
            if type(self._value) in (int, float, str):
                self.python_type()
                self._guard("truth", bool(self._value))
                return bool(self._value)
            if self._value is None:
                self.python_type()
                return False
        return bool(self.value)

    def unary(self, tx: Tracer, op: str) -> Value:
        return fold(tx, UNARY[op], self)

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        if op == "%" and not reflected and type(self._value) is str:
            return call_rule(str.__mod__)(tx, [self, other], {})  # type: ignore[misc,no-any-return]
        if not isinstance(other, ConstantValue):
            return self._with_structure(tx, op, other, reflected)
        if other.is_running(tx) and not self.is_running(tx):
            return None  # the other operand knows more
        left, right = (other, self) if reflected else (self, other)
        if (left.unread or right.unread) and (op, type(left._value), type(right._value)) in _DEFERRABLE:
            left.python_type()
            right.python_type()
            return ConstantValue(
                BINARY[op](left._value, right._value), tx=tx, expression=(BINARY[op], (left, right))
            )
        return fold(tx, BINARY[op], left, right)

    def _with_structure(self, tx: Tracer, op: str, other: Value, reflected: bool) -> Value | None:
        """`b"%s %d" % (a, b)`; every other mix is for the other operand to answer."""
        if op == "%" and not reflected and isinstance(self._value, bytes):
            if other.is_constant():
                return fold(tx, BINARY[op], self, other)
            raise GraphBreak("unsupported-object", f"formatting {other.describe()}")
        return None

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if not isinstance(other, ConstantValue):
            return None
        if op in ("==", "!=") and _never_equal(self, other):
            return tx.constant(op == "!=")
        return fold(tx, COMPARE[op], self, other)

    def contains(self, tx: Tracer, item: Value) -> Value:
        return fold(tx, lambda whole, part: part in whole, self, item)

    def length(self, tx: Tracer) -> Value:
        return fold(tx, len, self)

    def getitem(self, tx: Tracer, key: Value) -> Value:
        return fold(tx, lambda value, index: value[index], self, key)

    def iterate(self, tx: Tracer) -> Value:
        if type(self.value) is range:  # it may be longer than memory, in a loop that ends early
            return ConstantIterator(iter(self.value))
        try:
            items = list(iter(self.value))
        except TypeError as error:
            tx.raise_real(error)
        return tx.constant(tuple(items)).iterate(tx)

    def unpack(self, tx: Tracer) -> list[Value]:
        if type(self.value) is range:
            try:
                length = len(self.value)
            except OverflowError as error:
                tx.raise_real(error)
            if length > _MOST_ITEMS:
                raise GraphBreak("unsupported-builtin", f"all {length} items of a range")
        return super().unpack(tx)

    def getattr(self, tx: Tracer, name: str) -> Value:
        cls = self.python_type()
        if issubclass(cls, enum.Enum):
            return self._enum_attribute(tx, cls, name)
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            tx.raise_real(error)
        return tx.constant(found)

    def _enum_attribute(self, tx: Tracer, cls: type, name: str) -> Value:
        """Members' own data is fixed; methods and properties that the user wrote are traced."""
        raw = next((vars(k)[name] for k in cls.__mro__ if name in vars(k)), None)
        if isinstance(raw, types.FunctionType):
            return tx.bind_method(raw, self)  # type: ignore[attr-defined]
        if type(raw) is property and isinstance(raw.fget, types.FunctionType):
            return tx.call(tx.constant(raw.fget), [self])
        try:
            return tx.constant(getattr(self.value, name))
        except AttributeError as error:
            tx.raise_real(error)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if issubclass(type(self._value), enum.Enum) or not isinstance(
            self._value, (*SCALAR_TYPES, *TORCH_TYPES, *PATTERN_TYPES, slice, range)
        ):
            return super().call_method(tx, name, args, kwargs)
        if isinstance(self._value, PATTERN_TYPES) and not all(isinstance(arg, ConstantValue) for arg in (*args, *kwargs.values())):
            raise GraphBreak("unsupported-call", f"{type(self._value).__name__}.{name} with a function")
        try:
            method = getattr(self.value, name)
        except AttributeError as error:
            tx.raise_real(error)
        if name == "format" and type(self._value) is str:
            return call_rule(str.format)(tx, [self, *args], kwargs)  # type: ignore[misc,no-any-return]
        if name == "join" and len(args) == 1 and not kwargs and not isinstance(args[0], ConstantValue):
            return fold_call(tx, lambda *items: method(items), args[0].unpack(tx), {})
        return fold_call(tx, method, args, kwargs)

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if type(self.value) is types.GenericAlias and self.value.__origin__.__module__ == "builtins":
            return tx.call(tx.constant(self.value.__origin__), args, kwargs)  # type: ignore[attr-defined,no-any-return]
        if callable(self.value):
            raise GraphBreak("unsupported-call", f"call of {self.describe()}")
        tx.raise_(TypeError, f"'{self.python_type().__name__}' object is not callable")

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        tx.raise_(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'")


def _never_equal(left: ConstantValue, right: ConstantValue) -> bool:
    """Decided by the types alone, so that `x == None` or `mode == 3` on a string pins no value."""
    kinds = {type(left._value), type(right._value)}
    if len(kinds) == 2 and (
        type(None) in kinds or kinds <= {str, int} or kinds <= {str, float} or kinds == {str, bool}
    ):
        left.python_type()
        right.python_type()
        return True
    return False


def fold(tx: Tracer, function: Any, *operands: Value) -> Value:
    """`function(*operands)` for real; a pure function on constants."""
    return fold_call(tx, function, operands, {})


def fold_call(tx: Tracer, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    try:
        real_args = [arg.as_constant() for arg in args]
        real_kwargs = {name: arg.as_constant() for name, arg in kwargs.items()}
    except NotConstant as unknown:
        name = getattr(function, "__qualname__", repr(function))
        raise GraphBreak("unsupported-builtin", f"{name} of {unknown}") from None
    try:
        result = function(*real_args, **real_kwargs)
    except Exception as error:  # noqa: BLE001  the program's own error, raised again inside the trace
        tx.raise_real(error)
    return tx.constant(result)


@wrap_type(*(cls for cls in SCALAR_TYPES if cls not in (int, float)), *TORCH_TYPES, *PATTERN_TYPES)  # these: sym_number.py
def wrap_scalar(tx: Tracer, obj: Any, source: Any) -> Value:
    return ConstantValue(obj, source, tx)


@wrap_if(lambda obj: isinstance(obj, enum.Enum), priority=10)
def wrap_enum(tx: Tracer, obj: Any, source: Any) -> Value:
    return ConstantValue(obj, source, tx)
