"""Products of sizes that leave 64 bits: in Python they are ints like all others, eager's operations do not take them, and
tensors that share memory among their elements can have more of them than eager counts."""

import pytest
import torch

import dyncomp

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])


def told(function, *args):
    try:
        return function(*args)
    except (RuntimeError, OverflowError) as error:
        return f"{type(error).__name__}: {error}"


def four_times(x, row):
    n = row.size(0)
    return row[0].expand(n, n, n, n).numel(), x + n


def step_by_step(x, row):
    n = row.size(0)
    square = row[:, None].expand(n, n)
    cube = square[:, :, None].expand(-1, -1, n)
    return cube.unsqueeze(0).expand(2 * n, -1, -1, -1).shape.numel() // n, x * 2


def overlapping(x, row):
    n = row.size(0)
    return torch.as_strided(row, (n, n, n, n), (1, 0, 0, 0)).numel(), x - 1


def mixed(x, row):
    n = row.size(0)
    return x.sum() + row[:2].expand(3 * n, n, n, n, 2).numel()


@BACKENDS
@pytest.mark.parametrize("program", [four_times, step_by_step, overlapping, mixed])
def test_counts_beyond_64_bits(program, backend):
    fast = dyncomp.optimize(program, dynamic=True, backend=backend)
    answers = []
    for n in (5, 7, 40_000, 65_536, 90_001, 55_109, 3, 70_000):
        args = (torch.arange(3), torch.arange(n))
        want = told(program, *args)
        assert told(fast, *args) == want if isinstance(want, str) else str(told(fast, *args)) == str(want)
        answers.append(isinstance(want, str))
    assert set(answers) == {True, False}


def test_one_program_for_the_sizes_that_fit():
    fast = dyncomp.optimize(four_times, dynamic=True, backend="eager")
    before = dyncomp.stats().graphs
    for n in (5, 7, 90, 1000, 40_000):
        assert fast(torch.arange(3), torch.arange(n))[0] == n**4
    assert dyncomp.stats().graphs - before == 1


def scaled(x, a, b, c, d):
    return x * (a.size(0) * b.size(0) * c.size(0) * d.size(0))


def volume(x, a, b, c, d):
    return x.double() + a.size(0) * b.size(0) * c.size(0), d.size(0) - 1


def answered(x, a, b, c, d):
    return a.size(0) * (b.size(0) + c.size(0)) * d.size(0) * c.size(0), x + 1


def shifted(x, a, b, c, d):
    return x + (a.size(0) * b.size(0) * c.size(0) - 2**60) // d.size(0)


@BACKENDS
@pytest.mark.parametrize("program", [scaled, volume, answered, shifted])
def test_products_of_different_sizes(program, backend):
    """Kernels compute with what they are given in 64 bits."""
    fast = dyncomp.optimize(program, dynamic=True, backend=backend)
    answers = []
    for n in (5, 9, 70_000, 3_000_000, 12, 40_000, 2_097_151):
        args = (torch.arange(3), *[torch.empty(n + 3 * i, dtype=torch.int8) for i in range(4)])
        want = told(program, *args)
        assert str(told(fast, *args)) == str(want), n
        answers.append(isinstance(want, str))
    assert answers[0] is answers[4] is False
