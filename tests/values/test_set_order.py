"""The order of sets: as in eager, whatever they were made by, and whatever is done to them later."""

import random

import pytest
import torch

import dyncomp
from tests.support import examples

X = torch.ones(2)
MADE = [
    "{{{spread}}}", "set({a})", "{{k for k in {a}}}", "set({a}) | set({b})", "set({a}) & set({b})", "set({a}) - set({b})", "set({a}) ^ set({b})",
    "set({a}).copy()", "set(set({a}))", "frozenset({a})", "frozenset({a}) | set({b})", "set({a}).union({b}, {c})", "set({a}).intersection({b})",
    "set({a}).difference({b})", "set({a}).symmetric_difference({b})", "dict.fromkeys({a}).keys() & set({b})", "dict.fromkeys({a}).keys() - {b}",
    "{b} | dict.fromkeys({a}).keys()", "dict.fromkeys({a}, 1).items() - {{('k1', 1)}}", "set(dict.fromkeys({a}))", "set(dict.fromkeys({a}).keys())",
]  # fmt: skip
CHANGED = [
    "for k in {b}: s.add(k)", "s.update({b})", "s.update(set({b}))", "s.update(dict.fromkeys({b}))", "s |= set({b})", "s &= set({b})", "s -= set({b})",
    "s ^= set({b})", "for k in {b}: s.discard(k)", "s.difference_update({b})", "s.intersection_update({b})", "s.symmetric_difference_update({b})",
    "s.clear()", "s = s - set({b})", "s = set(list(s)[::-1])", "s.update({b}, {c})", "out.append(s.pop() if s else None)",
]  # fmt: skip
READ = ["out.append(list(s))", "out.append(sorted(s))", "out.append(set(s))", "out.append(frozenset(s))", "out.append(len(s))", "out.append('k1' in s)"]
OUTSIDE = [one for one in CHANGED if ".pop" not in one and "s = " not in one]


def _filled(random_, text):
    names = {key: [f"k{random_.randrange(80)}" for _ in range(random_.choice((1, 2, 5, 9, 20)))] for key in "abc"}
    return text.format(spread=", ".join(map(repr, names["a"])), **names)


def _told(function, *args):
    _, out, s = function(X, *args)
    return [list(one) if isinstance(one, set | frozenset) else one for one in out], list(s)


def _function(head, lines):
    space = {}
    exec("def f(x, s=None):\n    out = []\n    " + "\n    ".join([head, *lines, "return x + 1, out, s"]), space)
    return space["f"]


@pytest.mark.parametrize("made", MADE)
def test_made_in_compiled_code(made):
    for seed in range(examples(4)):
        chosen = random.Random(f"{seed} {made}")
        lines = [_filled(chosen, chosen.choice(CHANGED + READ)) for _ in range(chosen.randrange(4))]
        if "frozen" in made:
            lines = [line for line in lines if line.startswith("out.append(") and "pop" not in line]
        function = _function(f"s = {_filled(chosen, made)}", lines)
        before = dyncomp.stats().graph_breaks
        assert _told(dyncomp.optimize(function, backend="eager")) == _told(function), lines
        assert dyncomp.stats().graph_breaks == before, lines


@pytest.mark.parametrize("changed", OUTSIDE)
def test_given_and_changed(changed):
    """What is done to a set from outside is done in the same order; where its new order is asked for, the graph breaks."""
    for seed in range(examples(4)):
        chosen = random.Random(f"{seed} {changed}")
        lines = [_filled(chosen, one) for one in (changed, *chosen.choices(OUTSIDE + READ, k=chosen.randrange(4)))]
        function = _function("pass", lines)
        begin = _filled(chosen, "s = set({a})\n[s.discard(k) for k in {b}]\ns |= set({c})")
        fast = dyncomp.optimize(function, backend="eager")
        for _ in range(2):
            ours, theirs = {}, {}
            exec(begin, ours)
            exec(begin, theirs)
            assert _told(fast, ours["s"]) == _told(function, theirs["s"]), lines
            for later in ("k1", "k81", "k82"):
                ours["s"].add(later)
                theirs["s"].add(later)
            assert list(ours["s"]) == list(theirs["s"]), lines


def test_order_of_a_given_set_is_guarded():
    def listed(x, s):
        return x + 1, list(s | {"z"})

    fast = dyncomp.optimize(listed)
    for names in (["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]):
        for size in (0, 30):
            s = set(names) | {f"n{i}" for i in range(size)}
            for i in range(size):
                s.discard(f"n{i}")
            assert fast(X, s)[1] == listed(X, s)[1]


def test_pop():
    def popped(x, s):
        made = {"b", "a", "c", "d"}
        first = made.pop()
        made.add("e")
        return x * len(made), first, made.pop(), list(made)

    fast = dyncomp.optimize(popped, fullgraph=True)
    assert fast(X, {1})[1:] == popped(X, {1})[1:]

    def of_a_given_one(x, s):
        return x * s.pop(), s

    before = dyncomp.stats().graph_breaks
    assert list(dyncomp.optimize(of_a_given_one)(X, {3, 1, 2})[1]) == list(of_a_given_one(X, {3, 1, 2})[1])
    assert dyncomp.stats().graph_breaks > before
