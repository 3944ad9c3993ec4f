"""Dict keys that compare by identity: a version made for some objects must not answer for others."""

import pytest
import torch

import dyncomp
from tests.support import assert_same


class Plain:
    pass


def same_for(function, *argument_lists, **options):
    fast = dyncomp.optimize(function, backend="eager", **options)
    for args in argument_lists:
        assert_same(fast(*args), function(*args))
    return fast


@pytest.mark.parametrize(
    "make", [lambda: torch.ones(2), Plain, lambda: lambda: None], ids=["tensor", "object", "function"]
)
def test_an_outside_dict_is_asked_for_each_object(fresh, make):
    a, b, c = make(), make(), make()
    table = {a: 3, b: 5}
    x = torch.ones(2)
    same_for(lambda x, key: x + table.get(key, 0), *[(x, key) for key in (a, b, c, a, c)])
    same_for(lambda x, key: x * (key in table), *[(x, key) for key in (a, c, b)])
    same_for(lambda x, key: x + table.get((key,), 7), *[(x, key) for key in (a, b)])
    both = {(a, b): 1, (b, a): 2}
    same_for(lambda x, k, m: x + both.get((k, m), 0), *[(x, *pair) for pair in ((a, b), (b, a), (a, a), (b, c))])


@pytest.mark.parametrize("make", [lambda: torch.ones(2), Plain], ids=["tensor", "object"])
def test_keys_that_are_one_object_in_a_later_call(fresh, make):
    def stored(x, p, q):
        table = {p: 1}
        table[q] = 5
        return x + table[p] + len(table)

    def looked_up(x, p, q):
        return x + {p: 1}.get(q, 0)

    def by_number(x, p, q):
        return x + {id(p): 1}.get(id(q), 0), id(p) == id(q)

    a, b, x = make(), make(), torch.ones(2)
    for function in (stored, looked_up, by_number):
        same_for(function, (x, a, b), (x, a, a), (x, b, a), (x, b, b))


def test_writes_to_an_outside_dict_and_other_keys(fresh):
    a, b, c = Plain(), Plain(), Plain()

    def run(function):
        table = {a: 3}
        out = [function(table, torch.ones(2), p, q) for p, q in ((b, a), (b, b), (a, a), (c, c), (a, b))]
        return out, [table[k] for k in (a, b, c) if k in table]

    def f(table, x, p, q):
        table[p] = 10
        return x + table.get(q, 0), len(table)

    assert_same(run(dyncomp.optimize(f, backend="eager")), run(f))


def test_order_of_the_keys_of_an_outside_dict(fresh):
    a, b = Plain(), Plain()

    def f(x, table):
        for value in table.values():
            x = x * 2 + value
        return x

    same_for(f, (torch.ones(2), {a: 1, b: 2}), (torch.ones(2), {b: 2, a: 1}), (torch.ones(2), {a: 2, b: 1}))


def test_objects_that_are_no_keys_are_not_pinned(fresh):
    def f(x, y):
        return x * {x: 2, y: 3}[y]

    before = dyncomp.stats().frames
    same_for(f, *[(torch.randn(3), torch.randn(3)) for _ in range(4)])
    assert dyncomp.stats().frames - before == 1
