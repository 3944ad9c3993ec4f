"""Sizes where torch's schema has a plain int: one compile for all of them."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from dyncomp import config
from dyncomp.fake.rules.spaced import _tril_size
from tests.interp.test_dynamic import run, tensors
from tests.support import assert_same, examples

SHAPES = ((4, 5), (6, 7), (5, 9), (8, 4))
PROGRAMS = [
    lambda x: torch.linspace(-1, 2.5, x.shape[0]) + 1,
    lambda x: torch.linspace(0, x.shape[0], steps=x.shape[1], dtype=torch.float64),
    lambda x: torch.linspace(torch.tensor(1.0), 3.0, 2 * len(x)),
    lambda x: torch.logspace(0, 2, x.shape[1], base=2.0),
    lambda x: torch.bucketize(x, torch.linspace(-1, 1, x.shape[1] + 1)),
    lambda x: x * torch.hann_window(x.shape[1]) + torch.hann_window(x.shape[1], periodic=False),
    lambda x: (torch.hamming_window(len(x), True, 0.6), torch.hamming_window(len(x), False, 0.5, 0.4)),
    lambda x: (torch.blackman_window(len(x)), torch.bartlett_window(len(x), False), torch.kaiser_window(len(x), True, 7.0)),
    lambda x: (torch.fft.fftfreq(len(x), 0.5), torch.fft.rfftfreq(x.shape[1])),
    lambda x: torch.tril_indices(x.shape[0], x.shape[1]) + 1,
    lambda x: torch.triu_indices(len(x), len(x), 1),
    lambda x: (torch.tril_indices(len(x), 5, offset=-2), torch.triu_indices(6, x.shape[1], x.shape[0] - 5)),
    lambda x: x[tuple(torch.triu_indices(*x.shape, 1))],
    lambda x: F.one_hot(x.argmax(1), x.shape[1]) * x,
    lambda x: torch.nn.functional.one_hot(x.argmax(0), num_classes=2 * len(x)),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_one_compile_for_all_sizes(number, backend):
    run(PROGRAMS[number], *tensors(*SHAPES), backend=backend)


def test_gradients_flow_past_them():
    def program(x):
        return (x * torch.linspace(0, 1, x.shape[1]))[tuple(torch.tril_indices(*x.shape))].sin().sum()

    fast = dyncomp.optimize(program, dynamic=True)
    before = dyncomp.stats().frames
    with config.patch(strict=True):
        for shape in SHAPES:
            x = torch.randn(shape, requires_grad=True)
            assert_same(*[torch.autograd.grad(function(x), x)[0] for function in (fast, program)])
    assert dyncomp.stats().frames == before + 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.linspace(0, 1, x.shape[0] - 100),
        lambda x: torch.hann_window(-x.shape[0]),
        lambda x: torch.tril_indices(-len(x), 3),
        lambda x: torch.hann_window(len(x), dtype=torch.int64),
        lambda x: F.one_hot(x.argmax(1) + 5, len(x)),
        lambda x: torch.linspace(0, 1, len(x), 5),
    ],
)
def test_wrong_arguments_raise_as_in_eager(program):
    x = torch.randn(4, 5)
    with pytest.raises(Exception) as theirs:
        program(x)
    with pytest.raises(type(theirs.value)) as ours, config.patch(strict=True):
        dyncomp.optimize(program, dynamic=True)(x)
    assert str(ours.value) == str(theirs.value)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(-12, 12))
@settings(max_examples=examples(200), deadline=None)
def test_how_many_places_a_triangle_has(rows, columns, offset):
    assert _tril_size(rows, columns, offset) == torch.tril_indices(rows, columns, offset).shape[1]
    above = rows * columns - _tril_size(rows, columns, offset - 1)
    assert above == torch.triu_indices(rows, columns, offset).shape[1]
