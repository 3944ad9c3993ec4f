"""Why a fake run stopped. None of these means that the user's program is wrong."""

from __future__ import annotations

import dis
import os

import torch

_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


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


class OtherLayout(NoShapeRule):
    """The result is no plain strided tensor: sparse, or in the layout of a library."""


def is_own_fault(error: BaseException) -> bool:
    """True for a slip in our own code (a name or attribute that is not there, a failed assert), which eager would not raise: it came
    about in a file of ours, not by a `raise`, and not by reading an attribute of a tensor."""
    if not isinstance(error, NameError | AttributeError | AssertionError) or error.__traceback__ is None:
        return False
    if isinstance(getattr(error, "obj", None), torch.Tensor):
        return False
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    if not code.co_filename.startswith(_OURS):
        return False
    return isinstance(error, AssertionError) or dis.opname[code.co_code[last.tb_lasti]] != "RAISE_VARARGS"


class UnsupportedTensor(FakeError):
    """A tensor that fakes cannot stand for: sparse, quantised, nested, or of a subclass."""
