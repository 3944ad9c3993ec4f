"""Long reductions with few results are cut, so that all threads have work."""

import pytest
import torch

from dyncomp.codegen.lower.graph import lower_graph
from dyncomp.codegen.lower.split import parts_of
from dyncomp.codegen.schedule.scheduler import schedule_graph
from tests.codegen.graphs import assert_close, kernels_of, run_interpreted, run_symbolic, trace

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


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a.sum(),
        lambda a: a.exp().mean((0, 1)),
        lambda a: a.amax(0),
        lambda a: a.amin((0, 1), keepdim=True),
        lambda a: (a > 3).any(),
        lambda a: (a > -9).all(0),
        lambda a: a.var(0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_symbolic_sizes_leave_a_rest(function, dtype):
    """Made for a long tensor, right for short ones: pieces may be empty, and so may the rest."""
    calls = [(R(rows, columns).to(dtype),) for rows, columns in ((4096, 16), (4099, 3), (5, 7), (63, 2), (128, 2))]
    for got, call in zip(run_symbolic(function, *calls), calls, strict=True):
        assert_close(got, [function(*call)], scale=20)


def test_what_is_summed_in_pieces_is_not_kept_in_memory():
    schedule = schedule_graph(lower_graph(trace(lambda x: x.exp().sum(), R(1 << 20), symbolic=True)))
    assert not any(tensor.key[0] == "aten.exp.default" for tensor in schedule.stored)
