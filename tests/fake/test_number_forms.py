"""Plain ints and floats of torch's schemas that vary from call to call: few compiles for all values, and eager's results at each."""

import math

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from tests.support import assert_same, clone_inputs, outcome

X = torch.randn(6, 7, generator=torch.Generator().manual_seed(1))
IMAGES = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(2))
OFFSETS = (2, 3, 0, 1, -1, -3, -2)  # a version without symbols, one above the diagonal, one below
RATES = (0.1, 0.5, 0.3, 0.9)


@pytest.fixture(autouse=True)
def fresh_start(fresh):
    yield


def compiles(function, tensor, values, gradients=False, **options):
    """How many times it was compiled; every call is compared with eager, random numbers included."""
    fast = dyncomp.optimize(function, **options)
    before = dyncomp.stats().frames
    with config.patch(strict=True):
        for value in (*values, *values[:2]):
            (ours,), (theirs,) = clone_inputs((tensor,)), clone_inputs((tensor,))
            found = []
            for side, x in ((fast, ours), (function, theirs)):
                torch.manual_seed(0)
                if not gradients:
                    found.append((outcome(side, (x, value)), torch.get_rng_state().tolist()))
                    continue
                leaf = x.requires_grad_()
                result = side(leaf, value)
                given = torch.arange(1.0, result.numel() + 1).view(result.shape)
                found.append(((result, torch.autograd.grad(result, leaf, given)), torch.get_rng_state().tolist()))
            (got, got_state), (want, want_state) = found
            assert got_state == want_state, value
            if not gradients and want[1] is not None:
                assert type(got[1]) is type(want[1]) and str(got[1]) == str(want[1]), (got[1], want[1])
                continue
            assert_same(got, want)
            assert_same(ours.detach(), theirs.detach(), "inputs")
    return dyncomp.stats().frames - before


TRIANGLES = [
    lambda x, n: torch.tril(x, n) + 1,
    lambda x, n: x.triu(diagonal=n) * 2,
    lambda x, n: x.t().tril(n),
    lambda x, n: (x / 0).triu(n),
    lambda x, n: x.clone().tril_(n) + x.clone().triu_(n),
    lambda x, n: x.triu(-n).tril(n + 1),
]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("number", range(len(TRIANGLES)))
def test_triangles_are_compiled_once_for_all_offsets(number, gradients):
    assert compiles(TRIANGLES[number], X, (*OFFSETS, 9, -9), gradients, dynamic=True) == 1


@pytest.mark.parametrize("program", [
    lambda x, n: (x > 0).tril(n), lambda x, n: (x * 4).to(torch.int8).triu(n), lambda x, n: x.to(torch.complex64).tril(n),
    lambda x, n: x.expand(2, 6, 7).triu(n),
])  # fmt: skip
def test_triangles_of_other_kinds_of_tensors(program):
    assert compiles(program, X, OFFSETS, dynamic=True) == 1


DIAGONALS = [
    lambda x, n: x.diagonal(n) * 2,
    lambda x, n: torch.diagonal(x.expand(3, 6, 7), n, -1, 1).sum(0),
    lambda x, n: torch.diag(x, n) + 1,
]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("number", range(len(DIAGONALS)))
def test_diagonals_are_compiled_once_a_side(number, gradients):
    assert compiles(DIAGONALS[number], X, OFFSETS, gradients, dynamic=True) <= 3


def test_vectors_on_a_diagonal_without_gradients():
    for program in (lambda x, n: torch.diag(x[0], n) + 1, lambda x, n: torch.diag_embed(x, n) * 2):
        assert compiles(program, X, OFFSETS, dynamic=True) <= 3
        compiles(program, X, OFFSETS, True, dynamic=True)


def test_a_diagonal_is_a_view_that_can_be_written_to():
    def program(x, n):
        part = x.diagonal(n)
        part.mul_(2)
        return part

    assert compiles(program, X, OFFSETS, dynamic=True) <= 3


@pytest.mark.parametrize("gradients", [False, True])
def test_triangles_are_where_their_tensor_is(gradients):
    def program(x, n):
        with torch.device("meta"):
            return x.tril(n)

    assert compiles(program, X, OFFSETS, gradients, dynamic=True) == 1


def test_a_diagonal_beyond_the_tensor_is_empty():
    assert compiles(lambda x, n: x.diagonal(n), X, (2, 1, 7, 12, -6, -9), dynamic=True) <= 6


def test_wrong_arguments_are_eagers_errors():
    for program in (lambda x, n: x[0].tril(n), lambda x, n: x.diagonal(n, 0, 0), lambda x, n: x.diagonal(n, 0, 5)):
        compiles(program, X, OFFSETS[:3], dynamic=True)
    compiles(lambda x, p: F.dropout(x, p), X, (0.5, 0.3, 1.5, -0.1, math.nan), dynamic=True)
    compiles(lambda x, n: x.unfold(1, n, 1), X, (2, 3, 8, -1), dynamic=True)
    compiles(lambda x, n: x.unfold(1, 2, n), X, (2, 3, 0, -1), dynamic=True)


def test_windows_are_compiled_once_for_all_sizes_and_steps():
    assert compiles(lambda x, n: x.unfold(1, n, 1).sum(-1), X, (2, 3, 4, 5, 6), dynamic=True) == 1
    assert compiles(lambda x, n: x.unfold(1, n, 1) * 2, X, (2, 3, 7, 1, 5, 0), dynamic=True) <= 3  # whose layout sizes decide
    assert compiles(lambda x, n: x.unfold(0, 2, n).mean(-1), X, (2, 3, 1, 5), dynamic=True) == 1
    assert compiles(lambda x, n: x.t().unfold(0, n, n), X, (2, 3, 7, 1), dynamic=True) == 1


@pytest.mark.parametrize("gradients", [False, True])
def test_rates_of_dropout_are_compiled_once(gradients):
    assert compiles(lambda x, p: F.dropout(x, p) + 1, X, RATES, gradients, dynamic=True) == 1
    assert compiles(lambda x, p: F.dropout(x * 1, p, inplace=True), X, RATES, gradients, dynamic=True) == 1
    assert compiles(lambda x, p: F.dropout2d(x, p) + 1, IMAGES, RATES, gradients, dynamic=True) == 1
    assert compiles(lambda x, p: F.dropout(x, p, training=False) + 1, X, RATES, gradients, dynamic=True) == 1
    assert compiles(lambda x, p: F.dropout(x, p) + 1, X, (*RATES, 0.0, 1.0), gradients, dynamic=True) == 3


def test_a_rate_that_a_schedule_sets_on_the_module():
    module = torch.nn.Sequential(torch.nn.Dropout(0.0), torch.nn.Linear(7, 3))

    def program(x, p):
        module[0].p = p
        return module(x)

    assert compiles(program, X, RATES) == 2  # one without symbols, one for all that follow


FLOATS = [
    (lambda x, e: F.layer_norm(x, (7,), eps=e), (1e-5, 1e-3, 0.1, 1.0)),
    (lambda x, e: F.layer_norm(x, (7,), x[0], x[1], e), (1e-5, 1e-3, 0.1, 1.0)),
    (lambda x, e: F.huber_loss(x, x * 2, delta=e), (0.1, 0.5, 2.0)),
    (lambda x, e: F.huber_loss(x, x * 2, "none", e), (0.1, 0.5, 2.0)),
    (lambda x, e: F.smooth_l1_loss(x, x * 2, reduction="sum", beta=e), (0.1, 0.5, 2.0)),
    (lambda x, e: F.pad(x, (1, 2), value=e), (0.5, -1.0, 3.0, 0.0)),
    (lambda x, e: F.pad(x.int(), (1, 2), value=int(e)), (2.0, -1.0, 0.0)),
]


@pytest.mark.parametrize("number", range(len(FLOATS)))
def test_floats_of_layers_are_compiled_once(number):
    program, values = FLOATS[number]
    assert compiles(program, X, values, dynamic=True) == 1


def test_with_gradients_the_rest_is_compiled_for_each_value():
    assert compiles(lambda x, e: F.layer_norm(x, (7,), eps=e), X, (1e-5, 1e-3), True, dynamic=True) == 2
    assert compiles(lambda x, n: x.unfold(1, n, 1) * 2, X, (2, 3), True, dynamic=True) == 2


BOUNDS = [
    lambda x, e: x.clamp(-e, e),
    lambda x, e: x.clamp(min=e),
    lambda x, e: x.clamp_max(e),
    lambda x, e: x.half().clamp(e, 2.0),
    lambda x, e: x.int().clamp(e, 2.0),
    lambda x, e: (x * math.nan).clamp(-e, e),
]


@pytest.mark.parametrize("number", range(len(BOUNDS)))
def test_a_bound_that_is_nan_fills(number):
    assert compiles(BOUNDS[number], X, (0.5, 1.0, math.nan, 0.0, -0.0, -1.0, math.inf), dynamic=True) <= 4
