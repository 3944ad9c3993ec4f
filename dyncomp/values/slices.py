"""Slices whose bounds are not all constants, such as `x[:, start:]` with a tensor `start`, and those that the call brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyncomp.guards.source import Source
from dyncomp.values.base import Builder, Tracer, Value


class SliceValue(Value):
    def __init__(self, bounds: list[Value], source: Source | None = None):
        super().__init__(source)
        self.bounds = bounds  # start, stop and perhaps step

    def python_type(self) -> type:
        return slice

    def describe(self) -> str:
        return f"slice({', '.join(bound.describe() for bound in self.bounds)})"

    def is_constant(self) -> bool:
        return all(bound.is_constant() for bound in self.bounds)

    def as_constant(self) -> Any:
        return slice(*[bound.as_constant() for bound in self.bounds])

    def fx_arg(self, tx: Tracer) -> Any:
        return slice(*[bound.fx_arg(tx) for bound in self.bounds])

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name in ("start", "stop", "step"):
            place = ("start", "stop", "step").index(name)
            return self.bounds[place] if place < len(self.bounds) else tx.constant(None)
        if self.is_constant():
            return tx.constant(self.as_constant()).getattr(tx, name)
        return super().getattr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.is_constant():
            return tx.constant(self.as_constant()).call_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if self.is_constant() and other.is_constant():
            return tx.constant(self.as_constant()).compare(tx, op, tx.constant(other.as_constant()), reflected)
        return super().compare(tx, op, other, reflected)

    def reconstruct(self, builder: Builder) -> None:
        if self.source is not None:
            builder.load_source(self.source)
            return
        builder.load_const(slice)
        for bound in self.bounds:
            builder.load(bound)
        builder.call(len(self.bounds))
