"""Frames that break in every kind of place run as in plain Python, and later calls compile nothing new."""

from __future__ import annotations

import contextlib

import pytest
import torch

from dyncomp import api, counters, driver

driver.install()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = x * self.weight
        print("layer", self.calls)
        return y + 1


class Twice(Layer):
    def forward(self, x):
        y = x + 1
        print("twice")
        return super().forward(y) + super().forward(x)


@contextlib.contextmanager
def announced(name):
    print("enter", name)
    try:
        yield name
    finally:
        print("exit", name)


class Scope:
    def __enter__(self):
        print("in")
        return self

    def __exit__(self, kind, error, trace):
        print("out", kind)
        return kind is ValueError


def loop(x):
    for i in range(3):
        x = x + i
        print(i)
        x = x * 2
    return x


def loop_over_list(x):
    out = []
    for part in [x, x + 1, x + 2]:
        print(len(out))
        out.append(part.sin())
    return torch.stack(out)


def while_loop(x):
    n = 0
    while n < 3:
        n += 1
        x = x.cos()
        print(n)
    return x, n


def branch_on_data(x):
    y = x.abs() + 1
    if y.sum() > 0:
        y = y + 1
    else:
        y = y - 1
    return y * (2 if (x * 0).sum() > 1 else 3)


def in_try(x):
    try:
        x = x + 1
        print("try")
        x = x * 2
        raise KeyError("k")
    except KeyError as error:
        print("caught", error)
        x = x.sin()
    finally:
        print("finally")
        x = x - 1
    return x


def real_error_in_try(x):
    try:
        y = x + 1
        z = y.view(7, 7)
    except RuntimeError:
        print("shape")
        z = y * 2
    return z


def error_through_breaks(x):
    out = []
    for i in range(3):
        try:
            x = x + 1
            print(i)
            if i == 1:
                raise ValueError(i)
            out.append(x)
        except ValueError:
            out.append(x * 0)
            continue
        finally:
            print("after", i)
    return out


def handled_outside(x):
    try:
        raise ValueError("outer")
    except ValueError:
        y = x + 1
        print("in handler")
        try:
            raise
        except ValueError as again:
            print("again", again)
            y = y * 2
    return y


def with_blocks(x):
    with Scope() as scope:
        y = x + 1
        print(type(scope).__name__)
        with announced("inner"):
            y = y * 2
            print("inside")
            if y.sum() < 1e9:
                raise ValueError("leave")
    return y


def closures(x):
    total = 0

    def add(v):
        nonlocal total
        total += 1
        print("add", total)
        return v + total

    y = add(x)
    print(total)
    total += 10
    y = add(y)
    return y, total, [f(2) for f in [lambda k, y=y: k + total]]


def comprehension(x):
    scale = 2
    parts = [print(i) or x * i * scale for i in range(3)]
    by = {i: part + 1 for i, part in enumerate(parts)}
    return sum(parts), by


def callee_breaks(x):
    y = loop(x) + 1
    return helper(y, scale=2) - 1


def helper(x, *, scale):
    x = x * scale
    print("helper")
    return x


def star(x, *rest, key=1, **more):
    x = x + len(rest) + key
    print(rest, sorted(more))
    return x + sum(rest) + more["m"]


def stack_below(x):
    return [x + 1, print("one") or x + 2, {"k": helper(x, scale=3)}], f"{print('f')}{x.shape[0]}"


def unbound(x):
    if x.dim() == 1:
        y = x + 1
    print("here")
    try:
        return z
    except NameError:
        del x
        print(sorted(k for k in locals()))
        return y


def iterators(x):
    it = iter([1, 2, 3])
    x = x + next(it)
    print("between")
    for i, (a, b) in enumerate(zip(it, "ab")):  # noqa: B905
        print(i, b)
        x = x * a
    return x


def module_method(x):
    return Twice()(x)


PROGRAMS = [
    loop, loop_over_list, while_loop, branch_on_data, in_try, real_error_in_try, error_through_breaks,
    handled_outside, with_blocks, closures, comprehension, callee_breaks, stack_below, unbound, iterators,
    module_method,
]  # fmt: skip


def assert_equal(got, expected):
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected)
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        assert_equal(list(got.values()), list(expected.values()))
    elif isinstance(expected, list | tuple):
        assert type(got) is type(expected) and len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_equal(one, other)
    else:
        assert got == expected


def check(function, *args, **kwargs):
    x = torch.randn(3)
    expected = function(x, *args, **kwargs)
    fast = api.optimize(function, backend="eager")
    return x, expected, lambda: fast(x, *args, **kwargs)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_breaks_as_in_python(function, capsys):
    x, expected, call = check(function)
    said = capsys.readouterr().out
    frames = []
    for _ in range(4):
        assert_equal(call(), expected)
        assert capsys.readouterr().out == said
        frames.append(counters.stats().frames)
    assert frames[-1] == frames[-2], "a later call compiled something again"
    assert counters.stats().graph_breaks > 0


def test_star_arguments(capsys):
    x, expected, call = check(star, 1, 2, key=5, m=7)
    for _ in range(2):
        assert_equal(call(), expected)


def test_error_line_is_the_users():
    def fails(x):
        y = x + 1
        print("before")
        return y.missing

    with pytest.raises(AttributeError) as info:
        api.optimize(fails, backend="eager")(torch.ones(2))
    last = info.traceback[-1]
    assert last.name == "fails" and last.lineno + 1 == fails.__code__.co_firstlineno + 3


def test_handled_exception_of_the_caller_survives():
    def inner(x):
        try:
            raise KeyError("mine")
        except KeyError:
            y = x + 1
            print("handler")
        return y

    fast = api.optimize(inner, backend="eager")

    def outer(x):
        try:
            raise ValueError("the caller's")
        except ValueError:
            fast(x)
            raise

    for _ in range(2):
        with pytest.raises(ValueError, match="the caller's"):
            outer(torch.ones(2))


def test_long_loop_runs_in_constant_stack_space(capsys):
    def many(x):
        for _ in range(1500):
            x = x + 1
            print(end="")
        return x

    def deep(n, x):
        return fast(x) if n == 0 else deep(n - 1, x)

    fast = api.optimize(many, backend="eager")
    assert fast(torch.zeros(2)).tolist() == [1500, 1500]
    assert deep(700, torch.zeros(2)).tolist() == [1500, 1500]


def test_functions_that_are_results_are_left_alone():
    def make(x):
        y = x + 1
        print(end="")
        return lambda: y * 2

    inner = api.optimize(make, backend="eager")(torch.ones(2))
    assert inner().tolist() == [4, 4]
