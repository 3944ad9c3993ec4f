"""Dictionaries behind `types.MappingProxyType`, from outside and made while tracing."""

import collections
import inspect
import types

import pytest
import torch
from torch.autograd import forward_ad

import dyncomp
from tests.support import check


def described(a, b=2, *c):
    return a


SIGNATURE = inspect.signature(described)
PLAIN = {"x": 2.0, "y": 3.0}
PROXY = types.MappingProxyType(PLAIN)


class Holder:
    def __init__(self):
        self._items = collections.OrderedDict(x=2.0, y=3.0)

    @property
    def items(self):
        return types.MappingProxyType(self._items)


HOLDER = Holder()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + sum(1 for name, p in SIGNATURE.parameters.items() if p.default is inspect.Parameter.empty),
        lambda x: x + len(SIGNATURE.parameters) + ("a" in SIGNATURE.parameters) + len(list(SIGNATURE.parameters.values())),
        lambda x: x + SIGNATURE.bind(1, b=3).arguments["b"],
        lambda x: x + PROXY["x"] + PROXY.get("z", 7) + len({**PROXY}) + len(dict(PROXY)) + (PROXY == {"x": 2.0, "y": 3.0}),
        lambda x: x + sum(HOLDER.items.values()) + sum(1 for name in HOLDER.items) + bool(HOLDER.items),
        lambda x: (x + 1, types.MappingProxyType({"k": x * 2})["k"]),
    ],
)
def test_reading(fresh, function):
    check(function, torch.ones(2))


def test_a_proxy_that_is_returned(fresh):
    fast = dyncomp.optimize(lambda x: (x + 1, PROXY, types.MappingProxyType({"k": x * 2})))
    _, outside, made = fast(torch.ones(2))
    assert outside is PROXY
    assert type(made) is types.MappingProxyType
    assert made["k"].tolist() == [2, 2]
    assert dyncomp.stats().graph_breaks == 0


def test_what_lies_behind_is_guarded(fresh):
    behind = {"x": 2.0}
    proxy = types.MappingProxyType(behind)
    fast = dyncomp.optimize(lambda x: x * sum(proxy.values()))
    assert fast(torch.ones(1)).item() == 2
    behind["x"] = 5.0
    assert fast(torch.ones(1)).item() == 5
    behind["y"] = 1.0
    assert fast(torch.ones(1)).item() == 6


def test_writing_is_refused_in_pythons_words(fresh):
    def write(x):
        try:
            HOLDER.items["z"] = 1
        except TypeError as error:
            return x + len(str(error))

    def remove(x):
        try:
            del HOLDER.items["x"]
        except TypeError as error:
            return x + len(str(error))

    check(write, torch.ones(1))
    check(remove, torch.ones(1))


def test_the_dual_part_where_no_level_is_open(fresh):
    def primal(x):
        primal, tangent = forward_ad.unpack_dual(x)
        return primal * 2 if tangent is None else tangent

    fast = check(primal, torch.ones(2))
    with forward_ad.dual_level():
        assert fast(forward_ad.make_dual(torch.ones(2), torch.full((2,), 5.0))).tolist() == [5, 5]
