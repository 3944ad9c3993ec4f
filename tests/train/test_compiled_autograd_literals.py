"""Tensors that a compiled function makes of numbers, where its backward is part of a compiled autograd graph."""

import contextlib
import gc

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.support import assert_same


def weighted(x, y):
    return F.cross_entropy(x, y, weight=torch.tensor([1.0, 2, 3]), reduction="sum"), x.sin().sum()


def scaled(x, y):
    return (x * torch.tensor([1.0, 2, 3])).exp().sum(), (x / torch.tensor([0.5, 0.25, 2.0])).cos().sum()


@pytest.mark.parametrize("function", [weighted, scaled])
def test_literals_live_as_long_as_the_graph(function, fresh):
    """A backward by other results than the forward prepared for computes its literals anew; they are the graph's alone."""

    def program(inside, f):
        seen = []
        for number in range(6):
            x = torch.linspace(-1, 1, 12).reshape(4, 3).add(number).requires_grad_()
            a, b = f(x, torch.tensor([1, 2, 0, 1]))
            with inside():
                (a if number % 3 == 0 else b if number % 3 == 1 else a + b).backward()
            seen += [a, b, x.grad]
            gc.collect()
        return seen

    got = program(lambda: dyncomp.enable(compiled_autograd=True), dyncomp.optimize(function))
    assert_same(got, program(contextlib.nullcontext, function), rtol=1e-5, atol=1e-6)
    assert dyncomp.stats().recompiles == 0
