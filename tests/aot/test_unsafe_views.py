"""Operations whose schema hides that their results lie in the memory of an argument."""

import torch

import dyncomp
from tests.support import check


def test_parts_of_products_that_follow_each_other():
    """The memory of the first product must not go to the second one while its parts are read."""

    def function(x, w):
        first, second, third = torch.unsafe_chunk(x @ w, 3, 1)
        fourth, fifth = torch.unsafe_split_with_sizes((x + 1) @ w, [2, 4], 1)
        return first.sin() * fourth + second, third @ w[:2, :5] + fifth.sum()

    check(function, torch.randn(3, 6), torch.randn(6, 6))
    check(function, torch.randn(3, 6), torch.randn(6, 6), dynamic=True)


def test_parts_as_results():
    def function(x):
        first, second = torch.unsafe_split(x * 2, 2, 1)
        first.add_(1)
        return first, second

    x = torch.randn(3, 4, requires_grad=True)
    fast = dyncomp.optimize(function)
    for got, want in zip(fast(x), function(x), strict=True):
        torch.testing.assert_close(got, want)
        assert (got.stride(), got.storage_offset(), got._is_view()) == (want.stride(), want.storage_offset(), want._is_view())
