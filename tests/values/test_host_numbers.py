"""Branches on numbers that lie in memory when the call begins: one graph for each way they go, guarded by the numbers."""

import pytest
import torch
from torch import nn

import dyncomp
from tests.support import assert_same


def graphs_of(make, calls=8, **options):
    """Runs `make() -> (step, seen)` plain and compiled; the same results; how many graphs, and breaks."""
    (step, seen), (other, other_seen) = make(), make()
    fast = dyncomp.optimize(other, **options)
    x = torch.randn(3)
    for _ in range(calls):
        assert_same(fast(x.clone()), step(x.clone()))
    assert_same(other_seen(), seen())
    stats = dyncomp.stats()
    return stats.graphs, stats.graph_breaks


class Counting(nn.Module):
    def __init__(self, start=0, dtype=torch.int64):
        super().__init__()
        self.register_buffer("count", torch.tensor(start, dtype=dtype))

    def forward(self, x):
        self.count += 1
        if self.count > 3:
            x = x * 2
        return torch.where(self.count == 5, x + 1, x)


@pytest.mark.parametrize("backend", ["codegen", "aot_eager", "eager"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
def test_a_counter_of_a_module(fresh, dtype, backend):
    def make():
        module = Counting(dtype=dtype)
        return module, lambda: module.count

    assert graphs_of(make, backend=backend) == (2, 0)


def test_each_comparison(fresh):
    def make():
        module = nn.Module()
        module.register_buffer("n", torch.tensor(0))
        module.register_buffer("f", torch.tensor(0.25))

        def step(x):
            n, f = module.n, module.f
            bits = [bool(n == 2), bool(n != 2), bool(n < 3), bool(n <= 3)]
            bits += [bool(n > 1), bool(n >= 1), bool((n + 1) - 2 > 0)]
            bits += [bool(f > 0.75), bool(f == 0.5), bool(f)]
            module.n.add_(1)
            module.f.mul_(2)
            return bits, x + 1

        return step, lambda: [module.n, module.f]

    graphs, breaks = graphs_of(make, calls=5)
    assert breaks == 0
    assert graphs <= 6


def test_numbers_that_float32_rounds(fresh):
    """In float32 2**24 + 1 is 2**24, and 0.1 is another number than Python's."""

    def make():
        held = nn.Module()
        held.a, held.b = torch.tensor(2.0**24), torch.tensor(0.1)

        def step(x):
            more = held.a + 1
            return (x * 2 if more > 2**24 else x), (x * 3 if held.b == 0.1 else x)

        return step, lambda: [held.a, held.b]

    graphs_of(make, calls=2)


def test_memory_that_others_see(fresh):
    """What is written through one tensor changes another: no guard on the number at the start would tell."""

    def make():
        module = nn.Module()
        module.register_buffer("n", torch.tensor(0))
        alias = module.n.detach()

        def step(x):
            alias.add_(1)
            return x * 2 if module.n > 2 else x

        return step, lambda: [module.n]

    graphs_of(make, calls=5)


def test_an_alias_that_comes_later(fresh):
    module, other = nn.Module(), nn.Module()
    for one in (module, other):
        one.register_buffer("n", torch.tensor(0))
    held = {module: torch.tensor(0), other: torch.tensor(0)}

    def step(m, x):
        held[m].add_(1)
        return x * 2 if m.n > 2 else x

    fast, x = dyncomp.optimize(step), torch.ones(2)
    for i in range(8):
        if i == 2:
            for one in (module, other):
                held[one] = one.n.detach()
        assert_same(fast(other, x), step(module, x))


def test_writes_that_are_not_followed(fresh):
    def make():
        module = nn.Module()
        module.register_buffer("n", torch.tensor(1.0))

        def step(x):
            module.n.data.mul_(2)
            first = x * 2 if module.n > 3 else x
            module.n.copy_(x.sum() * 0 + 1)
            return first, x * 3 if module.n > 3 else x

        return step, lambda: [module.n]

    graphs_of(make, calls=4)


def test_arguments_break_the_graph(fresh):
    def step(x, n):
        return x * 2 if n > 1 else x

    fast = dyncomp.optimize(step)
    for n in (0.0, 2.0):
        assert_same(fast(torch.ones(2), torch.tensor(n)), step(torch.ones(2), torch.tensor(n)))
    assert dyncomp.stats().break_reasons == {"data-dependent-branch": 1}


def test_a_loop_is_not_unrolled_for_each_length(fresh):
    def make():
        module = nn.Module()
        module.register_buffer("n", torch.tensor(0))
        module.register_buffer("goal", torch.tensor(0))

        def step(x):
            module.goal += 3
            while module.n < module.goal:
                module.n += 1
                x = x + 1
            return x

        return step, lambda: [module.n]

    graphs_of(make, calls=6)
    assert not any("limit" in name for name in dyncomp.stats().fallbacks)


@pytest.mark.parametrize("kind", ["mean", "moving", "moving, one by one"])
def test_averaged_models(fresh, kind):
    from torch.optim import swa_utils

    options = {
        "mean": {},
        "moving": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
        "moving, one by one": {"avg_fn": swa_utils.get_ema_avg_fn(0.9), "use_buffers": True},
    }[kind]

    def make():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        average = swa_utils.AveragedModel(net, **options)

        def step(x):
            with torch.no_grad():
                for p in net.parameters():
                    p.mul_(0.9)
            average.update_parameters(net)
            return average(x)

        return step, lambda: [list(average.state_dict().values())]

    graphs, breaks = graphs_of(make)
    assert breaks == 0
    assert graphs <= 3
