"""Weak references: calling one gives the object it refers to, reached through the reference in every call."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, Source
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.identity_key import IdentityKey

_referent = weakref.ref.__call__


class WeakReferenceValue(Value):
    def __init__(self, reference: weakref.ref[Any], source: Source):
        super().__init__(source)
        self._reference = reference

    def python_type(self) -> type:
        return weakref.ref

    def real(self) -> Any:
        return self._reference

    def key(self, tx: Tracer) -> Hashable:
        return IdentityKey(self)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            tx.raise_(TypeError, "a weak reference takes no arguments")
        assert self.source is not None
        referent = self._reference()
        if referent is not None and tx.may_be_gone(referent):
            raise GraphBreak(
                "last-reference",
                f"whether a {type(referent).__qualname__} that this frame has dropped is alive",
                "Call the weak reference before the object is dropped, or outside the compiled function.",
            )
        return tx.wrap(referent, Call(self.source, _referent))


@registry.wrap_type(weakref.ref)
def wrap_reference(tx: Tracer, obj: Any, source: Source) -> Value:
    return WeakReferenceValue(obj, source)
