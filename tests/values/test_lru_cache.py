"""Functions behind functools.lru_cache: what their caches hold, and no longer hold, is seen."""

import functools

import pytest
import torch

import dyncomp
from dyncomp import config
from tests.support import assert_same, check

X = torch.ones(3)


def both(make, steps):
    """`make()` gives (function to compile, namespace); each step acts on the namespace or is a tuple of arguments to call with."""
    seen = []
    for compiled in (False, True):
        function, names = make()
        run = dyncomp.optimize(function, backend="eager") if compiled else function
        out = []
        for step in steps:
            out.append(run(*step) if isinstance(step, tuple) else step(names))
        seen.append((out, names.get("calls")))
    assert_same(seen[1][0], seen[0][0])
    assert seen[1][1] == seen[0][1]


def setting(value):
    return lambda names: names.update(value=value)


def clear(names):
    names["cached"].cache_clear()


def make(decorate, use=lambda cached, x, n: x * cached(n)):
    names = {"value": 1.0, "calls": []}

    @decorate
    def cached(n, scale=1):
        names["calls"].append(n)
        return n * scale * names["value"]

    names["cached"] = cached
    return lambda x, n=2: use(cached, x, n), names


DECORATORS = {
    "cache": functools.cache,
    "bounded": functools.lru_cache,
    "small": functools.lru_cache(maxsize=2),
    "none": functools.lru_cache(maxsize=0),
    "typed": functools.lru_cache(typed=True),
}


@pytest.mark.parametrize("kind", DECORATORS)
@pytest.mark.parametrize(
    "use",
    [
        lambda cached, x, n: x * cached(n),
        lambda cached, x, n: x * cached(n, scale=3) + cached(n, 4),
        lambda cached, x, n: x * cached(1) * cached(2) * cached(3) + n,
        lambda cached, x, n: x * cached(1.0) + cached(1) + cached(True),
    ],
    ids=["one", "named", "three", "equal-keys"],
)
def test_clearing_and_pushing_out(kind, use):
    decorate = DECORATORS[kind]
    steps = [
        (X,),
        (X,),
        setting(2.0),
        (X,),
        clear,
        (X,),
        (X,),
        (X, 5),
        (X, 6),
        setting(3.0),
        (X, 7),
        (X, 2),
        (X, 5),
        clear,
        (X, 5),
    ]
    both(lambda: make(decorate, use), steps)


@pytest.mark.parametrize("kind", ["cache", "bounded"])
def test_a_cached_tensor_is_one_object(kind):
    def made():
        names = {"value": 1.0, "calls": []}

        @DECORATORS[kind]
        def table(n):
            names["calls"].append(n)
            return torch.full((n,), names["value"])

        names["cached"] = table

        def f(x):
            table(3).add_(1)
            return x + table(3), table(3) is table(3)

        return f, names

    both(made, [(X,), (X,), setting(5.0), (X,), clear, (X,), (X,)])


def test_an_error_of_the_function_is_not_cached():
    def made():
        names = {"calls": []}

        @functools.lru_cache
        def cached(n):
            names["calls"].append(n)
            raise ValueError(n)

        def f(x):
            try:
                return x * cached(1)
            except ValueError as error:
                return x + error.args[0]

        return f, names

    seen = []
    for wrap in (lambda f: f, lambda f: dyncomp.optimize(f, backend="eager")):
        function, names = made()
        run = wrap(function)
        seen.append([run(X), run(X)])
    assert_same(seen[1], seen[0])


def test_entries_do_not_make_compiles_of_their_own(fresh):
    function, names = make(functools.lru_cache)
    fast = dyncomp.optimize(function, backend="eager")
    for _ in range(5):
        fast(X)
    names["cached"](7)  # somebody else's entry
    fast(X)
    assert dyncomp.stats().graphs == 1


@pytest.mark.parametrize("bound", [None, 128, 2])
@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_made_of_sizes_need_no_version_for_each_size(dynamic, bound):
    @functools.lru_cache(maxsize=bound)
    def rounded_up(n, multiple=4):
        return -(-n // multiple) * multiple

    @functools.lru_cache(maxsize=bound)
    def is_large(n):
        return n > 3

    def f(x):
        n = x.shape[0]
        y = torch.nn.functional.pad(x, (0, 0, 0, rounded_up(n) - n)) * rounded_up(n, multiple=3)
        return y + 1 if is_large(n) else y

    fast = dyncomp.optimize(f, backend="aot_eager", dynamic=dynamic, fullgraph=True)
    before = dyncomp.stats().frames
    with config.patch(automatic_dynamic=True):
        for n in (6, 7, 8, 5, 9, 13):
            x = torch.randn(n, 2)
            got, size = fast(x), rounded_up.cache_info().currsize
            assert_same(got, f(x))
            assert rounded_up.cache_info().currsize == size  # the compiled call has left the entries that eager's leaves
    assert dyncomp.stats().frames - before == (1 if dynamic else 2)


@pytest.mark.parametrize("dynamic", [None, True])
def test_cached_answers_of_functions_that_read_other_things_stay_what_they_are(dynamic):
    def make():
        state, calls = {"k": 2}, []

        @functools.lru_cache
        def scaled(n):
            return n * state["k"]

        @functools.lru_cache
        def counted(n):
            calls.append(n)
            return n

        return state, calls, lambda x: x * scaled(x.shape[0]) + counted(x.shape[0])

    results = []
    for compiled in (False, True):
        state, calls, f = make()
        run = dyncomp.optimize(f, backend="eager", dynamic=dynamic) if compiled else f
        found = []
        with config.patch(automatic_dynamic=True):
            for step, n in enumerate((4, 5, 6, 5, 7, 4, 8, 6)):
                state["k"] = 2 if step < 5 else 3
                found.append(run(torch.ones(n, 1))[0].item())
        results.append((found, calls))
    assert results[0] == results[1]


def test_a_cache_around_an_object_without_a_name():
    halved = functools.lru_cache(functools.partial(lambda by, n: n / by, 2))
    check(lambda x: x * halved(3) + halved(3), torch.ones(2))
