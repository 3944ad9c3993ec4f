"""Base of values for built-in container types, whose methods are written here in terms of values.

    class ListValue(BuiltinKind):
        @builtin_method("append")
        def _append(self, tx, item): ...

`value.append` without a call becomes a `BoundBuiltin`; wrong numbers of arguments break the graph, so that
the program gets Python's own error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from dyncomp.errors import GraphBreak
from dyncomp.values.arity import in_pythons_words
from dyncomp.values.base import Builder, Tracer, Value

F = TypeVar("F", bound=Callable[..., Any])


def builtin_method(*names: str) -> Callable[[F], F]:
    """Marks a method `(self, tx, *args, **kwargs) -> Value` as the built-in type's method of these names."""

    def mark(function: F) -> F:
        function._builtin_names = names  # type: ignore[attr-defined]
        return function

    return mark


class BuiltinKind(Value):
    cls: type
    methods: ClassVar[dict[str, Callable[..., Value]]] = {}
    signatures: ClassVar[dict[str, inspect.Signature]] = {}
    positional_only = True  # the methods of most built-in types take no names

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.methods, cls.signatures = {}, {}
        for base in reversed(cls.__mro__):
            for function in vars(base).values():
                for name in getattr(function, "_builtin_names", ()):
                    cls.methods[name] = function
                    cls.signatures[name] = inspect.signature(function)

    def python_type(self) -> type:
        return self.cls

    def has_method(self, name: str) -> bool:
        return name in self.methods

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__class__":
            return tx.constant(self.python_type())
        if name in self.methods:
            return BoundBuiltin(self, name)
        if not hasattr(self.python_type(), name):
            tx.raise_(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'")
        raise GraphBreak("unsupported-builtin", f"{self.python_type().__name__}.{name}")

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        tx.raise_(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        function = self.methods.get(name)
        if function is None:
            return tx.call(self.getattr(tx, name), args, kwargs)
        signature = self.signatures[name]
        try:
            signature.bind(self, tx, *args, **kwargs)
        except TypeError as error:
            raise GraphBreak("eager-error", f"{self.python_type().__name__}.{name}: {error}") from None
        if self.positional_only and any(
            given in signature.parameters and signature.parameters[given].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            for given in kwargs
        ):
            raise GraphBreak("eager-error", f"{self.python_type().__name__}.{name} with keywords")
        return in_pythons_words(lambda: function(self, tx, *args, **kwargs))

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        tx.raise_(TypeError, f"'{self.python_type().__name__}' object is not callable")

    # The protocol methods under their Python names, for `x.__len__()` and for subclasses that call up.
    @builtin_method("__len__")
    def _len(self, tx: Tracer) -> Value:
        return self.length(tx)

    @builtin_method("__iter__")
    def _iter(self, tx: Tracer) -> Value:
        return self.iterate(tx)

    @builtin_method("__contains__")
    def _contains(self, tx: Tracer, item: Value) -> Value:
        return self.contains(tx, item)

    @builtin_method("__getitem__")
    def _getitem(self, tx: Tracer, key: Value) -> Value:
        return self.getitem(tx, key)

    @builtin_method("__setitem__")
    def _setitem(self, tx: Tracer, key: Value, value: Value) -> Value:
        self.setitem(tx, key, value)
        return tx.constant(None)

    @builtin_method("__delitem__")
    def _delitem(self, tx: Tracer, key: Value) -> Value:
        self.delitem(tx, key)
        return tx.constant(None)

    @builtin_method("__eq__")
    def _eq(self, tx: Tracer, other: Value) -> Value:
        return self._compared(tx, "==", other)

    @builtin_method("__ne__")
    def _ne(self, tx: Tracer, other: Value) -> Value:
        return self._compared(tx, "!=", other)

    def _compared(self, tx: Tracer, op: str, other: Value) -> Value:
        result = self.compare(tx, op, other)
        return tx.constant(NotImplemented) if result is None else result

    def truth(self, tx: Tracer) -> bool:
        return self.length(tx).truth(tx)


class BoundBuiltin(Value):
    """`obj.method` of a built-in kind, not called yet."""

    def __init__(self, owner: Value, name: str):
        super().__init__()
        self.owner, self.name = owner, name

    def python_type(self) -> type:
        return type([].append)

    def describe(self) -> str:
        return f"{self.owner.describe()}.{self.name}"

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.call_method(tx, self.name, args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return tx.constant(self.name)
        return super().getattr(tx, name)

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, builder: Builder) -> None:
        builder.load(self.owner)
        builder.load_attr(self.name)
