"""Look-ups in dicts remember the dict's version: every way to change a dict must still be noticed at the next check."""

from __future__ import annotations

import collections
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyncomp._frame import _core

try:
    from torch.nn import Module
except ModuleNotFoundError:  # the native half is tested without torch too
    MODULES = []
else:
    MODULES = [Module]


def tree(key, expected, missing):
    nodes = [
        (-1, "local", 0, [("no_item", missing)]),
        (0, "dict_item", key, [("id", expected)]),
    ]
    return _core.GuardTree(nodes, [1], None)


def holds(guards, d):
    return guards.check(None, (d,))


CHANGES = {
    "set": lambda d: d.__setitem__("a", None),
    "delete": lambda d: d.__delitem__("a"),
    "pop": lambda d: d.pop("a"),
    "popitem": lambda d: [d.popitem() for _ in range(len(d))],
    "clear": lambda d: d.clear(),
    "update": lambda d: d.update(a=None),
    "merge": lambda d: d.__ior__({"a": None}),
    "the missing key": lambda d: d.__setitem__("missing", 1),
    "the missing key by setdefault": lambda d: d.setdefault("missing", 1),
    "the missing key by update": lambda d: d.update(missing=1),
    "dict.__setitem__": lambda d: dict.__setitem__(d, "a", None),
    "dict.clear": lambda d: dict.clear(d),
}
KINDS = {"dict": dict, "OrderedDict": collections.OrderedDict, "subclass": type("Sub", (dict,), {})}


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_change_is_noticed(kind, change):
    value = types.SimpleNamespace()
    d = KINDS[kind](a=value, b=2)
    guards = tree("a", value, ("missing",))
    assert holds(guards, d) and holds(guards, d)
    CHANGES[change](d)
    assert not holds(guards, d)
    d.clear()
    d.update(b=2, a=value)
    assert holds(guards, d) and holds(guards, d)


class Attributes:
    pass


def _set(target):
    for value in (1, 2, 3, 4):
        target.a = value


def _delete(target):
    del target.a


@pytest.mark.parametrize(
    "change", [_set, _delete, lambda o: object.__setattr__(o, "a", 1), lambda o: vars(o).update(a=1)]
)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    "make", [Attributes, *MODULES, types.SimpleNamespace, type("Slotless", (Attributes,), {})]
)
def test_attributes_of_instances(make, warm, change):
    if warm:  # the interpreter's quick forms of attribute stores
        for _ in range(64):
            other = make()
            other.a = 0
            change(other)
    value = types.SimpleNamespace()
    target = make()
    target.a = value
    nodes = [
        (-1, "local", 0, []),
        (0, "instance_dict", None, [("no_item", ("missing",))]),
        (1, "dict_item", "a", [("id", value)]),
    ]
    guards = _core.GuardTree(nodes, [], None)
    assert guards.check(None, (target,)) and guards.check(None, (target,))
    change(target)
    assert not guards.check(None, (target,))
    target.a = value
    assert guards.check(None, (target,)) and guards.check(None, (target,))
    target.missing = 1
    assert not guards.check(None, (target,))


def test_instances_in_turn():
    value = types.SimpleNamespace()
    good, bad = {"a": value}, {"a": None}
    guards = tree("a", value, ("missing",))
    assert [holds(guards, d) for d in (good, bad, good, good, bad, {"a": value}, {})] == [
        True,
        False,
        True,
        True,
        False,
        True,
        False,
    ]


def test_a_dict_that_died():
    value = types.SimpleNamespace()
    guards = tree("a", value, ("missing",))
    for i in range(200):  # new dicts in the memory of old ones
        assert (
            holds(guards, {"a": value})
            and not holds(guards, {"a": None})
            and not holds(guards, {"a": value, "missing": i})
        )


def test_globals():
    scope = {"x": 1}
    code = compile("def write(v):\n    global x\n    x = v\n", "<test>", "exec")
    exec(code, scope)
    one, two = types.SimpleNamespace(), types.SimpleNamespace()
    for _ in range(64):
        scope["write"](one)
    guards = tree("x", one, ("missing",))
    assert holds(guards, scope) and holds(guards, scope)
    scope["write"](two)
    assert not holds(guards, scope)


@given(
    st.lists(
        st.tuples(st.sampled_from("set same delete other missing unmissing check".split()), st.sampled_from("abcdef")),
        max_size=40,
    )
)
def test_any_history(history):
    value = types.SimpleNamespace()
    d = {"a": value}
    guards = tree("a", value, ("missing",))
    for what, key in history:
        if what == "set":
            d[key] = None
        elif what == "same":
            d["a"] = value
        elif what == "delete":
            d.pop(key, None)
        elif what == "other":
            d[key + "_"] = key
        elif what == "missing":
            d["missing"] = key
        elif what == "unmissing":
            d.pop("missing", None)
        assert holds(guards, d) == (d.get("a") is value and "missing" not in d)
