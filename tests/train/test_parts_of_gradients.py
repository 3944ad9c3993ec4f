"""Gradients of some results of a graph that was cut for others: what is kept must be what they read."""

import itertools

import pytest
import torch

import dyncomp


def powers(x, w):
    """The formulas of these backwards begin with operations on forward values alone, which the forward may keep."""
    y = x * w
    return y.square().sum(), (y**3).sum(), (y.exp() / y).sum(), y.abs().rsqrt().sum()


def columns(x, w):
    y = torch.nn.functional.linear(x, w)
    return y[:, 0].sum(), y[:, 1].pow(2).sum(), y.sigmoid().log().mean()


def mixed(x, w):
    y = torch.nn.functional.layer_norm(x @ w, (4,))
    return y.pow(2).mean(), y.softmax(-1), y.tanh()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [powers, columns, mixed])
def test_every_part(function, dynamic):
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    fast = dyncomp.optimize(function, dynamic=dynamic)
    count = len(function(x, w))
    for size in range(1, count + 1):
        for part in itertools.combinations(range(count), size):
            got, want = fast(x, w), function(x, w)
            found = [
                torch.autograd.grad(sum(results[i].sum() * (i + 1) for i in part), (x, w)) for results in (got, want)
            ]
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_autocast_around_a_backward():
    """A backward for another state of autocast is made from the same kept values."""
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    fast = dyncomp.optimize(columns)
    for on in (False, True, False):
        found = []
        for results in (fast(x, w), columns(x, w)):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
                found.append(torch.autograd.grad(results[0] + results[1], (x, w)))
        torch.testing.assert_close(*found, rtol=1e-2 if on else 1e-5, atol=1e-2 if on else 1e-6)
