"""Ints that the graph computes have 64 bits: what leaves them gets eager's answer or eager's error, never a wrapped number."""

import pytest
import torch

import dyncomp


def squared_int(x, n):
    return x + n * n


def scaled_by_size(x, y):
    return x * y.size(0) ** 20


def minus_product(x, n):
    return x * 0.5 - n * 3 * n


def back_within(x, n):
    return x + (n * n) // n


def outcome(call, *args):
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001 - whatever eager raises
        return type(error), str(error)


BACKENDS = ["eager", "aot_eager", "default"]


def optimized(function, backend, **options):
    return dyncomp.optimize(function, **({} if backend == "default" else {"backend": backend}), **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [squared_int, minus_product, back_within])
def test_ints_that_grow(function, backend):
    fast, x = optimized(function, backend, dynamic=True), torch.arange(4.0)
    for n in (3, 5, 2**20, 2**31, 2**32, -(2**40), 7):
        expected, got = outcome(function, x, n), outcome(fast, x, n)
        if isinstance(expected, tuple):
            assert got == expected
        else:
            torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_powers_of_a_size(backend):
    fast, x = optimized(scaled_by_size, backend, dynamic=True), torch.arange(4.0)
    for n in (3, 5, 8, 9, 20, 4):
        expected, got = outcome(scaled_by_size, x, torch.ones(n)), outcome(fast, x, torch.ones(n))
        if isinstance(expected, tuple):
            assert got == expected
        else:
            torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_within_the_bounds_one_graph_serves_all():
    fast, x = optimized(squared_int, "eager", dynamic=True), torch.arange(4.0)
    fast(x, 3)
    before = dyncomp.counters.stats().graphs
    for n in (5, 2**20, 2**31):
        fast(x, n)
    assert dyncomp.counters.stats().graphs == before


def test_a_number_from_the_running_graph_raises():
    """It is met while the graph runs, so nothing can be traced again; eager raises an OverflowError too."""

    def function(x, k):
        n = k.item()
        return x * (n * n)

    fast, x = dyncomp.optimize(function, options={"capture_scalar_outputs": True}), torch.arange(4.0)
    torch.testing.assert_close(fast(x, torch.tensor(5)), function(x, torch.tensor(5)))
    for n in (2**32, -(2**40)):
        for call in (function, fast):
            with pytest.raises(OverflowError):
                call(x, torch.tensor(n))
