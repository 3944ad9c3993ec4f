"""A branch on a tensor of which one side only raises: one graph with a check in it, and eager's error where it fails."""

import contextlib

import pytest
import torch

import dyncomp
from dyncomp.interp import failed_checks
from tests.support import check


def positive(x):
    y = x * 2
    if not torch._is_all_true(x > 0):
        raise ValueError(f"not positive: {x.sum().item():.1f}")
    return y + 1


def several(x):
    if (x > 10).any() or x.isnan().any():
        raise KeyError("too large")
    assert x.mean() < 8, "mean"
    with torch.no_grad():
        if x.min() == 5:
            raise RuntimeError("five")
    return x.exp()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (positive, [1.0, 2.0], [[-1.0, 2.0]]),
        (several, [1.0, 2.0], [[1.0, 11.0], [1.0, float("nan")], [9.0, 9.0], [5.0, 6.0]]),
    ],
)
def test_one_graph_and_eagers_errors(fresh, function, good, bad, grad):
    fast = check(function, torch.tensor(good, requires_grad=grad), graphs=1, breaks=0)
    for values in bad:
        x = torch.tensor(values, requires_grad=grad)
        with pytest.raises(Exception) as theirs:  # whatever eager raises
            function(x)
        with pytest.raises(type(theirs.value)) as ours:
            fast(x)
        assert str(ours.value) == str(theirs.value)
    assert dyncomp.stats().graph_breaks == 0


def test_what_came_before_the_error_is_as_in_eager(fresh):
    def function(x, written, seen):
        seen.append("before")
        written.add_(torch.rand(2))
        if (x < 0).any():
            raise ValueError("negative")
        seen.append("after")
        return x + written

    check(function, torch.ones(2), torch.zeros(2), [], graphs=1)
    check(function, -torch.ones(2), torch.zeros(2), [], graphs=1)


@pytest.mark.parametrize("backend", ["codegen", "eager", "aot_eager"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nothing_is_written_twice(fresh, backend, grad, sign):
    def function(x, mean, var, count):
        count += 1
        y = torch.nn.functional.batch_norm(x, mean, var, training=True)
        if (x.sum(0) < 0).any():
            raise ValueError(f"{x.shape[0]} rows")
        return y * 2

    x = sign * torch.arange(6.0).view(3, 2) + 1
    arguments = x.requires_grad_(grad), torch.zeros(2), torch.ones(2), torch.zeros(())
    check(function, *arguments, graphs=None, breaks=None, backend=backend)


@pytest.mark.parametrize("backend", ["codegen", "eager"])
def test_statistics_alone(fresh, backend):
    def function(x, mean, var):
        y = torch.nn.functional.batch_norm(x, mean, var, training=True)
        assert (x.sum(0) > 0).all()
        return y * 2

    x = (torch.arange(6.0).view(3, 2) - 9).requires_grad_()
    check(function, x, torch.zeros(2), torch.ones(2), graphs=None, breaks=None, backend=backend)


def test_gradients(fresh):
    def loss(x):
        if not (x > 0).all():
            raise ValueError
        return (x.log() * x).sum()

    x, z = (torch.tensor([0.5, 2.0], requires_grad=True) for _ in range(2))
    loss(x).backward()
    dyncomp.optimize(loss, fullgraph=True)(z).backward()
    assert torch.allclose(x.grad, z.grad)


def test_a_caught_error_breaks(fresh):
    def caught(x):
        try:
            if x.sum() > 0:
                raise ValueError
            return x - 1
        except ValueError:
            return x + 1

    check(caught, torch.ones(2), graphs=None, breaks=None)
    check(caught, -torch.ones(2), graphs=None, breaks=None)
    assert dyncomp.stats().break_reasons["data-dependent-branch"]


def test_both_sides_go_on(fresh):
    def loops(x):
        while x.sum() < 10:
            x = x + 1
        if x.sum() > 100:
            return x
        return x * 2

    check(loops, torch.ones(2), graphs=None, breaks=None)
    assert "data-dependent-branch" in dyncomp.stats().break_reasons


def test_a_program_that_raises_for_a_living_is_compiled_without_the_check(fresh):
    fast = dyncomp.optimize(positive)
    bad = torch.tensor([-1.0, 2.0])
    for _ in range(failed_checks._MOST + 3):
        with contextlib.suppress(ValueError):
            fast(bad)
    made = dyncomp.stats()
    assert made.fallbacks["graph-raised"] == failed_checks._MOST
    assert made.break_reasons["data-dependent-branch"] == 1
    assert fast(-bad + 3).tolist() == positive(-bad + 3).tolist()


def test_not_in_the_backward_of_a_custom_function(fresh):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            if (g > 5).any():
                raise ValueError("a large gradient")
            return g * 2

    fast = dyncomp.optimize(lambda x: Doubled.apply(x) + 1)
    x = torch.ones(2, requires_grad=True)
    fast(x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(ValueError, match="a large gradient"):
        fast(x).backward(torch.full((2,), 9.0))


@pytest.mark.parametrize("name", ["Normal", "Beta", "Gamma"])
def test_validation_of_distributions(fresh, name):
    cls = getattr(torch.distributions, name)

    def draw(a, b):
        made = cls(a, b)
        x = made.rsample((3,))
        return x, made.log_prob(x)

    fast = check(draw, torch.tensor([0.5, 1.0]), torch.tensor([1.0, 2.0]), graphs=None, breaks=None)
    assert "data-dependent-branch" not in dyncomp.stats().break_reasons
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        fast(torch.tensor([0.5, 1.0]), torch.tensor([-1.0, 2.0]))
