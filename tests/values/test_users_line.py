"""Errors of graphs that run node by node show the line of the program, also of a function that was inlined."""

import traceback

import pytest
import torch

import dyncomp


def written(a):
    b = a * 2
    a[0] = 1.5  # eager refuses this line for views of leaves, once the graph was compiled for other inputs
    return b


def outer(a):
    first = a.flatten()
    second = written(a)
    return first.sum(), second


def lines_of(error):
    return [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_the_line_that_raised(fresh, backend):
    fast = dyncomp.optimize(outer, backend=backend)
    fast(torch.randn(2, 3, requires_grad=True) + 0)
    told = []
    for function in (fast, outer):
        with pytest.raises(RuntimeError, match="is being used in an in-place operation") as raised:
            function(torch.randn(2, 3, requires_grad=True))
        told.append(raised.value)
    assert str(told[0]) == str(told[1])
    assert lines_of(told[0])[-1] == ("<captured>", lines_of(told[1])[-1][1])
    assert told[0].__cause__ is None and not told[0].__suppress_context__
