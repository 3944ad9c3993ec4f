"""Helpers of the interpreter's tests: trace a function in strict stack checking and compare with Python."""

import torch

from dyncomp import config, interp
from tests.support import check

X = torch.arange(6.0).reshape(2, 3)


def whole(function, *args, **options):
    """One graph, no break, the same as eager in two calls; the stack moves as CPython's table says."""
    with config.patch(verify_passes=True):
        return check(function, *(args or (X,)), graphs=1, breaks=0, backend="eager", **options)


def broken(function, *args, breaks=1, **options):
    """As eager, with this many breaks."""
    with config.patch(verify_passes=True):
        return check(function, *(args or (X,)), graphs=None, breaks=breaks, backend="eager", **options)


def trace(function, *args):
    return interp.trace_frame(function, args or (X,), None)


def guards(function, *args):
    """The guards of a trace as text."""
    return [str(record) for record in trace(function, *args).guards]
