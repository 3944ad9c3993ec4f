"""Side effects on outside objects come out as in plain Python, in traced frames and before graph breaks."""

from __future__ import annotations

import collections
import copy

import pytest
import torch

from dyncomp.guards.build import build_tree
from dyncomp.interp import trace_frame
from tests.bytecode.cutting import to_the_end


class Plain:
    kind = "class"

    def __init__(self):
        self.total = 0
        self.items = [1, 2]
        self.table = {"a": 1}

    @property
    def double(self):
        return self.total * 2

    @double.setter
    def double(self, value):
        self.total = value // 2


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self):
        self.x, self.y = 1, 2


def make_counter():
    count = 0

    def step(x, o):
        nonlocal count
        count += 1
        o.total = count
        return x + 1

    return step


def list_changes(x, o):
    o.items.append(x.sin())
    o.items[0] = 5
    o.items.extend([7, 8])
    del o.items[1]
    o.items.insert(0, "first")
    return x * 2


def list_only_appends(x, o):
    o.items.append(x + 1)
    o.items += [3]
    return x * 2


def dict_changes(x, o):
    o.table["b"] = x.cos()
    o.table["a"] = 2
    del o.table["a"]
    o.table["a"] = 3
    o.table.setdefault("c", []).append(1)
    o.table.update(d=4)
    return o.table["b"] + 1


def attribute_changes(x, o):
    o.total += 1
    o.new = x + 1
    o.kind = "instance"
    o.new2 = o.items
    del o.table
    o.double = 10
    return o.new * o.total


def aliases(x, o):
    o.items.append(o.items)
    o.table["self"] = o
    o.table["items"] = o.items
    o.fresh = {"items": o.items, "o": o}
    return x + len(o.items)


def slots(x, o):
    s = Slotted()
    o.inside.x = x + 1
    del o.inside.y
    s.x = 3
    o.made = s.x
    return x


def sets_and_deques(x, o):
    o.names.add("new")
    o.names.discard("old")
    o.queue.append(3)
    o.queue.appendleft(0)
    return x.exp()


def ordered(x, o):
    o.ordered["z"] = 1
    o.default["new"].append(x + 1)
    return x - 1


def break_after(x, o):
    o.items.append(x + 1)
    o.total = 4
    print(len(o.items), o.total)
    o.items.append(o.total)
    return x.sin()


def only_effects(x, o):
    o.total = 3
    o.last = x + 1


def in_loop(x, o):
    for i in range(3):
        o.total += i
        o.items.append(i)
    return x + o.total


PROGRAMS = [
    list_changes, list_only_appends, dict_changes, attribute_changes, aliases, slots, sets_and_deques,
    ordered, break_after, only_effects, in_loop,
]  # fmt: skip


def outside():
    o = Plain()
    o.inside = Slotted()
    o.names = {"old", "kept"}
    o.queue = collections.deque([1, 2])
    o.ordered = collections.OrderedDict(b=1, a=2)
    o.default = collections.defaultdict(list)
    return o


def plainly(value, seen=None):
    """A comparable picture of an object graph, identities included."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return f"<object {seen[id(value)]}>"
    if isinstance(value, int | str | None | type):
        return value
    seen[id(value)] = len(seen)
    if isinstance(value, torch.Tensor):
        return ("tensor", value.tolist())
    if isinstance(value, dict):
        return type(value).__name__, [(plainly(k, seen), plainly(v, seen)) for k, v in value.items()]
    if isinstance(value, set):
        return "set", sorted(value)
    if isinstance(value, list | tuple | collections.deque):
        return type(value).__name__, [plainly(v, seen) for v in value], getattr(value, "maxlen", None)
    names = getattr(type(value), "__slots__", None)
    state = {n: getattr(value, n) for n in names if hasattr(value, n)} if names else vars(value)
    return type(value).__name__, plainly(dict(state), seen)


def run_traced(function, args):
    trace = trace_frame(function, args, None)
    assert trace.skipped is None, trace.skipped
    tree = build_tree([], trace.captures)
    run = trace.make_run(trace.graph)
    return to_the_end(run)(*tree.capture(function, args)), trace


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_effects_as_in_python(function, capsys):
    x, mine, theirs = torch.randn(3), outside(), outside()
    expected = function(x, theirs)
    said = capsys.readouterr().out
    got, trace = run_traced(function, (x, mine))
    assert capsys.readouterr().out == said
    assert plainly([got, mine]) == plainly([expected, theirs])
    assert bool(trace.breaks) is (function is break_after)


def test_tracing_alone_changes_nothing():
    for function in PROGRAMS:
        o = outside()
        before = plainly(copy.deepcopy(o))
        trace_frame(function, (torch.randn(3), o), None)
        assert plainly(o) == before, function


def test_nonlocal_variables():
    step, o = make_counter(), Plain()
    for i in range(1, 3):
        run_traced(step, (torch.ones(1), o))
        assert o.total == i == step.__closure__[0].cell_contents


_count = 0


def test_globals():
    global _count
    _count = 0

    def bump(x):
        global _count, _made
        _count += 2
        _made = x + 1
        return x

    run_traced(bump, (torch.ones(2),))
    assert _count == 2 and _made.tolist() == [2, 2]
