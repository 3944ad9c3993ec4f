"""Gradients through graphs whose inputs or outputs are numbers that vary: one compile, values and gradients as in eager."""

import pytest
import torch

import dyncomp

BACKENDS = ["codegen", "aot_eager"]


def scaled(x, w, n, s):
    return (x * n + w) * s


def keeps_numbers_for_the_backward(x, w, n, s):
    return (x.sin() * w) * s + (x * w).exp() * (s * n)


def returns_numbers(x, w, n, s):
    return n * 2, x * w, n + x.shape[0], s * 0.5, n


def by_size(x, w, n, s):
    return (x * w).sum() / (x.shape[0] + n), x.shape[0] * n


def number_into_a_shape(x, w, n, s):
    return x.unsqueeze(0).expand(n, -1, -1).sin() * w, n


def compare(fn, calls, backend, **options):
    fast = dyncomp.optimize(fn, backend=backend, fullgraph=True, dynamic=True, **options)
    for rows, n, s in calls:
        got, expected = [], []
        for call, results in ((fast, got), (fn, expected)):
            generator = torch.Generator().manual_seed(rows)
            x = torch.randn(rows, 3, generator=generator, requires_grad=True)
            w = torch.randn(3, generator=generator, requires_grad=True)
            given = call(x, w, n, s)
            given = given if isinstance(given, tuple) else (given,)
            loss = sum(one.sum() for one in given if isinstance(one, torch.Tensor))
            loss.backward()
            results += [*given, x.grad, w.grad]
        assert [type(one) for one in got] == [type(one) for one in expected]
        for one, other in zip(got, expected, strict=True):
            if isinstance(other, torch.Tensor):
                torch.testing.assert_close(one, other, equal_nan=True)
                assert other.requires_grad == one.requires_grad and one.stride() == other.stride()
            else:
                assert one == other


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [scaled, keeps_numbers_for_the_backward, returns_numbers, by_size, number_into_a_shape])
def test_one_graph_for_all_numbers(fresh, fn, backend):
    compare(fn, [(4, 11, 0.5), (5, 14, 1.5), (7, 9, -2.25), (6, 5, 3.0)], backend)
    stats = dyncomp.stats()
    assert all(name.startswith("symbolic-sizes") for name in stats.fallbacks)  # an operation of ATen inside the plan
    assert stats.graphs <= 2  # the first call with a negative number may be one more


def test_a_backward_that_runs_again_gets_the_numbers(fresh):
    """Gradients of gradients: the torch-level graph runs once more, on the numbers of the call."""

    def fn(x, n, s):
        return (x.sin() * s).exp().sum() * n

    fast = dyncomp.optimize(fn, fullgraph=True, dynamic=True)
    for n, s in ((2, 0.5), (3, 1.25), (4, 2.5)):
        results = []
        for call in (fast, fn):
            x = torch.linspace(0.1, 1, 5).requires_grad_()
            (g,) = torch.autograd.grad(call(x, n, s), x, create_graph=True)
            results.append((g, *torch.autograd.grad(g.sum(), x)))
        torch.testing.assert_close(results[0], results[1])
    assert "double-backward-eager" in dyncomp.stats().fallbacks
    assert "training-graph-eager" not in dyncomp.stats().fallbacks


@pytest.mark.parametrize("exponent", [2, 3, 0.5, 1.5])
def test_an_exponent_that_varies(fresh, exponent):
    """Torch's formula for the gradient of a power compares the exponent with numbers; some it cannot compare."""
    fast = dyncomp.optimize(lambda x, n: (x**n).sum(), dynamic=True)
    for n in (exponent, exponent + 1, 0):
        results = []
        for call in (fast, lambda x, n: (x**n).sum()):
            x = torch.linspace(0.5, 2, 4).requires_grad_()
            y = call(x, n)
            y.backward()
            results.append((y, x.grad))
        torch.testing.assert_close(results[0], results[1])


def test_without_a_gradient(fresh):
    """The plan was made for a call with gradients; the next one has none."""
    fast = dyncomp.optimize(returns_numbers, fullgraph=True, dynamic=True)
    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(3)
    fast(x, w, 2, 0.5)
    with torch.no_grad():
        got, expected = fast(x, w, 3, 1.5), returns_numbers(x, w, 3, 1.5)
    torch.testing.assert_close(got, expected)
