"""Arithmetic with numbers that varied, and which something before has pinned (a loop over `range(n)`): Python's own."""

import math

import pytest
import torch

import dyncomp
from tests.support import assert_same

EXPRESSIONS = [
    lambda x, n: (1.0 / n, n / 2.5, 2.5 // n, n // 2.5, 2.5 % n, n % 2.5, divmod(2.5, n)),
    lambda x, n: (n**2.5, 2.5**n, n**-0.5, n * 1.5, 1.5 - n, n + 0.5, -n, ~n, 1 / n * n),
    lambda x, n: (math.sqrt(n), math.log2(n), math.pow(n, 2.5), math.hypot(n, 2), math.fmod(n, 2.5), math.comb(n, 2)),
    lambda x, n: (round(n, -1), round(n / 3, 2), math.floor(n / 2), float(n), (n / 2).is_integer(), n.__truediv__(2)),
    lambda x, n: (max(n, 2.5), min(n, 3), sum([n, 0.5]), n < 2.5, n == 3.0, f"{n / 2:.2f}", n.bit_length(), [0] * n),
    lambda x, n: (torch.full((2,), 1.0 / n), x * n**-0.5, x.clamp(max=n / 2), torch.linspace(0, n, n), x.sum() / (n * 0.5)),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_pinned_numbers(expression, fresh):
    def function(x, n):
        for i in range(n):
            x = x + 1.0 / (i + 1)
        for _ in range(x.shape[0]):
            x = x * 0.9
        return x, expression(x, n), expression(x, x.shape[0])

    fast = dyncomp.optimize(function)
    for n in (2, 3, 4):
        assert_same(fast(torch.ones(n), n), function(torch.ones(n), n))
    assert dyncomp.stats().graph_breaks == 0
