"""Imported modules and the variables in them."""

from __future__ import annotations

import types
from collections.abc import Hashable
from typing import Any

from dyncomp.guards.source import InstanceDict, Source
from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.mapping import DictValue
from dyncomp.values.registry import wrap_if


class PyModuleValue(Value):
    """A module, pinned by identity; each variable that is read has a guard of its own."""

    def __init__(self, module: types.ModuleType, source: Source):
        super().__init__(source)
        self.module = module

    def python_type(self) -> type:
        return type(self.module)

    def describe(self) -> str:
        return f"module {self.module.__name__}"

    def is_constant(self) -> bool:
        return True

    def as_constant(self) -> Any:
        return self.module

    def real(self) -> Any:
        return self.module

    def key(self, tx: Tracer) -> Hashable:
        return self.module

    def truth(self, tx: Tracer) -> bool:
        return True

    def namespace(self, tx: Tracer) -> DictValue:
        assert self.source is not None
        return tx.wrap(vars(self.module), InstanceDict(self.source))  # type: ignore[return-value]

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__dict__":
            return self.namespace(tx)
        if name not in vars(self.module):
            # A module-level __getattr__ (lazy imports) usually stores what it finds.
            try:
                found = getattr(self.module, name)
            except AttributeError as error:
                self.namespace(tx).find_name(tx, name)
                self.namespace(tx).find_name(tx, "__getattr__")
                tx.raise_real(error)
            if name not in vars(self.module):
                return tx.constant(found)
        value = self.namespace(tx).find_name(tx, name)
        assert value is not None
        return value

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        self.namespace(tx).store(tx, tx.constant(name), value)

    def delattr(self, tx: Tracer, name: str) -> None:
        self.namespace(tx).delitem(tx, tx.constant(name))

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(self.module)


@wrap_if(lambda obj: isinstance(obj, types.ModuleType), priority=20)
def wrap_module(tx: Tracer, obj: types.ModuleType, source: Source) -> Value:
    return PyModuleValue(obj, source)
