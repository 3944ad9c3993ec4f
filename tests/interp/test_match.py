"""Class patterns: what they bind, and the errors of patterns and `__match_args__` that do not fit."""

import pytest

from tests.interp.tracing import X, broken, whole


def of(args, **attributes):
    return type("Point", (), {**({} if args is None else {"__match_args__": args}), **attributes})


def one(cls, x):
    match cls():
        case cls(a):
            return x + 1, a
    return x


def two(cls, x):
    match cls():
        case cls(a, b):
            return x + 1, a, b
    return x


def by_name(cls, x):
    match cls():
        case cls(a, u=b):
            return x + 1, a, b
    return x


@pytest.mark.parametrize(
    "program, cls",
    [
        (one, of(["u"], u=1)),
        (one, of((1,))),
        (one, of(None)),
        (one, 5),
        (two, of(("u", "u"), u=1)),
        (two, of(("u",), u=1)),
        (by_name, of(("u",), u=1)),
        (two, int),
    ],
)
def test_errors(program, cls):
    broken(lambda x: program(cls, x + 1), X, breaks=None)


@pytest.mark.parametrize(
    "program, cls",
    [
        (one, of(("u",), u=1)),
        (two, of(("u", "v"), u=1, v=2)),
        (by_name, of(("v",), u=1, v=2)),
        (one, int),
        (one, str),
    ],
)
def test_bound(program, cls):
    whole(lambda x: program(cls, x))
