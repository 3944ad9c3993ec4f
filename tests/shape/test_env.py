"""Symbols, facts, and what is guarded: answers are those of the hints, and nothing is asked twice."""

from __future__ import annotations

import pytest
import torch

from dyncomp.shape.env import ShapeEnv
from dyncomp.shape.errors import DataDependent, MarkError
from dyncomp.shape.symbols import Mark
from dyncomp.shape.words import describe


def guards(env: ShapeEnv) -> list[str]:
    return [describe(guard.truth) for guard in env.guards]


def test_zero_and_one_are_numbers_and_equal_numbers_share_a_symbol():
    env = ShapeEnv()
    assert env.create_int(0, "a") == 0 and type(env.create_int(1, "b")) is int
    first, second = env.create_int(5, "c"), env.create_int(5, "d")
    assert str(first) == str(second) == "s0"
    assert [origin for origin, _ in env.equalities] == ["d"]


def test_duck_sizing_can_be_switched_off():
    env = ShapeEnv(duck=False)
    first, second = env.create_int(5, "c"), env.create_int(5, "d")
    assert str(second) == "s1"
    assert first == second and guards(env) == ["s0 == s1"]
    assert str(second) == "s0"


def test_facts_answer_without_new_guards():
    env = ShapeEnv()
    a, b = env.create_int(8, "a"), env.create_int(6, "b")
    assert a > 1 and a + b > 3 and not a * b == a and a * b != 0 and a * b >= a and guards(env) == []
    assert a > b and guards(env) == ["s0 > s1"]
    assert a + 1 > b and a * b > b * b and a != b and guards(env) == ["s0 > s1"]


def test_a_known_divisor_rewrites_the_symbol():
    env = ShapeEnv()
    a, b = env.create_int(8, "a"), env.create_int(6, "b")
    assert a % 4 == 0
    assert str(a) == "4*q0" and (a // 4) * 4 == a and (a * b) // 4 * 4 == a * b and a % 2 == 0
    assert guards(env) == ["s0 % 4 == 0"]


def test_a_known_divisor_of_a_product():
    env = ShapeEnv()
    a, b = env.create_int(8, "a"), env.create_int(6, "b")
    assert a * b % 12 == 0
    assert a * b // 12 * 12 == a * b and len(env.guards) == 1


@pytest.mark.parametrize("chunks", [2, 3])
def test_ceiling_division_is_bounded(chunks: int):
    env = ShapeEnv()
    n = env.create_int(10, "n")
    size = (n + chunks - 1) // chunks
    assert size <= n and size * chunks >= n and size >= 1 and guards(env) == []


def test_max_and_min():
    env = ShapeEnv()
    a, b = env.create_int(8, "a"), env.create_int(6, "b")
    assert type(torch.sym_max(a, 2)) is torch.SymInt and str(torch.sym_max(a, 2)) == "s0"
    big = torch.sym_max(a, b)
    assert big >= a and big >= b and torch.sym_min(a, b) <= a and big + 1 > b and guards(env) == []


def test_pinning_names_the_line():
    env = ShapeEnv(asker=lambda: ("model.py", 12))
    a = env.create_int(8, "a")
    assert int(a) == 8
    assert str(env.guards[0]) == "s0 == 8  (model.py:12)" and a.node.maybe_as_int() == 8


def test_a_mark_that_cannot_be_kept():
    env = ShapeEnv(asker=lambda: ("model.py", 3))
    a = env.create_int(8, "x.size(0)", mark=Mark(4, 16))
    assert a < 17 and a >= 4 and guards(env) == []
    env.check_marks()
    assert a < 10
    with pytest.raises(MarkError, match=r"x.size\(0\).*only from 4 to 9.*model.py:3"):
        env.check_marks()
    assert a == 8
    with pytest.raises(MarkError, match="needs it to be 8"):
        env.check_marks()


def test_unbacked_numbers_need_facts():
    env = ShapeEnv(asker=lambda: ("model.py", 7))
    u, n = env.create_unbacked(), env.create_int(9, "n")
    with pytest.raises(DataDependent, match="u0 > 3.*model.py:7"):
        bool(u > 3)
    torch._check(u >= 0)
    torch._check(u < n)
    assert u >= 0 and n > u and not u == n and guards(env) == []
    assert [describe(a.truth) for a in env.asserts] == ["u0 >= 0", "s0 > u0"]
    torch._check(u == 4)
    assert u + 1 == 5


def test_python_errors_are_kept():
    env = ShapeEnv()
    n = env.create_int(5, "n")
    with pytest.raises(ZeroDivisionError):
        n // (n - 5)
    with pytest.raises(ZeroDivisionError):
        n % (n - n)
