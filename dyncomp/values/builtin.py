"""Callables written in C: functions, methods of built-in types, and the rules for calling them.

What has no rule of its own and is known to be pure runs for real when all its arguments are constants;
anything else breaks the graph.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Hashable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Source
from dyncomp.values.arity import call_by_rule
from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.builtin_kind import BuiltinKind
from dyncomp.values.constant import PATTERN_TYPES, ConstantValue, fold_call
from dyncomp.values.instance import InstanceValue
from dyncomp.values.pure import is_pure
from dyncomp.values.registry import call_rule, wrap_if

C_CALLABLES = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    operator.itemgetter,
    operator.attrgetter,
    operator.methodcaller,
)
_IMPURE_METHODS = frozenset(
    {"__init__", "__new__", "__setattr__", "__delattr__", "__reduce__", "__reduce_ex__"}
)


class BuiltinValue(Value):
    """A fixed C callable."""

    def __init__(self, fn: Any, source: Source | None = None):
        super().__init__(source)
        self.fn = fn

    def python_type(self) -> type:
        return type(self.fn)

    def describe(self) -> str:
        owner = getattr(self.fn, "__objclass__", None)
        name = getattr(self.fn, "__qualname__", None) or repr(self.fn)
        module = getattr(self.fn, "__module__", None) or getattr(owner, "__module__", None)
        return name if module in (None, "builtins") else f"{module}.{name}"

    def is_constant(self) -> bool:
        return True

    def as_constant(self) -> Any:
        return self.fn

    def real(self) -> Any:
        return self.fn

    def key(self, tx: Tracer) -> Hashable:
        return self.fn  # type: ignore[no-any-return]

    def truth(self, tx: Tracer) -> bool:
        return True

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if op in ("==", "!=") and isinstance(other, BuiltinValue):
            return tx.constant((self.fn == other.fn) is (op == "=="))
        return None

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        rule = call_rule(self.fn)
        if rule is not None:
            return call_by_rule(tx, self.fn, rule, args, kwargs)
        receiver = getattr(self.fn, "__self__", None)
        owner = getattr(self.fn, "__objclass__", None)
        if owner is not None and args and not isinstance(self.fn, types.MethodWrapperType):
            return self._call_unbound(tx, owner, args, kwargs)
        if isinstance(self.fn, (types.BuiltinFunctionType, types.MethodWrapperType)) and _is_plain_receiver(
            receiver
        ):
            return tx.constant(receiver).call_method(tx, self.fn.__name__, args, kwargs)
        if is_pure(self.fn):
            return fold_call(tx, self.fn, args, kwargs)
        raise GraphBreak("unsupported-call", f"call of {self.describe()}")

    def _call_unbound(
        self, tx: Tracer, owner: type, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        """`dict.get(d, key)`: the built-in's own method, past what a subclass overrides."""
        receiver, name = args[0], self.fn.__name__
        if isinstance(receiver, InstanceValue):
            if receiver.storage is not None and owner is not object:
                return receiver.storage_call(tx, name, args[1:], kwargs)
        elif isinstance(receiver, BuiltinKind) or not receiver.is_constant():
            return receiver.call_method(tx, name, args[1:], kwargs)
        elif isinstance(receiver, ConstantValue) and name not in _IMPURE_METHODS:
            return fold_call(tx, self.fn, args, kwargs)
        raise GraphBreak("unsupported-call", f"call of {self.describe()} on {receiver.describe()}")

    def getattr(self, tx: Tracer, name: str) -> Value:
        try:
            return tx.constant(getattr(self.fn, name))
        except AttributeError as error:
            tx.raise_real(error)

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(self.fn)


def _is_plain_receiver(receiver: Any) -> bool:
    return isinstance(receiver, (str, bytes, int, float, complex, tuple, frozenset, slice, range, *PATTERN_TYPES)) and not isinstance(
        receiver, type
    )


def is_c_callable(obj: Any) -> bool:
    return isinstance(obj, C_CALLABLES) or isinstance(obj, functools._lru_cache_wrapper)


@wrap_if(is_c_callable, priority=40)
def wrap_builtin(tx: Tracer, obj: Any, source: Source) -> Value:
    return BuiltinValue(obj, source)
