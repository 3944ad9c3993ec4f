"""Slices whose bounds are not all constants, such as `x[:, start:]` with a tensor `start`."""

from __future__ import annotations

from typing import Any

from dyncomp.values.base import Builder, Tracer, Value


class SliceValue(Value):
    def __init__(self, bounds: list[Value]):
        super().__init__()
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
        return super().getattr(tx, name)

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(slice)
        for bound in self.bounds:
            builder.load(bound)
        builder.call(len(self.bounds))
