"""How many versions programs with changing sizes and numbers need: eager's answer at every call, and no version more than necessary."""

import math

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from tests.support import assert_same, clone_inputs, outcome


def rows(*sizes):
    return [(torch.randn(n, 4),) for n in sizes]


def with_int(*pairs):
    return [(torch.randn(n, 4), a) for n, a in pairs]


def numbers(*values):
    return [(torch.ones(3), v) for v in values]


def up_to(x, a):
    return x[:a] * 2, x[:a] + x[:a].sin()


def written_up_to(x, a):
    y = x.clone()
    y[:a] += 1
    x[:a] *= 2
    return y


def padded_or_cut(x):
    return F.pad(x, (0, 0, 0, 5 - x.shape[0]))


def pieces(x, n):
    return [piece.sum() for piece in x.split(n)]


def patches(x):
    return x.unfold(0, 4, 4).permute(0, 2, 1).reshape(-1, 4) + 1


def annealed(x, step):
    return (
        x * math.exp(-step / 10), x * math.log(step + 1), x * math.log1p(step), x * math.expm1(step / 9), x * math.pow(0.9, step),
        x * math.erf(step), x * math.log(step + 2, 3), x * math.degrees(step), x * math.radians(step), x * math.fabs(-step),
        x * math.log10(step + 1), x * math.asinh(step), x * math.cos(math.pi * step / 20),
    )  # fmt: skip


def warmed_up(x, step):
    return x * min(1.0, step / 4), max(0.5, step / 8), min(step / 3, 2.0, 1.5)


def by_sizes(x):
    return x.permute(*sorted(range(3), key=lambda d: x.shape[d]))


def any_rank(x):
    return F.layer_norm(x, (4,)).relu() * x.shape[-1]


def window(cache, new):
    return torch.cat([cache, new], 1)[:, -5:]


def scaled(x, by):
    return x * by + by / 2


def zeroed_from(x, a):
    y = x.clone()
    y[a:] = 0
    return y


def written_between(x, a, b):
    y = x.clone()
    y[a:b] = x[0]
    x[a:b] = 2.5
    return y


def of_a_slice(x, part):
    return x[part] * 2, part, x[:, part.start :].sum()


def up_to_a_range(x, numbers):
    return [x * i for i in numbers]


def first_and_last(x):
    y = x.clone()
    y[[1, x.shape[0] - 2]] = 0
    return x[[0, x.shape[0] - 1]], y


def methods_of_numbers(x):
    n = x.shape[0]
    whole = (n / 2).__mul__(2)
    return x * ~n, x * n.__add__(1), x * n.conjugate(), x * math.prod([n, 3]), x * x.shape.numel(), whole


def is_whole(x, k):
    return x + 1 if (k / 2).is_integer() else x - 1


def slices(*bounds):
    return [(torch.randn(8, 4), slice(*each)) for each in bounds]


def caches(*sizes):
    return [(torch.randn(2, n, 4), torch.randn(2, m, 4)) for n, m in sizes]


CUBES = [(torch.randn(s),) for s in ((2, 3, 4), (3, 4, 5), (4, 5, 6), (4, 3, 2), (5, 4, 3))]
RANKS = [(torch.randn(s),) for s in ((3, 4), (5, 4), (2, 3, 4), (5, 6, 4), (3, 2, 4), (2, 3, 5, 4), (3, 2, 2, 4))]
SLICES = with_int((6, 3), (7, 2), (8, 8), (5, 1), (5, 0), (9, 4))
STEPS = numbers(*range(9))
TABLE = [  # function, calls, versions by default, versions with dynamic=True
    (up_to, SLICES, 2, 1),
    (written_up_to, SLICES, 2, 1),
    (padded_or_cut, rows(3, 4, 5, 6, 9, 2), 2, 1),
    (pieces, with_int((6, 3), (5, 3), (8, 4), (7, 5), (9, 5)), 3, 1),
    (patches, rows(8, 12, 9, 15, 16, 18), 2, 1),
    (annealed, STEPS, 2, 1),
    (annealed, numbers(*[0.3 * k for k in range(9)]), 2, 1),
    (warmed_up, STEPS, 2, 1),
    (by_sizes, CUBES, 3, 2),
    (any_rank, RANKS, 4, 3),
    (window, caches((3, 3), (4, 3), (5, 2), (4, 4), (2, 6)), 3, 1),
    (zeroed_from, with_int((6, 3), (6, 4), (7, 5), (6, 2), (5, 5), (6, 6), (9, 8)), 3, 1),
    (written_between, [(torch.randn(9, 4), a, b) for a, b in ((1, 3), (2, 4), (0, 5), (3, 8), (5, 7))], 2, 1),
    (of_a_slice, slices((0, 2), (1, 3), (2, 4), (0, 5), (3, 7)), 2, 1),
    (up_to_a_range, [(torch.ones(2), range(n)) for n in (2, 2, 3, 2, 3)], 2, 2),
    (first_and_last, rows(6, 7, 8, 5, 9, 3), 2, 1),
    (methods_of_numbers, rows(6, 7, 8, 5, 9, 3), 2, 1),
    (is_whole, numbers(2, 4, 6, 3, 5, 7), 3, 2),
    (scaled, numbers(0.5, 0.25, 1.0, -3.5), 2, 1),
    (scaled, numbers(1, 0, 5, 2), 2, 1),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].__name__)
def test_versions(row, dynamic):
    function, calls, by_default, at_once = row
    dyncomp.reset()
    fast = dyncomp.optimize(function, backend="aot_eager", dynamic=dynamic, fullgraph=True)
    with torch.no_grad(), config.patch(strict=True, automatic_dynamic=True):
        for args in calls:
            ours, theirs = clone_inputs(args), clone_inputs(args)
            assert_same(fast(*ours), function(*theirs))
            assert_same(ours, theirs, "inputs")
    assert dyncomp.stats().graphs == (by_default if dynamic is None else at_once)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize(
    "function, values",
    [
        (lambda x, s: x * math.log(s), [1.0, 2.0, 0.0, -1.0, 3.0]),
        (lambda x, s: x * math.exp(s), [1.0, 2.0, 1000.0, -1000.0, 3.0]),
        (lambda x, s: x * math.log(s, 2), [1, 2, 4, 0, 3, -1]),
        (lambda x, s: x * math.pow(0.0, s), [1, 2, -1, 0, 3]),
        (lambda x, s: x * math.log(5.0, s), [2.0, 3.0, 1.0, 10.0]),
        (lambda x, s: x * math.acosh(s), [2.0, 3.0, 1.0, 0.5]),
        (lambda x, s: x * math.log(s), [2, 3, 10**30, 4]),
    ],
)
def test_errors_of_math_functions(function, values, backend):
    fast = dyncomp.optimize(function, backend=backend, recompile_limit=64)
    with torch.no_grad():
        for value in values:
            want, want_error = outcome(function, (torch.ones(3), value))
            got, got_error = outcome(fast, (torch.ones(3), value))
            assert (type(got_error), str(got_error)) == (type(want_error), str(want_error)), value
            assert_same(got, want, f"{value}")


def test_slices_that_are_one_object():
    def f(x, a, b):
        return x[a] + 1 if a is b else x[b] - 1

    fast = dyncomp.optimize(f, backend="eager")
    one, other, x = slice(0, 2), slice(0, 2), torch.ones(3)
    for pair in ((one, one), (one, other), (other, one), (other, other), (one, slice(1, 3)), (one, one)):
        assert_same(fast(x, *pair), f(x, *pair))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_extremes_of_floats_are_pythons(backend):
    def f(x, s):
        return x * min(1.0, s), max(s, 0.0), min(s, -0.0), max(s, 0.5, 0.25), min([s, 2.0]), max(0.0, s), min(0.0, s)

    fast = dyncomp.optimize(f, backend=backend)
    with torch.no_grad():
        for value in (0.5, 0.7, -0.0, 0.0, math.nan, math.inf, 2.0):
            (x, *want), (y, *got) = f(torch.ones(2), value), fast(torch.ones(2), value)
            assert_same(y, x)
            assert list(map(str, got)) == list(map(str, want)), value  # by text, for signs of zeros


def test_sorting_asks_what_python_asks():
    class Item:
        def __init__(self, rank):
            self.rank = rank

        def __lt__(self, other):
            asked.append((self.rank, other.rank))
            return self.rank < other.rank

    def f(x):
        return x + 1, [item.rank for item in sorted(Item(n) for n in (3, 1, 2, 1))]

    asked = []
    want = f(torch.ones(2))
    asked, in_eager = [], asked
    assert_same(dyncomp.optimize(f, backend="eager")(torch.ones(2)), want)
    assert asked == in_eager
