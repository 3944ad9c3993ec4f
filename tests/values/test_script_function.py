"""Calls of torch.jit.script functions in compiled code: what TorchScript computes, in one graph."""

from typing import Final, List, Optional  # noqa: UP035 - TorchScript takes these

import pytest
import torch

import dyncomp
from tests.support import check

_SEED = torch.Generator().manual_seed(3)
X, Y = torch.randn(5, 3, generator=_SEED), torch.randn(5, 3, generator=_SEED)
LIMIT: Final = 4


@torch.jit.script
def inner(x, n: int):
    if x.size(0) > n:
        return x * 2
    return x + n


@torch.jit.script
def mixed(x, y, n: int, s: float = 2.0):
    mid = n // 2
    a = torch.where((x < mid) & (x > -mid), torch.tensor(mid - 1).type_as(x), torch.abs(x))
    z = torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * n)
    for i in range(3):
        a = a + inner(y, i) * s
    return a / z, torch.cat([x, y], 0), x.size(0), torch.tensor(min(max(x.size(-1), y.size(-1)), n))


@torch.jit.script
def optional(x, y: Optional[torch.Tensor], dims: List[int]):  # noqa: UP006, UP045
    if y is None:
        z = x
    else:
        z = y
    dims.append(1)
    return (x + z).sum(dims[0]), len(dims)


@torch.jit.script
def power(x: torch.Tensor, n: int):
    return x * n**2  # a float there


@torch.jit.script
def scale(x: torch.Tensor, s: float):
    return x * s


@torch.jit.script
def looping(x: torch.Tensor):
    s = torch.zeros_like(x)
    for i in range(x.size(0)):
        s[i] = x[i] * i
    while s.dim() < 3:
        s = s.unsqueeze(0)
    return s, [s, x]


@torch.jit.script
def in_place(x: torch.Tensor):
    x.add_(1)
    return x


@torch.jit.script
def casting(x: torch.Tensor, wide: bool = False):
    if wide:
        return x.to(torch.float64)
    return x.contiguous().view(-1).to(x.device).type(torch.int64)


@torch.jit.script
def dropping(x: torch.Tensor):
    return torch.nn.functional.dropout(x, 0.5, True)


@torch.jit.script
def branching(x: torch.Tensor):
    if bool(x.sum() > 0):
        return x
    return -x


@torch.jit.script
def raising(x):
    if x.size(0) > 2:
        raise ValueError("too long")
    return x


class Plus(torch.nn.Module):
    def forward(self, x):
        return x + 1


SCRIPTED = torch.jit.script(Plus())
TRACED = torch.jit.trace(lambda x: x.view(x.size(0), -1) * 2, torch.randn(3, 4))


def lists_are_copied(x):
    dims = [0]
    return optional(x, None, dims), dims


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: mixed(x, y, 5),
        lambda x, y: mixed(x, y=y, n=5, s=3.0),
        lambda x, y: optional(x, y, [0]),
        lambda x, y: lists_are_copied(x),
        lambda x, y: power(torch.arange(3), 3) + x,
        lambda x, y: scale(torch.arange(3), 2),
        lambda x, y: looping(x),
        lambda x, y: in_place(x),
        lambda x, y: (casting(x), casting(x, True)),
    ],
)
def test_one_graph(function):
    check(function, X, Y)


def test_the_function_itself():
    check(looping, X)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: dropping(x), "unsupported-call"),
        (lambda x: branching(x), "data-dependent-branch"),
        (lambda x: raising(x), "eager-error"),
        (lambda x: scale(x, "a"), "unsupported-call"),
        (lambda x: SCRIPTED(x), "unsupported-call"),
        (lambda x: TRACED(x), "unsupported-call"),
        (lambda x: torch.autocast("cpu", torch.bfloat16)(looping)(x), "unsupported-call"),
    ],
)
def test_what_breaks(function, reason):
    dyncomp.reset()
    check(lambda x: function(x * 2), X, graphs=None, breaks=None)
    assert reason in dyncomp.stats().break_reasons


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_vary(dynamic):
    dyncomp.reset()
    fast = dyncomp.optimize(lambda x, y: mixed(x, y, 5), dynamic=dynamic)
    for rows in (5, 6, 9, 30):
        for columns in (3, 4, 8):
            x, y = torch.randn(rows, columns), torch.randn(rows, columns)
            torch.testing.assert_close(fast(x, y), mixed(x, y, 5))
    assert dyncomp.stats().graphs <= (3 if dynamic is None else 1)
    assert not dyncomp.stats().graph_breaks


def test_gradients():
    results = []
    for call in (mixed, dyncomp.optimize(lambda x, y, n: mixed(x, y, n), fullgraph=True)):
        x = X.clone().requires_grad_()
        y = call(x, x * 2, 5)[0]
        y.square().sum().backward()
        results.append((y, x.grad))
    torch.testing.assert_close(results[1], results[0])
