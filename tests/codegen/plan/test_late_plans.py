"""Plans with kernels in graphs whose sizes only the running graph gives: what is read late, computed late, and freed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from dyncomp import config
from dyncomp.codegen import compile as compiling
from tests.support import assert_same, outcome

CAPTURE = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True, "strict": True, "verify_passes": True}
F = torch.nn.functional


def rows(counts, width=5):
    """Tensors of which the first column is positive in so many rows, spread out."""
    made = []
    for n, count in enumerate(counts):
        x = torch.randn(12, width, generator=torch.Generator().manual_seed(n))
        x[:, 0] = -x[:, 0].abs() - 0.1
        x[torch.randperm(12, generator=torch.Generator().manual_seed(n))[:count], 0] = 1.5
        made.append((x,))
    return made


def check(function, calls, dynamic=False):
    """As eager in every call, in one graph without a fallback; the statistics."""
    dyncomp.reset()
    fast = dyncomp.optimize(function, dynamic=dynamic)
    with torch.no_grad(), config.patch(**CAPTURE):
        for args in calls:
            ours, theirs = [a.clone() for a in args], [a.clone() for a in args]
            assert_same(fast(*ours), function(*theirs))
            assert_same(ours, theirs, "inputs")
    stats = dyncomp.stats()
    assert (stats.graphs, stats.graph_breaks) == (1, 0), stats
    assert not [name for name in stats.fallbacks if name != "graph-raised"], stats.fallbacks
    return stats


@pytest.fixture
def plans(monkeypatch):
    """The plans that are made."""
    made = []

    def make(*args):
        made.append(make_plan(*args))
        return made[-1]

    make_plan = compiling.make_plan
    monkeypatch.setattr(compiling, "make_plan", make)
    return made


def normalised(x):
    chosen = x[x[:, 0] > 0]
    scaled = F.layer_norm(chosen * 2, (5,))
    return F.gelu(scaled) + chosen, scaled.sum(-1), scaled.sum()


def stacked(x):
    chosen = torch.cat([x[x[:, 0] > 0], x.neg()])
    return (chosen @ chosen.t()).softmax(-1).sum(0, keepdim=True)


def twice(x):
    first = (x * 2)[x[:, 0] > 0]
    count = (first > 0.5).sum().item()
    torch._check(count >= 0)
    return first.exp() * count, torch.arange(count) * 3 + 1


def written(x):
    found = (x[:, 0] > 0).nonzero()[:, 0]
    x.mul_(found.sum() + 1.0)
    return (found.float() + 1).sqrt().cos() * 2


def floats(x):
    mean = x.mean().item()
    return (x - mean).relu() * mean, torch.full((3,), mean) + x[:3, 1]


@pytest.mark.parametrize("function", [normalised, stacked, twice, written, floats])
@pytest.mark.parametrize("dynamic", [False, True])
def test_one_plan_for_all_numbers(fresh, function, dynamic):
    stats = check(function, rows([4, 0, 1, 12, 7]), dynamic)
    assert stats.kernels


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=2, max_size=6), st.integers(2, 20))
def test_any_number_of_rows(counts, width):
    def function(x):
        chosen = x[x[:, 0] > 0]
        moved = (chosen - chosen.new_full((1,), 0.25)).abs()
        return moved.sum(1) * 2, moved.t() + 1, (moved[:, :1] + x[0]).tanh(), moved.sum(0)

    check(function, rows(counts, width))


def test_kernels_stand_behind_the_read_of_their_sizes(fresh, plans):
    check(normalised, rows([4, 3]))
    (plan,) = plans
    names = [instruction[0] for instruction in plan.code]
    (read,) = [n for n, instruction in enumerate(plan.code) if instruction[0] == "size"]
    register = plan.code[read][1]
    assert names.index("op") < read < names.index("expect")
    users = [n for n, i in enumerate(plan.code) if i[0] in ("kernel", "alloc") and repr(("s", register)) in repr(i)]
    assert users and min(users) > read


def test_memory_of_late_sizes_is_freed_after_its_last_use(fresh, plans):
    def function(x):
        chosen = x[x[:, 0] > 0]
        return ((chosen + 1) @ x.t()).sigmoid() @ x

    check(function, rows([4, 2, 0]))
    (plan,) = plans
    allocated = {i[1] for i in plan.code if i[0] == "alloc"}
    freed = {i[1] for i in plan.code if i[0] == "free"}
    shown = {slot for kind, slot in plan.outputs if kind == "slot"}
    until_the_end = set(plan.code[-1][1:])
    assert freed and allocated - shown - until_the_end <= freed


def test_what_comes_after_a_check_runs_after_it(fresh, plans):
    def function(x, n):
        doubled = x * 2
        k = n.item()
        torch._check(0 <= k, lambda: "not below 0")
        torch._check(k <= x.shape[0], lambda: "as many as there are")
        return doubled.cos(), x[:k].exp()

    calls = [(torch.randn(6, 3), torch.tensor(n)) for n in (4, 0, 6, 7, 1)]
    fast = dyncomp.optimize(function)
    with torch.no_grad(), config.patch(**CAPTURE):
        for args in calls:
            (got, error), (want, expected) = outcome(fast, args), outcome(function, args)
            assert (type(error), str(error)) == (type(expected), str(expected))
            assert_same(got, want)
    (plan,) = plans
    last_kernel = max(n for n, i in enumerate(plan.code) if i[0] == "kernel")
    assert max(checks_of(plan)) < last_kernel


def checks_of(plan):
    return [n for n, i in enumerate(plan.code) if i[0] == "op" and plan.ops[i[1]][0] == "aten::_assert_scalar"]


def test_checks_come_before_all_that_takes_them_for_granted(fresh, plans):
    """The number is known to be 4 in the whole graph, so no kernel may read four rows before it was found to be."""

    def function(x, n):
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0], lambda: "as many as there are")
        first = x[:k].exp()
        torch._check(k == 4, lambda: "four of them")
        return first.sum(0), x.cos()

    fast = dyncomp.optimize(function, dynamic=True)
    with torch.no_grad(), config.patch(**CAPTURE):
        for rows_, number in ((6, 4), (9, 4), (3, 3), (3, 4), (4, 4), (5, 2)):
            args = (torch.randn(rows_, 700), torch.tensor(number))
            (got, error), (want, expected) = outcome(fast, args), outcome(function, args)
            assert (type(error), str(error)) == (type(expected), str(expected))
            assert_same(got, want)
    (plan,) = plans
    first_kernel = min(n for n, i in enumerate(plan.code) if i[0] == "kernel" and n > checks_of(plan)[0])
    assert max(checks_of(plan)) < first_kernel
