"""Tensors made from numbers that vary: no number is pinned, and what is read from them again is the number."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from dyncomp import config
from tests.support import assert_same, examples, outcome

BACKENDS = ["eager", "aot_eager", "codegen"]


def run(function, calls, compiles, breaks=0, backend="codegen", **options):
    """As eager in every call; `compiles`: how many frames may be compiled."""
    dyncomp.reset()
    fast = dyncomp.optimize(function, backend=backend, **{"dynamic": True, **options})
    with torch.no_grad(), config.patch(strict=True, verify_passes=True):
        for args in calls:
            want, want_error = outcome(function, args)
            got, got_error = outcome(fast, args)
            assert type(got_error) is type(want_error), f"{args}: raised {got_error!r} instead of {want_error!r}"
            assert_same(got, want, repr(args))
    made = dyncomp.stats()
    assert made.frames <= compiles, f"{made.frames} compiles instead of at most {compiles}"
    assert made.graph_breaks == breaks, made.break_reasons


def rows(*sizes):
    return [(torch.randn(size, 2),) for size in sizes]


def scaled(x):
    return x * torch.tensor(x.shape[0] * x.shape[1]), torch.tensor(x.shape[0]).sqrt() + x


def of_each_dtype(x):
    dtypes = "float64 float32 bfloat16 float16 int64 int32 int8 uint8 bool".split()
    return [torch.tensor(x.shape[0], dtype=getattr(torch, dtype)) for dtype in dtypes]


def lists(x):
    n, m = x.shape
    mixed = torch.tensor([n / 2, True, 3]), torch.tensor([n > 3, False])
    return torch.tensor(x.shape), torch.tensor([[n, 2], [m, -1]]), *mixed


def other_ways(x):
    n = x.shape[0]
    new = x.new_tensor(n), x.long().new_tensor([[n]])
    return torch.as_tensor(n), torch.as_tensor([n, 1.5]), *new, torch.tensor(data=n, device="cpu")


def window(x):
    half = torch.tensor(min(max(x.size(0), x.size(1)), 8))
    table = torch.arange(20)
    return table[10 - half : 10 + half] * half, table[half], torch.clamp(table - 10 + half, 0, half * 2 - 1)


def branches(x):
    n = torch.tensor(x.shape[0])
    y = x + 1 if n * 2 > 9 else x
    return y, int(n) + 1, float(n), n.item() // 2, n.tolist(), bool(n != 5), int(n > 4), float(n > 4), (n < 5).item()


def literals_beside(x):
    n = torch.tensor([x.shape[0], 2])
    return n[0] + n[1], torch.tensor([3, 4]).tolist(), x[: torch.tensor(2)], x[torch.tensor(1)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [scaled, of_each_dtype, lists, other_ways, window, literals_beside])
def test_one_version(program, backend):
    run(program, rows(5, 6, 7, 9, 100), compiles=1, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_branch_is_asked_about(backend):
    run(branches, rows(6, 7, 9, 100, 4, 3), compiles=2, backend=backend)


def test_default_policy():
    with config.patch(automatic_dynamic=True):
        run(window, rows(5, 6, 7, 9, 12), compiles=2, dynamic=None)


def test_what_follows_from_no_symbol_is_pinned():
    """The square root in float32 is known for this call's size alone."""

    def program(x):
        return (x if torch.tensor(x.shape[0]).sqrt() > 2 else -x), torch.tensor([x.shape[0], 2]).sum().item()

    run(program, rows(3, 5, 5, 7, 3), compiles=3)


def test_numbers_that_a_dtype_cannot_hold():
    run(lambda x: torch.tensor(x.shape[0] * 100, dtype=torch.int8), rows(3, 4), compiles=4, breaks=1)
    run(lambda x: torch.tensor(x.shape[0] * 40, dtype=torch.uint8), rows(3, 4, 6), compiles=1)
    run(lambda x: torch.tensor(x.shape[0] * 10**4, dtype=torch.float16), rows(3, 5, 6, 7, 9), compiles=9)
    run(lambda x, n: torch.tensor(n * 2.0), [(torch.ones(2), n) for n in (3, 5, 10**300, 7)], compiles=2)


def test_a_written_literal_is_not_known():
    def program(x):
        n = torch.tensor(x.shape[0])
        n += 1
        return x + n, n

    run(program, rows(3, 4, 5), compiles=1)


def test_whole_numbers_wrap_around():
    def program(x, n):
        big = torch.tensor(n) * 2**62
        return big, big * 2 - big - big + 7

    run(program, [(torch.ones(2), n) for n in (3, 4, 5, -7)], compiles=1)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("+-*<=m"), st.integers(-3, 5)), min_size=1, max_size=5),
    st.lists(st.integers(2, 40), min_size=2, max_size=4),
)
def test_arithmetic(steps, sizes):
    def program(x):
        n = torch.tensor(x.shape[0])
        found = []
        for op, k in steps:
            if op == "+":
                n = n + k
            elif op == "-":
                n = k - n
            elif op == "*":
                n = n * k
            elif op == "m":
                n = torch.minimum(n, torch.tensor(k * 5))
            else:
                found.append(n < k if op == "<" else n == k)
        return n, n.item(), [bool(b) for b in found], torch.arange(6)[n:]

    run(program, [(torch.ones(size),) for size in sizes], compiles=10)
