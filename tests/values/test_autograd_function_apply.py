"""`F.apply`, however torch spells it: a class method in Python up to 2.13, one of C from 2.14 on."""

import pytest
import torch

import dyncomp


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Thrice(Twice):
    @staticmethod
    def forward(ctx, x):
        return x * 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x: Twice.apply(x) + 1,
        lambda x: Thrice.apply(Twice.apply(x)),
        lambda x: [f(x) for f in (Twice.apply, Thrice.apply)],
    ],
)
def test_forward_is_followed(function):
    x = torch.arange(3.0)
    torch.testing.assert_close(dyncomp.optimize(function, fullgraph=True, backend="eager")(x), function(x))


def test_a_gradient_is_that_of_the_backward():
    def function(x):
        return Thrice.apply(x).sum()

    grads = []
    for call in (function, dyncomp.optimize(function, fullgraph=True)):
        x = torch.ones(3, requires_grad=True)
        call(x).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)
