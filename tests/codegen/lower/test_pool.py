"""max_pool2d: every setting against ATen, NaN and infinities included."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.graphs import kernels_of, run_interpreted, schedule_of

pool = torch.nn.functional.max_pool2d
pair = lambda low, high: st.tuples(st.integers(low, high), st.integers(low, high))  # noqa: E731


def same(function, x):
    (got,) = run_interpreted(function, x)
    want = function(x)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert got.stride() == want.stride()


@settings(max_examples=60, deadline=None)
@given(st.integers(5, 12), st.integers(5, 12), pair(1, 4), pair(1, 3), pair(0, 2), pair(1, 2), st.booleans())
def test_settings(height, width, window, step, padding, spread, ceil_mode):
    padding = tuple(min(p, k // 2) for p, k in zip(padding, window, strict=True))
    if any(s * (k - 1) + 1 > n + 2 * p for n, k, p, s in zip((height, width), window, padding, spread, strict=True)):
        return
    x = torch.randn(2, 2, height, width)
    x[0, 0, 1, 2], x[1, 1, 0, 0], x[0, 1] = math.nan, math.inf, -math.inf
    same(lambda t: pool(t, window, step, padding, spread, ceil_mode), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types(dtype):
    same(lambda t: pool(t, 3, 2, 1), torch.randn(1, 3, 9, 9).to(dtype))


def test_without_a_batch():
    same(lambda t: pool(t, 3, 2, 1), torch.randn(3, 9, 9))


def test_what_comes_before_and_after_joins_the_kernels():
    assert len(kernels_of(lambda t: pool((t * 2).relu(), 3, 2, 1) + 1, torch.randn(1, 4, 16, 16))) <= 2


def test_what_stays_with_aten():
    def called(function, x):
        return "aten::max_pool2d_with_indices" in [getattr(s, "name", "") for s in schedule_of(function, x).steps]

    x = torch.randn(1, 4, 16, 16)
    assert called(lambda t: pool(t, 2, return_indices=True), x)
    assert called(lambda t: pool(t, 2), x.contiguous(memory_format=torch.channels_last))
    assert called(lambda t: pool(t, 9, padding=4), x)
