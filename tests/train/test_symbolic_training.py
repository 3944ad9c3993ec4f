"""Training graphs whose sizes and numbers vary: one version, gradients as in eager."""

import pytest
import torch

import dyncomp
from dyncomp import config
from tests.support import assert_same
from tests.train.train_checks import leaves, step

BACKENDS = ["aot_eager", "codegen"]


def train(function, calls, compiles, backend="codegen", dynamic=True, **options):
    """Forward and backward for each call's inputs, as eager; no fallback of the whole graph."""
    dyncomp.reset()
    fast = dyncomp.optimize(function, backend=backend, dynamic=dynamic, **options)
    with config.patch(strict=True, verify_passes=True):
        for inputs in calls:
            theirs, ours = leaves(inputs), leaves(inputs)
            want, want_grads, _ = step(function, theirs, 0)
            got, got_grads, _ = step(fast, ours, 0)
            assert_same(got, want, "results")
            assert_same(got_grads, want_grads, "gradients")
            assert shared(ours, got) == shared(theirs, want)
    made = dyncomp.stats()
    assert not made.fallbacks.get("training-graph-eager"), made.fallbacks
    assert made.frames <= compiles, f"{made.frames} compiles instead of at most {compiles}"
    return fast


def shared(inputs, results):
    """Which tensors of a call lie in the same memory, and how far apart: the first one that each shares with."""
    results = results if isinstance(results, tuple) else (results,)
    tensors = [t for t in (*inputs, *results) if isinstance(t, torch.Tensor)]
    places = [t.untyped_storage().data_ptr() for t in tensors]
    first = [places.index(place) for place in places]
    return [(at, t.data_ptr() - tensors[at].data_ptr()) for at, t in zip(first, tensors, strict=True)]


def rows(*sizes):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(size, 3, generator=generator).requires_grad_(),) for size in sizes]


PROGRAMS = [
    lambda x: (x * 2).t(),
    lambda x: (x * 2)[1:],
    lambda x: ((x * 2).t(), (x + 1)[1:, :2]),
    lambda x: x.view(-1),
    lambda x: (x[1:], x.t(), x + 1),
    lambda x: (x * x).unsqueeze(0).expand(2, -1, -1),
    lambda x: (x.sin().narrow(0, 1, x.shape[0] - 2), x.shape[0], x.shape[0] * 2.5),
    lambda x: (x.detach()[1:], x * 3),
]


def two_of_one(x):
    y = x.exp()
    return y[: x.shape[0] - 1], y[1:], y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [*PROGRAMS, two_of_one])
def test_outputs_that_are_views(program, backend):
    train(program, rows(4, 5, 6, 9, 17), compiles=1, backend=backend)


def test_views_by_the_default_policy():
    with config.patch(automatic_dynamic=True):
        train(two_of_one, rows(4, 5, 6, 9, 17), compiles=2, dynamic=None)


def test_a_view_is_written_by_the_caller():
    def program(x):
        return (x * 2)[1:]

    fast = train(program, rows(4, 5), compiles=1)
    for size in (6, 7):
        (ours,), (theirs,) = leaves(rows(size)[0]), leaves(rows(size)[0])
        for function, x in ((fast, ours), (program, theirs)):
            y = function(x)
            y.mul_(3)
            y.sum().backward()
        assert_same(ours.grad, theirs.grad)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [
    lambda x, n: x**n,
    lambda x, n: torch.pow(x, n - 1) * n,
    lambda x, n: x.pow(x.shape[0] + n).sum(),
    lambda x, n: ((x.abs() + 1) ** -n) ** 2,
])  # fmt: skip
def test_powers(program, backend):
    calls = [(x, n) for (x,), n in zip(rows(3, 4, 5, 4, 6, 4), (5, 3, 2, 4, 7, 6), strict=True)]
    train(program, calls, compiles=2, backend=backend)


def test_power_of_zero():
    """Its gradient is zero even where x ** -1 is infinite; a version of its own."""
    x = torch.tensor([[0.0, 1.0, -2.0]])
    cases = ((3, 2), (3, 0), (4, 0), (4, 3), (4, 1))
    calls = [(x.expand(rows, 3).clone().requires_grad_(), n) for rows, n in cases]
    train(lambda x, n: x**n, calls, compiles=3)


def test_second_derivatives_of_powers():
    def program(x, n):
        return x**n

    dyncomp.reset()
    fast = dyncomp.optimize(program, dynamic=True)
    for n in (3, 4, 5):
        found = []
        for function in (fast, program):
            x = torch.linspace(0.5, 2, 6).reshape(2, 3).requires_grad_()
            (first,) = torch.autograd.grad(function(x, n).sum(), x, create_graph=True)
            found.append((first.detach(), *torch.autograd.grad(first.sum(), x)))
        assert_same(found[0], found[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_more_outputs_than_thought_at_other_sizes(backend):
    """The backward that keeps more is made after the guards: what it would learn of the sizes is not among them."""

    def program(x):
        return x.cumprod(0), x.trace()

    fast = dyncomp.optimize(program, backend=backend, dynamic=True)
    for shape in ((6, 4), (7, 5), (7, 4), (5, 9)):
        ours = torch.randn(shape, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        for function, x in ((fast, ours), (program, theirs)):
            products, trace = function(x)
            (products.sum() * 2 + trace).backward()
        assert_same(ours.grad, theirs.grad, f"{shape}")


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("dynamic", [True, None])
def test_a_version_that_cannot_give_what_is_asked_makes_room_for_one_that_can(dynamic, backend):
    """What a backward for more outputs relies on about sizes is not among the guards of a version that did not expect it."""

    def f(x):
        return (x * x).sum(), x[1:].sin() + x[:-1], x.repeat(2, 1).cos()

    def g(x):
        return (x * x).sum(), x.unfold(0, 2, 1) * 2, x.roll(1, 0).prod(0)

    for function in (f, g):
        dyncomp.reset()
        fast = dyncomp.optimize(function, backend=backend, dynamic=dynamic)
        with config.patch(automatic_dynamic=True):
            for rows in (4, 6, 6, 5, 8, 7, 9):
                ours = torch.randn(rows, 4, requires_grad=True)
                theirs = ours.detach().clone().requires_grad_()
                want = torch.autograd.grad(sum((t * t).sum() for t in function(theirs)), theirs)
                assert_same(torch.autograd.grad(sum((t * t).sum() for t in fast(ours)), ours), want)
        stats = dyncomp.stats()
        assert stats.frames <= 2 and stats.fallbacks["backward-eager"] == 1
