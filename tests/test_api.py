"""optimize, enable, disable, stances, stats, reset: behaviour a user relies on."""

import functools
import threading
import warnings

import pytest
import torch

import dyncomp
from dyncomp import errors


def test_decorator_forms():
    @dyncomp.optimize
    def one(x):
        "doc"
        return x + 1

    @dyncomp.optimize(fullgraph=True)
    def two(x):
        return x + 2

    assert one.__name__ == "one" and one.__doc__ == "doc"
    assert float(one(torch.zeros(()))) == 1 and float(two(torch.zeros(()))) == 2


def test_methods_partials_builtins_and_callables():
    class Scale:
        def __init__(self, by):
            self.by = by

        def times(self, x):
            return x * self.by

        def __call__(self, x):
            return x * self.by + 1

        @dyncomp.optimize
        def decorated(self, x):
            return x - self.by

    s, x = Scale(3), torch.ones(2)
    assert torch.equal(dyncomp.optimize(s.times)(x), x * 3)
    assert torch.equal(dyncomp.optimize(s)(x), x * 3 + 1)
    assert torch.equal(s.decorated(x), x - 3)
    assert torch.equal(dyncomp.optimize(functools.partial(s.times))(x), x * 3)
    assert torch.equal(dyncomp.optimize(torch.neg)(x), -x)


def test_disable_returns_the_target():
    def f(x):
        return x

    assert dyncomp.optimize(f, disable=True) is f


def test_stats_and_reset(fresh):
    fast = dyncomp.optimize(lambda x: x.sin())
    fast(torch.ones(2))
    fast(torch.ones(2))
    assert (dyncomp.stats().graphs, dyncomp.stats().frames) == (1, 1)
    dyncomp.reset()
    assert dyncomp.stats().graphs == 0
    fast(torch.ones(2))
    assert dyncomp.stats().graphs == 1


def test_enable_region(fresh):
    def inner(x):
        return x * 2

    with dyncomp.enable():
        assert torch.equal(inner(torch.ones(2)), torch.full((2,), 2.0))
    assert dyncomp.stats().graphs == 1
    inner(torch.ones(3))
    assert dyncomp.stats().graphs == 1


def test_a_region_entered_again_finds_its_code(fresh):
    def inner(x):
        return x * 3

    for _ in range(3):
        with dyncomp.enable():
            inner(torch.ones(2))
    assert dyncomp.stats().graphs == 1
    with dyncomp.enable(backend="eager"):
        inner(torch.ones(2))
    assert dyncomp.stats().graphs == 2


def test_enable_is_left_on_exceptions_and_is_per_thread(fresh):
    def f(x):
        return x + 5

    with pytest.raises(KeyError), dyncomp.enable():
        raise KeyError
    f(torch.ones(1))
    assert dyncomp.stats().graphs == 0
    with dyncomp.enable():
        thread = threading.Thread(target=f, args=(torch.ones(1),))
        thread.start()
        thread.join()
    assert dyncomp.stats().graphs == 0


def test_disable_region_function_and_decorator(fresh):
    def f(x):
        return x + 7

    with dyncomp.enable(), dyncomp.disable():
        f(torch.ones(1))
    assert dyncomp.stats().graphs == 0
    plain = dyncomp.disable(f)
    with dyncomp.enable():
        assert float(plain(torch.ones(()))) == 8
    assert dyncomp.stats().graphs == 0

    @dyncomp.disable(reason="needs Python")
    def g(x):
        return x - 1

    def outer(x):
        y = x * 2
        y = g(y)
        return y * 3

    assert float(dyncomp.optimize(outer)(torch.ones(()))) == 3
    reasons = dyncomp.stats().break_reasons
    assert reasons == {"disabled-function": 1}, reasons


def test_force_eager(fresh):
    fast = dyncomp.optimize(lambda x: x.cos())
    with dyncomp.set_stance("force_eager"):
        fast(torch.ones(2))
    assert dyncomp.stats().graphs == 0
    fast(torch.ones(2))
    assert dyncomp.stats().graphs == 1


def test_stances_on_recompile(fresh):
    fast = dyncomp.optimize(lambda x: x.tan(), dynamic=False)
    with dyncomp.set_stance("fail_on_recompile"):
        fast(torch.ones(2))
        with pytest.raises(errors.RecompileLimitError, match="fail_on_recompile"):
            fast(torch.ones(2, dtype=torch.float64))
    with dyncomp.set_stance("eager_on_recompile"):
        fast(torch.ones(2, dtype=torch.float64))
        assert dyncomp.stats().fallbacks["stance-eager-on-recompile"] == 1
    fast(torch.ones(2, dtype=torch.float64))
    assert dyncomp.stats().graphs == 2


def test_recompile_limit_warns_once_and_stays_right(fresh):
    def f(x, k):
        return x + k

    fast = dyncomp.optimize(f, recompile_limit=3, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(6):
            assert float(fast(torch.zeros(()), f"{k}" and k)) == k
            assert float(fast(torch.zeros(()), 0)) == 0
    texts = [str(w.message) for w in caught if "Last failing guard" in str(w.message)]
    assert len(texts) == 1 and "k" in texts[0], texts
    assert dyncomp.stats().graphs == 3


def test_full_graph_error_names_line_reason_and_cure():
    def f(x):
        y = x + 1
        print("hello")
        return y

    with pytest.raises(errors.FullGraphError, match=r"test_api.py:\d+ in .*f\b[\s\S]*cure:") as caught:
        dyncomp.optimize(f, fullgraph=True)(torch.ones(1))
    assert caught.value.record.reason == "side-effect"


def test_is_compiling():
    def f(x):
        return x + 1 if dyncomp.is_compiling() else x - 1

    assert not dyncomp.is_compiling()
    assert float(dyncomp.optimize(f)(torch.zeros(()))) == 1


def test_allow_substitute_and_constant(fresh):
    def opaque(x):
        return x * 10

    dyncomp.allow_in_graph(opaque)

    def slow(x):
        print("never captured")
        return x

    @dyncomp.substitute_in_graph(slow)
    def slow_replacement(x):
        return x + 1

    @dyncomp.assume_constant_result
    def setting():
        return 4

    def f(x):
        return slow(opaque(x)) * setting()

    assert float(dyncomp.optimize(f, fullgraph=True)(torch.ones(()))) == 44
