"""Python functions, their cells, and methods bound to a receiver.

outside function    real object; code pinned by guards, defaults and closure reached through its source
made while tracing  code, globals of its maker, cells and defaults that are values
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Sequence
from typing import Any

from dyncomp._frame import _core
from dyncomp.errors import GraphBreak
from dyncomp.guards.source import (
    Cell,
    CellContents,
    Const,
    FuncCode,
    FuncDefault,
    FuncKwDefault,
    InstanceDict,
    MethodFunc,
    MethodSelf,
    SlotAttr,
    Source,
    Weak,
)
from dyncomp.values.arity import check_arguments
from dyncomp.values.base import ABSENT, Builder, Tracer, Value
from dyncomp.values.builtin_kind import BoundBuiltin
from dyncomp.values.constant import fold_call
from dyncomp.values.identity_key import ComposedKey, IdentityKey
from dyncomp.values.mapping import DictValue
from dyncomp.values.pure import is_pure
from dyncomp.values.registry import call_rule, wrap_type

_MEMBERS = frozenset(name for cls in types.FunctionType.__mro__ for name in vars(cls))
# What a function's own members hold; reading them runs nothing.
_DATA_ATTRIBUTES = frozenset(
    {
        "__name__",
        "__qualname__",
        "__doc__",
        "__module__",
        "__defaults__",
        "__kwdefaults__",
        "__closure__",
        "__annotations__",
        "__builtins__",
        "__type_params__",
    }
)


class CellValue(Value):
    """A variable shared by closures. `contents` is None while it is empty."""

    def __init__(
        self,
        contents: Value | None = None,
        source: Source | None = None,
        tx: Tracer | None = None,
        outside: Any = None,
    ):
        super().__init__(source)
        self._contents, self._tx, self._outside = contents, tx, outside
        self._read = outside is None

    def python_type(self) -> type:
        return types.CellType

    @property
    def contents(self) -> Value | None:
        if not self._read:
            self._read = True
            assert self._tx is not None and self.source is not None
            try:
                obj = self._outside.cell_contents
            except ValueError:
                raise GraphBreak("unsupported-object", f"{self.source} is an empty cell") from None
            self._contents = self._tx.wrap(obj, CellContents(self.source))
        return self._contents

    def set(self, tx: Tracer, value: Value | None) -> None:
        if self.source is not None:
            tx.effects.touch(self)
        self._read, self._contents = True, value

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "cell_contents":
            if self.contents is None:
                tx.raise_(ValueError, "Cell is empty")
            return self.contents
        return super().getattr(tx, name)

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        if name != "cell_contents":
            super().setattr(tx, name, value)
        self.set(tx, value)

    def reconstruct(self, builder: Builder) -> None:
        # Filled after it exists: a recursive function sits in its own cell.
        builder.load_const(types.CellType)
        builder.call(0)
        builder.remember(self)
        if self._contents is not None:
            builder.load(self._contents)
            builder.store_attr("cell_contents")


class FunctionValue(Value):
    """A function with bytecode. `globals_source` reaches the dictionary `globals`."""

    def __init__(
        self,
        code: types.CodeType,
        globals: dict[str, Any],
        globals_source: Source | None,
        outside: types.FunctionType | None = None,
        source: Source | None = None,
        tx: Tracer | None = None,
    ):
        super().__init__(source)
        self.code, self.globals, self.globals_source = code, globals, globals_source
        self.outside, self._tx = outside, tx
        self.made_cells: list[CellValue] = []
        self.made_defaults: list[Value] = []
        self.made_kwdefaults: dict[str, Value] = {}
        self.qualname = code.co_qualname if outside is None else outside.__qualname__
        self._attributes = DictValue() if outside is None else None
        self._special: dict[str, Value] = {}  # __name__, __doc__ and the like, once assigned

    # -- what it is -----------------------------------------------------------------------------------------
    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return self.qualname

    def real(self) -> Any:
        return ABSENT if self.outside is None else self.outside

    def is_constant(self) -> bool:
        return self.outside is not None

    def as_constant(self) -> Any:
        if self.outside is None:
            return super().as_constant()
        if self._tx is not None:
            self._pin(self._tx)
        return self.outside

    def key(self, tx: Tracer) -> Hashable:
        if self.outside is None:
            return IdentityKey(self)
        return self.as_constant()  # type: ignore[no-any-return]

    def truth(self, tx: Tracer) -> bool:
        return True

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        return None

    # -- parts ----------------------------------------------------------------------------------------------
    def cells(self, tx: Tracer) -> list[CellValue]:
        if self.outside is None:
            return self.made_cells
        closure = self.outside.__closure__ or ()
        return [self._outside_cell(tx, i, cell) for i, cell in enumerate(closure)]

    def _outside_cell(self, tx: Tracer, index: int, cell: Any) -> CellValue:
        return tx.wrap(cell, Cell(self._reached(), index))  # type: ignore[return-value]

    def defaults(self, tx: Tracer) -> list[Value]:
        if self.outside is None:
            return self.made_defaults
        values = self.outside.__defaults__ or ()
        source = self._reached()
        return [tx.wrap(obj, FuncDefault(source, i)) for i, obj in enumerate(values)]

    def _reached(self) -> Source:
        """Every outside function has a source; fixed ones are held weakly."""
        assert self.source is not None
        return self.source

    def kwdefault(self, tx: Tracer, name: str) -> Value | None:
        if self.outside is None:
            return self.made_kwdefaults.get(name)
        values = self.outside.__kwdefaults__ or {}
        if name not in values:
            return None
        return tx.wrap(values[name], FuncKwDefault(self._reached(), name))

    # -- operations -----------------------------------------------------------------------------------------
    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.outside is not None:
            rule = call_rule(self.outside)
            if rule is not None:
                self._pin(tx)
                check_arguments(self.outside, args, kwargs)
                return rule(tx, args, kwargs)  # type: ignore[no-any-return]
            given = (*args, *kwargs.values())
            calls_back = self.outside.__module__ == "re" and any(isinstance(arg, FunctionValue) for arg in given)
            if is_pure(self.outside) and not calls_back and all(arg.is_constant() for arg in given):
                return fold_call(tx, self.outside, args, kwargs)
        return tx.inline(self, args, kwargs)

    def _pin(self, tx: Tracer) -> None:
        """What follows holds for this very function, not for its code alone."""
        if not isinstance(self.source, Weak | Const):
            tx.guard(self._reached(), "id", self.outside)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__get__" and args and not kwargs:
            is_none = args[0].is_constant() and args[0].as_constant() is None
            return self if is_none else BoundMethodValue(self, args[0])
        return super().call_method(tx, name, args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__get__":
            return BoundBuiltin(self, name)
        if name == "__dict__":
            return self._namespace(tx)
        if self.outside is not None and name in _MEMBERS:
            return self._outside_attribute(tx, name)
        found = self._special.get(name) or self._namespace(tx).find_name(tx, name)
        return self._made_attribute(tx, name) if found is None else found

    def _namespace(self, tx: Tracer) -> DictValue:
        """The function's own `__dict__`."""
        if self._attributes is None:
            assert self.outside is not None
            source = InstanceDict(self._reached())
            self._attributes = DictValue(None, dict, source, tx, self.outside.__dict__, owner=self)
        return self._attributes

    def _outside_attribute(self, tx: Tracer, name: str) -> Value:
        assert self.outside is not None
        if name == "__globals__":
            assert self.globals_source is not None
            return tx.wrap(self.globals, self.globals_source)
        if name == "__code__":
            tx.guard(FuncCode(self._reached()), "id", self.outside.__code__)
            return tx.constant(self.outside.__code__)
        if name == "__class__":
            return tx.constant(types.FunctionType)
        if name not in _DATA_ATTRIBUTES:
            raise GraphBreak("unsupported-attribute", f"{name} of {self.qualname}")
        return tx.wrap(getattr(self.outside, name), SlotAttr(self._reached(), name))

    def _made_attribute(self, tx: Tracer, name: str) -> Value:
        facts = {
            "__name__": self.code.co_name,
            "__qualname__": self.qualname,
            "__doc__": self._doc(),
            "__module__": self.globals.get("__name__"),
            "__code__": self.code,
            "__class__": types.FunctionType,
            "__type_params__": (),
        }
        if name in facts and name in _MEMBERS:
            return tx.constant(facts[name])
        if name == "__defaults__":
            return tx.tuple_of(list(self.made_defaults)) if self.made_defaults else tx.constant(None)
        if name == "__annotations__":
            return self._special.setdefault(name, DictValue())
        if name == "__closure__":
            return tx.tuple_of(list(self.made_cells)) if self.made_cells else tx.constant(None)
        if name == "__kwdefaults__":
            return tx.dict_of_pairs(
                [(tx.constant(key), value) for key, value in self.made_kwdefaults.items()]
            )
        if name in _MEMBERS:
            raise GraphBreak("unsupported-attribute", f"{name} of {self.qualname}")
        tx.raise_(AttributeError, f"'function' object has no attribute '{name}'")

    def _doc(self) -> str | None:
        first = self.code.co_consts[0] if self.code.co_consts else None
        return first if isinstance(first, str) else None

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        if name in ("__code__", "__defaults__", "__kwdefaults__", "__globals__", "__closure__"):
            raise GraphBreak("unsupported-mutation", f"setting {name} of {self.qualname}")
        if name not in _MEMBERS:
            self._namespace(tx).store(tx, tx.constant(name), value)
        elif self.outside is None:
            self._special[name] = value
        else:
            raise GraphBreak("unsupported-mutation", f"setting {name} of the function {self.qualname}")

    def delattr(self, tx: Tracer, name: str) -> None:
        namespace = self._namespace(tx)
        if name in _MEMBERS:
            super().delattr(tx, name)
        if namespace.find_name(tx, name) is None:
            tx.raise_(AttributeError, f"'function' object has no attribute '{name}'")
        namespace.remove(tx, tx.constant(name))

    # -- code -----------------------------------------------------------------------------------------------
    def reconstruct(self, builder: Builder) -> None:
        if self.outside is not None:
            builder.load_const(self.outside)
            return
        builder.load_const(types.FunctionType)
        builder.load_const(self.code)
        if self.globals_source is not None:
            builder.load_source(self.globals_source)
        else:
            builder.load_const(self.globals)
        builder.load_const(self.code.co_name)
        self._load_tuple(builder, self.made_defaults)
        self._load_tuple(builder, self.made_cells)
        builder.call(5)
        builder.remember(self)
        if self.made_kwdefaults:
            builder.build_map(0)
            for name, value in self.made_kwdefaults.items():
                builder.load_const(name)
                builder.load(value)
                builder.store_item()
            builder.store_attr("__kwdefaults__")
        builder.load_const(self.qualname)
        builder.store_attr("__qualname__")
        for name, value in self._special.items():
            builder.load(value)
            builder.store_attr(name)
        assert self._attributes is not None
        for key, attribute in self._attributes.made_entries():
            builder.load(attribute)
            builder.store_attr(key.as_constant())

    @staticmethod
    def _load_tuple(builder: Builder, values: Sequence[Value]) -> None:
        if not values:
            builder.load_const(None)
            return
        for value in values:
            builder.load(value)
        builder.build_tuple(len(values))


class OptimizedFunctionValue(Value):
    """What `dyncomp.optimize(function)` returned, inside captured code: calls trace the function itself."""

    def __init__(self, obj: Any, source: Source):
        super().__init__(source)
        self.obj = obj

    def python_type(self) -> type:
        return type(self.obj)

    def describe(self) -> str:
        return f"the optimised {self.obj.__wrapped__.__qualname__}"

    def real(self) -> Any:
        return self.obj

    def key(self, tx: Tracer) -> Hashable:
        return IdentityKey(self)

    def truth(self, tx: Tracer) -> bool:
        return True

    def function(self, tx: Tracer) -> Value:
        assert self.source is not None
        return tx.wrap(self.obj.__wrapped__, SlotAttr(self.source, "__wrapped__"))

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return tx.call(self.function(tx), args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__wrapped__":
            return self.function(tx)
        if name in ("__class__", "cache", "owner"):
            return super().getattr(tx, name)
        return self.function(tx).getattr(tx, name)


class BoundMethodValue(Value):
    """A callable bound to its first argument."""

    def __init__(self, function: Value, receiver: Value, source: Source | None = None):
        super().__init__(source)
        self.function, self.receiver = function, receiver

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"method {self.function.describe()}"

    def key(self, tx: Tracer) -> Hashable:
        return ComposedKey(("method", self.function.key(tx), IdentityKey(self.receiver)))

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return tx.call(self.function, [self.receiver, *args], kwargs)

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.receiver
        if name == "__func__":
            return self.function
        if name == "__class__":
            return tx.constant(types.MethodType)
        return self.function.getattr(tx, name)

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if not isinstance(other, BoundMethodValue) or op not in ("==", "!="):
            return None
        same = self.receiver is other.receiver and self.function is other.function
        return tx.constant(same is (op == "=="))

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(types.MethodType)
        builder.load(self.function)
        builder.load(self.receiver)
        builder.call(2)


@wrap_type(types.FunctionType)
def wrap_function(tx: Tracer, obj: types.FunctionType, source: Source) -> Value:
    return FunctionValue(obj.__code__, obj.__globals__, tx.globals_source(obj, source), obj, source, tx)


@wrap_type(_core.Dispatcher)
def wrap_optimized(tx: Tracer, obj: Any, source: Source) -> Value:
    return OptimizedFunctionValue(obj, source)


@wrap_type(types.CellType)
def wrap_cell(tx: Tracer, obj: Any, source: Source) -> Value:
    return CellValue(None, source, tx, obj)


@wrap_type(types.MethodType)
def wrap_method(tx: Tracer, obj: types.MethodType, source: Source) -> Value:
    function = tx.wrap(obj.__func__, MethodFunc(source))
    return BoundMethodValue(function, tx.wrap(obj.__self__, MethodSelf(source)), source)
