"""Builtins and methods called with arguments of every kind, right and wrong: results, and class and text of errors, are Python's."""

import collections
import functools
import itertools
import operator
import re

import pytest
import torch

import dyncomp


class Plain:
    def __repr__(self):
        return "Plain()"


FUNCTIONS = [
    len, next, enumerate, zip, map, filter, sorted, sum, max, min, abs, round, isinstance, getattr, hasattr, setattr, delattr,
    int, float, complex, list, tuple, set, dict, range, slice, super, callable,
    operator.getitem, operator.index, operator.attrgetter, operator.itemgetter, operator.contains,
    collections.deque, collections.OrderedDict, collections.defaultdict,
    itertools.chain, itertools.islice, itertools.repeat, itertools.accumulate, itertools.combinations, itertools.product,
    functools.reduce, functools.partial,
]  # fmt: skip
ARGUMENTS = [
    "", "x", "Plain()", "[3, 1, 2]", "{'a': 1}", "(lambda *a: 5)", "x, x", "[1, 2], 1", "[1, 2], Plain()", "{'a': 1}, 'a'",
    "[1], [2], [3]", "[x, x + 1]", "1, int", "Plain(), 'q'",
]  # fmt: skip
METHODS = {
    "[3, 1, 2]": ["append", "insert", "pop", "index", "remove", "__add__", "__iadd__", "__imul__", "__getitem__", "__lt__", "__mul__"],
    "{'b': 1, 'a': 2}": ["get", "pop", "popitem", "setdefault", "update", "__getitem__", "__or__", "__ior__", "__lt__"],
    "collections.OrderedDict(b=1, a=2)": ["popitem", "update"],
    "collections.deque([3, 1, 2])": ["pop", "rotate", "index", "remove", "insert", "popleft", "__getitem__", "__iadd__"],
    "x.shape": ["index", "__getitem__", "__add__", "numel"],
    "range(1, 7, 2)": ["__len__", "__iter__", "__contains__", "index", "__eq__"],
    "'a,b'": ["__contains__", "__mod__", "split", "__lt__"],
    "7": ["__add__", "__radd__", "__lt__", "__pow__"],
    "collections.Counter('aab')": ["elements", "most_common"],
}
METHOD_ARGUMENTS = ["", "1", "'a'", "[1, 2]", "x", "1, 2", "slice(0, 2)", "Plain()", "x, x", "key=1"]
_LAZY = (map, filter, zip, enumerate, itertools.chain, itertools.islice, itertools.accumulate, itertools.combinations, itertools.product)


def _program(call, receiver="None"):
    source = f"""
def f(x):
    y = x * 2
    c = {receiver}
    try:
        r = {call}
        same = r is c
        if isinstance(r, LAZY):
            r = list(r)
    except Exception as e:
        r, same = (type(e).__name__, str(e)), None
    return y, r, same, c
"""
    names = {"LAZY": _LAZY, "Plain": Plain, "collections": collections}

    def make(**more):
        scope = {**names, **more}
        exec(source, scope)
        return scope["f"]

    return make


def _seen(function):
    def plain(value):
        if isinstance(value, torch.Tensor):
            return value.tolist()
        if isinstance(value, list | tuple):
            return type(value).__name__, [plain(item) for item in value]
        if isinstance(value, dict):
            return type(value).__name__, [(plain(key), plain(item)) for key, item in value.items()]
        return re.sub("0x[0-9a-f]+", "", repr(value))

    # CPython names the class of an object or its base in some errors, by the way it was called.
    return re.sub(r"\w+\.(?=\w+\(\) takes)", "", repr(plain(function(torch.tensor([1.0, 2.0])))))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_builtin(function, fresh):
    for arguments in ARGUMENTS:
        call = f"list(itertools.islice(fn({arguments}), 3))" if function is itertools.repeat else f"fn({arguments})"
        make = _program(call)
        more = {"fn": function, "itertools": itertools}
        assert _seen(dyncomp.optimize(make(**more), backend="eager")) == _seen(make(**more)), arguments


@pytest.mark.parametrize("receiver", METHODS)
def test_method(receiver, fresh):
    for name in METHODS[receiver]:
        for arguments in METHOD_ARGUMENTS:
            make = _program(f"c.{name}({arguments})", receiver)
            assert _seen(dyncomp.optimize(make(), backend="eager")) == _seen(make()), f"{name}({arguments})"
