"""Views that a program returns, with sizes in their arguments: autograd's formulas are those of the program's own views, so gradients
have eager's strides at all sizes."""

import pytest
import torch

import dyncomp
from dyncomp import config
from tests.support import assert_same

SIZES = (4, 7, 1, 0, 2, 9)
PROGRAMS = [
    lambda x: x.t().chunk(3, -1)[0],
    lambda x: x.narrow(1, 0, -(-x.size(1) // 2)),
    lambda x: x[: x.shape[0] // 2],
    lambda x: x[1:].t()[:, : x.shape[0] // 2],
    lambda x: x[None].expand(x.shape[0] + 1, -1, -1),
    lambda x: x.view(x.shape[1], x.shape[0]),
    lambda x: ((x * 2)[: x.shape[0] // 2], (x * 2).t()),
    lambda x: (lambda y: (y[: y.shape[0] // 2], y, y.t()[:, :1]))(x * 2),
    lambda x: x[x.shape[0] - 1] if x.shape[0] else x,
    lambda x: x.split(max(x.shape[0] // 2, 1))[0],
    lambda x: x.view(x.shape[0], 1, x.shape[1]).permute(2, 0, 1)[:, : x.shape[0]],
    lambda x: x.diagonal(),
]


@pytest.fixture(autouse=True)
def fresh_start(fresh):
    yield


def gradients(function, x):
    leaf = x.clone().requires_grad_()
    results = function(leaf.t().t() * 1)
    parts = results if isinstance(results, tuple) else (results,)
    given = []
    for part in parts:
        places = torch.arange(1, part.numel() + 1, dtype=part.dtype).view(part.shape)
        given.append(torch.empty_like(part, requires_grad=False).copy_(places))
    return results, torch.autograd.grad(parts, leaf, given)[0]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_gradients_are_laid_out_as_in_eager(number):
    program = PROGRAMS[number]
    fast = dyncomp.optimize(program, dynamic=True)
    before = dyncomp.stats().frames
    with config.patch(strict=True):
        for size in (*SIZES, *SIZES[:2]):
            x = torch.arange(5.0 * size).view(size, 5)
            assert_same(gradients(fast, x), gradients(program, x))
    assert dyncomp.stats().frames - before <= 4  # sizes 0, 1 and, where a part is that small, 2 are versions of their own
