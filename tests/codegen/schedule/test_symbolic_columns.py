"""Reductions of columns with symbolic sizes: the form is chosen by the sizes of the first call, and holds for all."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from tests.support import assert_same

sizes = st.tuples(st.integers(2, 90), st.integers(2, 300))


@settings(max_examples=20, deadline=None)
@given(first=sizes, others=st.lists(sizes, min_size=1, max_size=4))
def test_first_call_chooses_the_form(first, others):
    def function(x):
        return x.amax(0), (x * 2).sum(0), x.argmax(0), torch.softmax(x, 0), torch.softmax(x, 1)

    dyncomp.reset()
    fast = dyncomp.optimize(function, dynamic=True)
    with torch.no_grad():
        for rows, columns in (first, *others):
            x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
            got, want = fast(x), function(x)
            assert_same((got[0], got[2]), (want[0], want[2]))
            for a, b in zip((got[1], *got[3:]), (want[1], *want[3:]), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
                assert a.stride() == b.stride()
    stats = dyncomp.stats()
    assert (stats.graphs, stats.graph_breaks) == (1 + (first[0] == first[1] and any(r != c for r, c in others)), 0), stats


@pytest.mark.parametrize("rows", [3, 40, 513, 2000])
def test_long_sums_keep_their_accuracy(fresh, rows):
    """Short rows leave the first level unflushed; long ones must not."""
    fast = dyncomp.optimize(lambda x: (x.sum(0), x.sum(1)), dynamic=True)
    with torch.no_grad():
        for n in (rows, 7, 5000):
            x = torch.rand(n, 33, generator=torch.Generator().manual_seed(n)) + 1
            for got, want in zip(fast(x), (x.double().sum(0), x.double().sum(1)), strict=True):
                torch.testing.assert_close(got.double(), want, rtol=6e-7, atol=0)
            y = x.t().contiguous()
            for got, want in zip(fast(y), (y.double().sum(0), y.double().sum(1)), strict=True):
                torch.testing.assert_close(got.double(), want, rtol=6e-7, atol=0)


@pytest.mark.parametrize("columns", [10, 100, 512, 1000, 1024])
def test_short_rows_are_summed_as_where_their_length_is_known(fresh, columns):
    """A second level that a row does not need costs nothing, and changes no bit."""

    def function(x):
        return x.sum(1), torch.softmax(x, 1), x.pow(2).mean(-1), (x.exp() * 2).sum((0, 1))

    x = torch.randn(6, columns)
    with torch.no_grad():
        known = dyncomp.optimize(lambda x: function(x))(x)
        varying = dyncomp.optimize(lambda x: function(x), dynamic=True)(x)
    assert all(map(torch.equal, known[:3], varying[:3]))
    torch.testing.assert_close(varying[3], known[3])
