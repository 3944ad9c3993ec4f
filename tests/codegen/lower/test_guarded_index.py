"""An index from data under a guard: out of range counts only where the element is really read."""

import pytest
import torch

import dyncomp
from tests.codegen.graphs import assert_close, kernels_of, run_interpreted


def beside(table, x):
    """`table` looked up at arange(8), which `cat` reads at position 8 under a guard that is false there."""
    at = torch.arange(8)
    return torch.cat((table[at[:, None], at[None, :]] * 2, x), dim=1) + 1


def test_a_part_of_a_concatenation(fresh):
    table, x = torch.randn(8, 8), torch.randn(8, 1)
    assert_close(run_interpreted(beside, table, x), [beside(table, x)])
    assert len(kernels_of(beside, table, x)) == 1
    torch.testing.assert_close(dyncomp.optimize(beside)(table, x), beside(table, x))
    assert not dyncomp.stats().fallbacks


def test_padding():
    def padded(table):
        return torch.nn.functional.pad(table[torch.arange(6)].cos(), (0, 0, 2, 3)) * 2

    table = torch.randn(6, 5)
    assert_close(run_interpreted(padded, table), [padded(table)])


def test_an_index_that_is_read_and_out_of_range_still_raises():
    fast = dyncomp.optimize(lambda table, x, at: torch.cat((table[at], x)) + 1)
    with pytest.raises(IndexError):
        fast(torch.randn(4, 3), torch.randn(2, 3), torch.tensor([0, 4]))
