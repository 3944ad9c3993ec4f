"""Numbers that vary at the ends of what they may be: zeros of both signs, nan, infinities, beyond a tensor's type; few compiles."""

import math

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from tests.support import assert_same, outcome

X = torch.arange(-8.0, 16).view(4, 6) / 3
INTS = (2, 3, 0, 1, -1, 300, -500, 2**40)
FLOATS = (0.5, 1.5, 0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1e6, 1e39)


@pytest.fixture(autouse=True)
def fresh_start(fresh):
    yield


def compiles(function, values, **options):
    """How many times it was compiled; results and errors are eager's at every value."""
    fast = dyncomp.optimize(function, recompile_limit=64, **options)
    before = dyncomp.stats().frames
    with config.patch(strict=True):
        for value in (*values, *values[:2]):
            (got, error), (want, want_error) = outcome(fast, (X, value)), outcome(function, (X, value))
            assert (type(error), str(error)) == (type(want_error), str(want_error)), value
            assert_same(got, want)
    return dyncomp.stats().frames - before


def test_minus_zero_is_false():
    assert compiles(lambda x, n: x * 2 if n else x * 3, (0.5, 1.5, 0.0, -0.0, math.nan), dynamic=True) == 2
    assert compiles(lambda x, n: (x * 2, not n, bool(n)), (0.5, 1.5, -0.0, 0.0), dynamic=True) == 2
    assert compiles(lambda x, n: x * (n or 7), (0.5, 1.5, -0.0, 0.0), dynamic=True) == 2


RAISING = [
    lambda x, n: x.half().clamp(-n, n),
    lambda x, n: x.clamp(max=n),
    lambda x, n: x.half().fill_(n),
    lambda x, n: torch.full((3,), n, dtype=torch.half),
    lambda x, n: x.half().masked_fill(x > 0, n),
    lambda x, n: torch.add(x.half(), x.half(), alpha=n),
    lambda x, n: F.threshold(x.half(), 0.0, n),
    lambda x, n: F.leaky_relu(x, n),
    lambda x, n: F.pad(x.half(), (1, 1), value=n),
]
WRAPPING = [
    lambda x, n: x.half() * n,
    lambda x, n: torch.where(x > 0, x.half(), n),
    lambda x, n: x.bfloat16() + n,
    lambda x, n: x.int() * n,
    lambda x, n: (x < n, x.half() == n),
]


@pytest.mark.parametrize("number", range(len(RAISING)))
def test_floats_beyond_a_type_raise_as_in_eager(number):
    compiles(RAISING[number], FLOATS, dynamic=True)


@pytest.mark.parametrize("number", range(len(RAISING)))
def test_nan_and_infinities_need_no_version_of_their_own(number):
    assert compiles(RAISING[number], (0.5, 1.5, math.nan, math.inf, 2.5), dynamic=True) == 1


@pytest.mark.parametrize("number", range(len(WRAPPING)))
def test_floats_that_eager_converts_are_compiled_once(number):
    assert compiles(WRAPPING[number], FLOATS, dynamic=True) == 1


@pytest.mark.parametrize("program", [
    lambda x, n: torch.full((3,), n, dtype=torch.int8), lambda x, n: x.to(torch.int8).clamp(-n, n),
    lambda x, n: x.abs().to(torch.uint8).clamp(n), lambda x, n: x.to(torch.int8).index_fill(0, torch.tensor([0]), n),
])  # fmt: skip
def test_ints_beyond_a_type_raise_as_in_eager(program):
    compiles(program, INTS, dynamic=True)


@pytest.mark.parametrize("program", [lambda x, n: x.to(torch.int8) * n, lambda x, n: x.int() + n, lambda x, n: x.to(torch.int8) < n])
def test_ints_that_eager_wraps_are_compiled_once(program):
    assert compiles(program, INTS, dynamic=True) == 1


def test_sizes_beyond_a_type_raise_as_in_eager():
    def program(x):
        return x.to(torch.int8).clamp(max=x.shape[0])

    fast = dyncomp.optimize(program, dynamic=True)
    for size in (3, 100, 127, 128, 300, 5):
        x = torch.ones(size)
        (got, error), (want, want_error) = outcome(fast, (x,)), outcome(program, (x,))
        assert (type(error), str(error)) == (type(want_error), str(want_error)), size
        assert_same(got, want)


def test_common_divisors():
    assert compiles(lambda x, n: x * math.gcd(n, 12) + math.gcd(7, n), (1, 2, 9, 4, 0, -8, 24, 49), dynamic=True) == 1
    assert compiles(lambda x, n: x * math.gcd(n, 0), (1, 2, -9, 0), dynamic=True) == 1
    assert compiles(lambda x, n: x * math.lcm(n, 6), (1, 2, 9, 4, -8), dynamic=True) == 1
    compiles(lambda x, n: x * math.gcd(n, n + 2), (1, 2, 9), dynamic=True)
    compiles(lambda x, n: x * math.gcd(n, 3), (1.0, 2.0), dynamic=True)


def test_whole_roots():
    assert compiles(lambda x, n: x * math.isqrt(n), (1, 2, 3, 4, 0, 99, 100, 2**40 - 1, 2**52 - 1), dynamic=True) == 1
    compiles(lambda x, n: x * math.isqrt(n), (1, 2**60 + 1, -1), dynamic=True)
    compiles(lambda x, n: x * math.isqrt(n), (1.0, 2.0), dynamic=True)


def test_hashes():
    assert compiles(lambda x, n: (x * 2, hash(n), hash(n) % 7), (1, 2, 3, 0, 2**40), dynamic=True) == 1
    compiles(lambda x, n: (x * 2, hash(n)), (1, -1, -2, 2**61 - 1, 2**61), dynamic=True)
    compiles(lambda x, n: (x * 2, hash(n)), (1.0, 2.5, math.inf), dynamic=True)
