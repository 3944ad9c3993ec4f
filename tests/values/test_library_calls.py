"""heapq, bisect, Counter, itertools, functools, operator, text of what is captured: as Python gives it, in one graph."""

import bisect
import collections
import copy
import enum
import functools
import heapq
import itertools
import operator
import random
import re
import types

import pytest
import torch

import dyncomp
from tests.support import assert_same, examples, outcome

X = torch.ones(3)
SPACE = {
    module.__name__: module for module in (bisect, collections, copy, functools, heapq, itertools, operator, re, types)
}
LINES = [
    "heapq.heapify(l)", "heapq.heappush(l, {n})", "out.append(heapq.heappop(l))", "out.append(heapq.heapreplace(l, {n}))",
    "out.append(heapq.heappushpop(l, {n}))", "out.append(heapq.nlargest({k}, l))", "out.append(heapq.nsmallest({k}, l, key=lambda v: -v))",
    "out.append(list(heapq.merge(sorted(l), {L})))", "out.append(list(heapq.merge(sorted(l, reverse=True), {L}, reverse=True, key=lambda v: v % 5)))",
    "l.sort()", "bisect.insort(l, {n})", "bisect.insort_left(l, {n}, key=lambda v: -v)", "out.append(bisect.bisect_left(l, {n}))",
    "out.append(bisect.bisect(l, {n}, 1))", "out.append(bisect.bisect_right(l, {n}, key=lambda v: v % 7))", "out.append(bisect.bisect(l, 1, -1))",
    "out.append([(k, list(g)) for k, g in itertools.groupby(l)])", "out.append([(k, next(g)) for k, g in itertools.groupby(l, key=lambda v: v % 3)])",
    "gs = list(itertools.groupby(l, lambda v: v % 2)); out.append([(k, list(g)) for k, g in gs])",
    "a, b, c = itertools.tee(l, 3); out.append((next(a, None), list(b), list(a), next(c, 9)))",
    "out.append(list(itertools.combinations_with_replacement(l[:3], 2)))",
    "out.append(sorted(l, key=functools.cmp_to_key(lambda a, b: (a % 4) - (b % 4)), reverse={k} % 2 == 0))",
    "out.append(min([*l, 3], key=functools.cmp_to_key(lambda a, b: b - a)))", "out.append(collections.Counter(l))",
    "c = collections.Counter(l); c.update({L}); c.subtract({M}); out += [c.most_common({k}), +c, c & collections.Counter({L}), list(c.elements())]",
    "c = collections.Counter(a=3, b=1); d = copy.copy(c); d['a'] -= 1; out.append((c, d, c == d, c.total()))",
    "out.append(copy.deepcopy(types.SimpleNamespace(a=l)).a)", "out.append(operator.methodcaller('index', {n})(l))",
    "out.append(operator.iconcat(l, {L}) is l)", "out.append(operator.concat(tuple(l), (1,)))", "out.append('{{:>4}}|{{}}'.format(len(l), l))",
    "out.append('%d %s %r' % ({n}, l, str(l)))", "out.append(f'{{{n}:03d}} {{l!r}} {{tuple(l)}}')", "out.append(','.join(map(str, l)))",
    "d = collections.defaultdict(list); [d[v % 3].append(v) for v in l]; out.append(dict(d))",
    "q = collections.deque(l, maxlen=4); q.rotate({k}); q.extendleft({L}); out.append(list(q))",
    "o = collections.OrderedDict((v, 1) for v in [*l, 1, 2]); o.move_to_end(1); o.move_to_end(2, last=False); out += [list(o), o.popitem(last=False)]",
    "out.append(re.compile('(1|2)+').sub('x', str(l)))", "out.append([m.group(1) for m in re.finditer('(.)1', str({L}))])",
]  # fmt: skip


def _program(chosen, first):
    def numbers(count):
        return [chosen.randrange(9) for _ in range(count)]

    lines = [
        one.format(n=chosen.randrange(12), k=chosen.randrange(1, 4), L=numbers(3), M=numbers(2))
        for one in (first, *chosen.choices(LINES, k=chosen.randrange(4)))
    ]
    space = dict(SPACE)
    exec("def f(x, l):\n    out = []\n    " + "\n    ".join([*lines, "return x + 1, out, l"]), space)
    return space["f"], "\n".join(lines)


@pytest.mark.parametrize("line", LINES)
def test_as_in_python(line):
    for seed in range(examples(3)):
        chosen = random.Random(f"{seed} {line}")
        function, text = _program(chosen, line)
        given = [chosen.randrange(10) for _ in range(chosen.randrange(9))]
        before = dyncomp.stats().graph_breaks
        fast = dyncomp.optimize(function, backend="eager")
        for _ in range(2):
            ours, theirs = list(given), list(given)
            want, error = outcome(function, (X, theirs))
            got, got_error = outcome(fast, (X, ours))
            assert repr((got, got_error, ours)) == repr((want, error, theirs)), text
        assert dyncomp.stats().graph_breaks == before or error is not None or "re.finditer" in text, text


def test_heaps_of_pairs_with_tensors():
    def nearest(x):
        heap = []
        for place, distance in enumerate((3, 1, 2)):
            heapq.heappush(heap, (distance, x * place))
        return heapq.heappop(heap)[1], [d for d, _ in heap], heapq.nsmallest(1, heap)[0][1]

    assert_same(dyncomp.optimize(nearest, fullgraph=True)(X), nearest(X))


def test_a_break_is_the_users_line():
    def smallest(x):
        heap = [x.sum(), x.sum() * 2]
        heapq.heapify(heap)
        return heap[0] * 2

    told = dyncomp.explain(smallest)(X)
    assert "stand_ins" not in str(told), told


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


NAMED, PERCENT = "{} {:.3e} {name!r}", "%d %s %5.1f %r"


def texts(x, n, r, s, flag, mode):
    known = {"n": n, "r": r}
    return (
        x + 1, f"{n} {r} {s} {flag}", f"{r:.2f} {n:>5} {s:<4}|", NAMED.format(n, r, name=s), PERCENT % (n, s, r, r),
        str(n) + repr(r) + str(flag), "-".join([s, str(n)]), f"{known} {[n, r]} {(s,)}", mode.name, Mode[mode.name] is mode, Mode(mode.value).value,
    )  # fmt: skip


def test_texts_of_numbers_are_not_fixed():
    """A number that is only written down is no reason for another version."""
    before = dyncomp.stats()

    def run(x, n, r, s):
        return x + 1, f"{n} {r:.2f} {s}", NAMED.format(n, r, name=s), PERCENT % (n, s, r, r), str(r)

    fast = dyncomp.optimize(run)
    for i in range(8):
        assert_same(fast(X, i, i / 3, f"s{i}"), run(X, i, i / 3, f"s{i}"))
    assert dyncomp.stats().graphs - before.graphs == 1
    fast = dyncomp.optimize(run, dynamic=True)
    for i in range(8):
        assert_same(fast(X, i, i / 3, f"s{i}"), run(X, i, i / 3, f"s{i}"))


def test_texts():
    fast = dyncomp.optimize(texts, backend="eager")
    for n, r, s, flag, mode in ((1, 0.5, "a", True, Mode.FAST), (-20, float("nan"), "b", False, Mode.EXACT), (3, -0.0, "", True, Mode.FAST)):
        assert_same(fast(X, n, r, s, flag, mode), texts(X, n, r, s, flag, mode))


def test_formats_that_some_numbers_do_not_have():
    def letter(x, n):
        return x + 1, f"{n:c}"

    fast = dyncomp.optimize(letter)
    for n in (65, 66, -1, 67, 1 << 40):
        want, error = outcome(letter, (X, n))
        got, got_error = outcome(fast, (X, n))
        assert repr(got_error) == repr(error)
        assert_same(got, want)


PATTERN = re.compile(r"(\w)(\d)")


def test_patterns():
    def matched(x, text):
        found = PATTERN.match(text)
        return x * int(found.group(2)), found.groups(), PATTERN.sub(r"\2\1", text), PATTERN.sub(lambda m: m[0].upper(), text)

    fast = dyncomp.optimize(matched)
    for text in ("a1b2", "c3", "d4e5"):
        assert_same(fast(X, text), matched(X, text))


def test_functions_given_to_re_run_in_each_call():
    seen = []

    def note(found):
        seen.append(found[0])
        return "b"

    fast = dyncomp.optimize(lambda x: (x + 1, re.sub("a", note, "aa")))
    for call in range(3):
        assert fast(X)[1] == "bb"
        assert len(seen) == 2 * (call + 1)


def test_bound_methods_of_c_classes_that_need_their_class():
    """CPython crashes where such a method is bound without it."""
    fast = dyncomp.optimize(lambda x, match: (x + 1, match("a1")[0]))
    for _ in range(2):
        assert fast(X, PATTERN.match)[1] == "a1"
