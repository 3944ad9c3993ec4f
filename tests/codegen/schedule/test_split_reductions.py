"""Long reductions with few results are cut, so that all threads have work."""

import pytest
import torch

from dyncomp.codegen.lower.split import parts_of
from tests.codegen.graphs import assert_close, kernels_of, run_interpreted

R = torch.randn


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_whole_tensor_takes_two_kernels():
    first, second = kernels_of(lambda x: x.exp().sum(), R(512, 512))
    assert first.units == 64 and second.units == 1


def test_many_rows_are_left_alone():
    assert parts_of((1024, 1024), (1,)) is None
    assert parts_of((64, 64), (0, 1)) is None
    assert parts_of((1 << 16, 16), (0,)) == (0, 64)


@pytest.mark.parametrize("keepdim", [False, True])
def test_results_are_those_of_eager(keepdim):
    x = R(64, 4, 512)
    for function in (
        lambda a: a.sum((0, 2), keepdim=keepdim),
        lambda a: a.amax((0, 1, 2), keepdim=keepdim),
        lambda a: a.var((0, 1), keepdim=keepdim),
        lambda a: (a > 3).any(),
        lambda a: (a - a.mean()) / a.std(),
    ):
        assert_close(run_interpreted(function, x), [function(x)], scale=5)
