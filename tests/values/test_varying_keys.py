"""Look-ups by names and numbers that differ from call to call, and classes made in each call: a bounded number of versions."""

import pytest
import torch

import dyncomp
from tests.support import assert_same

X = torch.arange(4.0)
TABLE = {f"k{i}": float(i) for i in range(20)}
PAIRS = {(a, b): float(a * b) for a in range(20) for b in range(20)}
LIST = [float(i) for i in range(20)]
LAYERS = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(20)).requires_grad_(False)


class Holder:
    pass


HOLDER = Holder()
vars(HOLDER).update({f"k{i}": torch.full((4,), float(i)) for i in range(20)})

LOOK_UPS = {
    "name": (lambda x, k: x * TABLE[k], str),
    "get": (lambda x, k: x * TABLE.get(k, 0.5) + (k in TABLE), str),
    "number": (lambda x, k: x * TABLE[f"k{k}"], int),
    "pair": (lambda x, k: x * PAIRS[k, k + 1], int),
    "place": (lambda x, k: x * LIST[k], int),
    "layer": (lambda x, k: LAYERS[k](x), int),
    "attribute": (lambda x, k: getattr(HOLDER, k) * x, str),
    "made": (lambda x, k: {"k0": x, "k1": x * 2}.get(k, x * 3) + 1, str),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_versions_are_few(name):
    function, kind = LOOK_UPS[name]
    before = dyncomp.stats()
    fast = dyncomp.optimize(function)
    for i in range(16):
        key = i if kind is int else f"k{i}"
        assert_same(fast(X, key), function(X, key))
    after = dyncomp.stats()
    assert after.graphs - before.graphs <= 12
    assert after.fallbacks.get("recompile-limit", 0) == before.fallbacks.get("recompile-limit", 0)
    assert after.break_reasons.get("varying-key", 0) > before.break_reasons.get("varying-key", 0)


def test_a_few_keys_have_a_version_each():
    before = dyncomp.stats()
    fast = dyncomp.optimize(lambda x, k: x * TABLE[k])
    for i in range(12):
        assert_same(fast(X, f"k{i % 4}"), X * float(i % 4))
    after = dyncomp.stats()
    assert after.graph_breaks == before.graph_breaks


def test_one_graph_by_order_has_a_version_for_each():
    fast = dyncomp.optimize(lambda x, k: x * TABLE[k], fullgraph=True)
    for i in range(6):
        assert_same(fast(X, f"k{i}"), X * float(i))


def test_a_cache_by_a_number():
    def cached(x, k, cache):
        if k not in cache:
            cache[k] = x * k
        return cache[k] + x

    ours, theirs = {}, {}
    fast = dyncomp.optimize(cached)
    for i in (0, 1, 2, 3, 4, 5, 6, 3, 7, 2, 8):
        assert_same(fast(X, i, ours), cached(X, i, theirs))
        assert_same(ours, theirs)


def test_writes_fix_no_key():
    before = dyncomp.stats()
    ours = {}

    def kept(x, k, cache):
        cache[k] = x * 2
        return cache[k] + 1

    for options in ({}, {"dynamic": True}):
        fast = dyncomp.optimize(kept, **options)
        for i in range(8):
            assert_same(fast(X, i, ours), X * 2 + 1)
    assert list(ours) == list(range(8))
    assert dyncomp.stats().graphs - before.graphs <= 4


def test_layers_with_keys_of_their_own_are_one_graph():
    class Layer(torch.nn.Module):
        def __init__(self, place):
            super().__init__()
            self.place, self.name = place, f"k{place}"

        def forward(self, x, cache):
            cache[self.place] = x
            return cache[self.place] * TABLE[self.name] + 1

    layers = torch.nn.ModuleList(map(Layer, range(12)))

    def model(x, cache):
        for layer in layers:
            x = layer(x, cache)
        return x

    fast = dyncomp.optimize(model, fullgraph=True)
    for _ in range(3):
        ours, theirs = {}, {}
        assert_same(fast(X, ours), model(X, theirs))
        assert_same(ours, theirs)


def test_classes_made_in_each_call():
    def run(x):
        class Point:
            def __init__(self, v):
                self.v = v

            def twice(self):
                return self.v * 2

        return Point(x).twice() + 1

    before = dyncomp.stats()
    fast = dyncomp.optimize(run)
    for _ in range(14):
        assert_same(fast(X), X * 2 + 1)
    after = dyncomp.stats()
    assert after.graphs - before.graphs <= 6
    assert after.fallbacks.get("recompile-limit", 0) == before.fallbacks.get("recompile-limit", 0)


def test_modules_made_inside():
    def run(x):
        return torch.nn.Linear(4, 3)(x) * 2

    before = dyncomp.stats()
    fast = dyncomp.optimize(run)
    for seed in range(4):
        torch.manual_seed(seed)
        want = run(X)
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        assert_same(fast(X), want)
        assert torch.equal(torch.get_rng_state(), state)
    after = dyncomp.stats()
    assert (after.graphs - before.graphs, after.graph_breaks - before.graph_breaks) == (1, 1)
