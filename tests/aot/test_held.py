"""Which inputs a call must keep alive for a backward that is differentiated: those that eager's history cannot be made again without."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import aot
from dyncomp.backends import training


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 + 0 * ctx.saved_tensors[0]


def write_at(x, d):
    x = x * 1
    x[0] = d[0]
    return x.exp()


def scaled_buffer(x, d):
    d.mul_(0.5)
    return (x * 2 + d).exp()


CASES = [
    ("nothing is kept", lambda x, d: x + d, []),
    ("the result is kept", lambda x, d: (x * 2 + d).exp(), []),
    ("inputs are kept", lambda x, d: x * d, []),
    ("what is between is kept", lambda x, d: F.gelu(x + d), []),
    ("masks are kept", lambda x, d: F.dropout((x + d).relu(), 0.5), []),
    ("saved for another formula", lambda x, d: torch.logsumexp(x + d, 1), []),
    ("values are looked at", lambda x, d: torch.linalg.cholesky(x @ x.t() + torch.eye(3)) + d, [0]),
    ("a write through a view", write_at, []),
    ("a function of the program's own", lambda x, d: Doubled.apply(x + d), [0, 1]),
    ("an input is written", scaled_buffer, []),
]


@pytest.mark.parametrize(("function", "held"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_held(function, held, monkeypatch):
    found = []

    def trace(*args, **kwargs):
        found.append(aot_trace(*args, **kwargs))
        return found[-1]

    aot_trace = aot.trace_joint
    monkeypatch.setattr(training.aot, "trace_joint", trace)
    leaf = torch.randn(3, 3, requires_grad=True)
    inputs = leaf + 0, torch.randn(3, 3)
    dyncomp.optimize(function, backend="aot_eager")(*inputs)
    assert found[-1].held == held
