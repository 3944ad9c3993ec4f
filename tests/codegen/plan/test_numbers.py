"""Numbers of a call in plans and kernels: sums of sizes, floats that vary or are made of sizes."""

import pytest
import torch

import dyncomp
from dyncomp.codegen.ir.index import Size, Undecided, as_index
from dyncomp.codegen.ir.real import Real
from tests.support import assert_same

F = torch.nn.functional


def check(function, *calls, fallbacks=()):
    """Every call as in eager, one graph for all."""
    fast = dyncomp.optimize(function, dynamic=True)
    with torch.no_grad():
        for call in calls:
            assert_same(fast(*call), function(*call))
    stats = dyncomp.stats()
    assert stats.frames == 1 and stats.graph_breaks == 0
    assert not [name for name in stats.fallbacks if name not in fallbacks]
    return stats


def test_a_sum_that_begins_with_a_negative_constant(fresh):
    def function(x):
        count = -(-x.shape[0] // 2)
        return torch.full((count - 1, count), 2.0) + x.sum()

    check(function, *[(torch.arange(float(n)),) for n in (5, 8, 11)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_floats_that_vary(fresh, dtype):
    def function(x, rate, shift):
        return x * rate, rate - x, torch.add(x.double(), x, alpha=rate), torch.where(x > 1, x.double(), shift / 3)

    x = (torch.arange(12.0) - 5).to(dtype).reshape(3, 4)
    stats = check(function, *[(x, rate, shift) for rate, shift in ((0.1, 2.5), (-3.75, 1e-9), (float("inf"), -0.0))])
    assert stats.kernels


def test_floats_made_of_sizes(fresh):
    def function(q, k):
        scale = q.size(-1) ** -0.5
        return (q * scale - k / k.size(0)).relu()

    stats = check(function, *[(torch.randn(n, m), torch.randn(n, m)) for n, m in ((4, 6), (9, 5), (3, 16))])
    assert stats.kernels == 1


def test_a_float_in_an_argument_by_name_of_an_operation(fresh):
    def function(x, slope):
        return torch.add(x.bfloat16(), x.bfloat16(), alpha=slope)

    fallbacks = ("symbolic-sizes: aten.add.Tensor",)
    check(function, *[(torch.randn(7), slope) for slope in (0.5, 1.5, -2.25)], fallbacks=fallbacks)


def test_questions_about_a_float_of_the_call_are_undecided():
    real = Real(as_index(Size("x0")), None)
    for question in (
        lambda: real == 1,
        lambda: real < 2.0,
        lambda: bool(real),
        lambda: float(real),
        lambda: real * 2,
        lambda: 1 / real,
        lambda: as_index(Size("s0")) * real,
    ):
        with pytest.raises(Undecided):
            question()
    assert real == Real(as_index(Size("x0")), None) and real != Real(as_index(Size("x1")), None)
