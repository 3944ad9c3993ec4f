"""Outside objects of kinds that nobody here knows."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from dyncomp.guards.source import Source
from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.identity_key import IdentityKey
from dyncomp.values.registry import wrap_if


class OpaqueValue(Value):
    """An outside object of a kind that nobody here knows: it can be passed on, and nothing else."""

    def __init__(self, obj: Any, source: Source | None = None):
        super().__init__(source)
        self.obj = obj

    def python_type(self) -> type:
        return type(self.obj)

    def describe(self) -> str:
        return f"a {type(self.obj).__qualname__} object"

    def real(self) -> Any:
        return self.obj

    def key(self, tx: Tracer) -> Hashable:
        if type(self.obj).__hash__ is object.__hash__:
            return IdentityKey(self)
        return super().key(tx)

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(self.obj)

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__class__":
            return tx.constant(type(self.obj))
        return super().getattr(tx, name)


@wrap_if(lambda obj: True, priority=1000)
def wrap_opaque(tx: Tracer, obj: Any, source: Source) -> Value:
    return OpaqueValue(obj, source)
