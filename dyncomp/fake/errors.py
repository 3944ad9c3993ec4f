"""Why a fake run stopped. None of these means that the user's program is wrong."""

from __future__ import annotations


class FakeError(Exception):
    """Base. `op` is the qualified name of the operation, such as `aten.nonzero.default`. `needs_env`: with symbolic numbers it goes."""

    def __init__(self, op: str, detail: str, needs_env: bool = False):
        self.op, self.detail, self.needs_env = op, detail, needs_env
        super().__init__(f"{op}: {detail}")


class DataDependentValue(FakeError):
    """The operation returns a Python value that depends on tensor data (`.item()`, `torch.equal`)."""


class DataDependentShape(FakeError):
    """The shape of the result depends on tensor data (`nonzero`, boolean index)."""


class NoShapeRule(FakeError):
    """Neither a rule nor a meta kernel gives the shape of the result."""


class UnsupportedTensor(FakeError):
    """A tensor that fakes cannot stand for: sparse, quantised, nested, or of a subclass."""
