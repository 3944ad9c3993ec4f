"""Writes of parts at symbolic places: one graph for all sizes, compiled kernels, and no write over what is read."""

import pytest
import torch

import dyncomp
from dyncomp import config
from tests.interp.test_dynamic import run, tensors
from tests.support import check


def _assigned(*keys):
    def program(x):
        y = x * 2
        for i, key in enumerate(keys):
            y[key] = float(i)
        return y

    return program


def _shifted(x):
    y = x + 1
    y[:, 2:] = y[:, :2].flip(1)[:, :1]
    y[-1] = y[0]
    y[0, : x.shape[1] // 2] = y[1, x.shape[1] // 2 : 2 * (x.shape[1] // 2)]
    return y


PROGRAMS = [
    _assigned(slice(1, None), (slice(None), slice(None, -2))),
    _assigned((slice(None), slice(-3, -1)), -1, (0, -2)),
    _assigned(slice(None, None, 2), (slice(None), slice(1, None, 3)), (..., slice(-100, 2)), slice(2, 100)),
    lambda x: torch.slice_scatter(x, x[:, 2:] + 1, 1, 2, x.shape[1]),
    lambda x: torch.slice_scatter(x, x[:2] * 0, 0, x.shape[0] - 2),
    lambda x: torch.select_scatter(x, x[:, 0] * 3, 1, -2) + torch.select_scatter(x, x[0], 0, x.shape[0] - 1),
    lambda x: x.clone().fill_diagonal_(0.5),
    lambda x: [y := x.index_fill(1, torch.tensor([0, 2]), 7.0), y.narrow(1, 1, x.shape[1] - 2).add_(1)][0],
    _shifted,
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_one_graph_for_all_sizes(number, backend):
    before = dyncomp.stats().fallbacks
    run(PROGRAMS[number], *tensors((5, 6), (7, 8), (6, 9), (9, 10)), backend=backend)
    after = dyncomp.stats().fallbacks
    assert after == before, "left to ATen"


def test_shapes_of_one_wide_parts():
    """Sizes that varied may be 0 and 1: bounds that lie beyond them are resolved for every size."""

    def program(x):
        y = x.clone()
        y[1:] += 1
        y[:, -1:] = 0
        return y

    with config.patch(strict=True), torch.no_grad():
        fast = dyncomp.optimize(program)
        for rows in (5, 7, 2, 1, 9, 3):
            x = torch.randn(rows, 3)
            assert torch.equal(fast(x), program(x))


def _overlapping(x):
    y = x * 1
    y[:, 1:].copy_(y[:, :-1])
    return y


def _interleaved(x):
    y = x * 1
    y[:, ::2].copy_(y[:, 1::2])
    return y


@pytest.mark.parametrize("program", [_overlapping, _interleaved])
def test_writes_over_what_is_read_stay_with_eager(program):
    before = dyncomp.stats().fallbacks
    with config.patch(strict=True), torch.no_grad():
        fast = dyncomp.optimize(program, dynamic=True)
        for shape in ((3, 4), (5, 8)):
            x = torch.randn(shape)
            assert torch.equal(fast(x), program(x))
    added = [name for name in dyncomp.stats().fallbacks.keys() - before.keys() if "reads memory that it writes" in name]
    assert len(added) <= 1
    assert any("reads memory that it writes" in name for name in dyncomp.stats().fallbacks)


def test_slices_that_lie_apart_at_plain_sizes():
    check(_shifted, torch.randn(4, 6))
    check(_interleaved, torch.randn(4, 6))
