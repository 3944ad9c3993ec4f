"""Lists, tuples, dictionaries, sets, deques, iterators: made inside, read from outside, changed outside."""

import collections
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interp.tracing import X, broken, guards, trace, whole

Pair = collections.namedtuple("Pair", "left right")


def list_methods(x):
    items = [3, 1, 2]
    items.append(5)
    items.extend((7, 8))
    items.insert(1, 9)
    items.remove(1)
    last = items.pop()
    items.sort(key=lambda v: -v)
    items.reverse()
    found = (
        items.index(9),
        items.count(3),
        items * 2,
        items + [1],
        9 in items,
        items == list(items),
        items < [99],
    )
    return x + last, items, found, items.copy()


def tuple_methods(x):
    t = (1, 2, x)
    return t[2] * t[0], t[::-1][1:], t + (4,), len(t), t.index(2), tuple(v for v in (1, 2))


def named_tuples(x):
    p = Pair(x, right=3)
    left, right = p
    return p._replace(right=5), p.left * right, p._fields, p == (left, 3), Pair._make([1, 2])._asdict()


def dict_methods(x):
    d = {"a": 1, **{"b": 2}}
    d.update(c=3)
    d |= {"d": 4}
    popped = d.pop("a"), d.pop("zz", 0), d.setdefault("e", 5), d.get("q"), d.get("q", 1)
    total = sum(d.values())
    return (
        x + total,
        d,
        popped,
        list(d),
        list(d.items()),
        "b" in d,
        d == dict(d),
        d.keys() & {"b"},
        list(reversed(d)),
    )


def dict_kinds(x):
    o = collections.OrderedDict(a=x)
    o["b"] = 2
    o.move_to_end("a")
    g = collections.defaultdict(list)
    g["k"].append(x + 1)
    return o, g["k"], list(o), o.popitem(), dict.fromkeys("ab", 0)


def set_methods(x):
    s = {1, 2, 3}
    s.add(4)
    s.discard(1)
    s |= {9}
    answers = (
        s & {2, 3},
        s - {2},
        s ^ {2, 50},
        s <= {2, 3, 4, 9, 10},
        s.isdisjoint({7}),
        frozenset(s) | {1},
        4 in s,
    )
    return x + len(s), sorted(s), [sorted(a) if isinstance(a, (set, frozenset)) else a for a in answers]


def deques(x):
    d = collections.deque([1, 2, 3], maxlen=3)
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    return x + d.popleft(), list(d)


def iteration_tools(x):
    out = [
        list(enumerate("ab", 1)),
        list(zip([1, 2], "ab", strict=True)),
        list(map(lambda a, b: a + b, [1, 2], [3, 4])),
        list(filter(None, [0, 1, 2])),
        list(reversed([1, 2])),
        sorted([3, 1, 2], reverse=True),
        max([1, 5, 2], key=lambda v: -v),
        min(3, 2),
        any(v > 1 for v in [1, 2]),
        all([]),
        sum([1.5, 2], 1),
        list(itertools.chain([1], (2,))),
        list(itertools.islice(itertools.count(2, 3), 1, 4)),
        list(itertools.product([1, 2], "a")),
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.combinations([1, 2, 3], 2)),
        list(itertools.chain.from_iterable([[1], [2]])),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
        list(itertools.takewhile(lambda v: v < 2, [1, 2, 1])),
        list(itertools.repeat(1, 2)),
        list(range(5, 0, -2)),
    ]
    return x + 1, out


PROGRAMS = [
    list_methods,
    tuple_methods,
    named_tuples,
    dict_methods,
    dict_kinds,
    set_methods,
    deques,
    iteration_tools,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_made_inside(program):
    whole(program)


# -- from outside --------------------------------------------------------------------------------------------
def read_structure(x, tree):
    total = x
    for part in tree["list"]:
        total = total + part
    return total * tree["pair"][1] + tree["nested"]["k"].sum()


def test_read_from_outside():
    tree = {"list": [X, X + 1], "pair": (1, 2), "nested": {"k": X}}
    whole(read_structure, X, tree)


def change_list(x, items):
    items.append(x + 1)
    items[0] = 7
    items += [x]
    return x * len(items)


def change_dict(x, table):
    table["new"] = x * 2
    table["old"] = 5
    del table["gone"]
    table.setdefault("other", []).append(1)
    return x + table["old"]


def change_set(x, members):
    members.add("c")
    members.discard("a")
    return x + len(members)


def change_deque(x, queue):
    queue.append(3)
    queue.popleft()
    return x + queue[0]


@pytest.mark.parametrize(
    ("program", "argument"),
    [
        (change_list, [1, 2]),
        (change_dict, {"old": 1, "gone": 2}),
        (change_set, {"a", "b"}),
        (change_deque, collections.deque([1, 2])),
    ],
    ids=lambda a: getattr(a, "__name__", ""),
)
def test_changes_are_replayed(program, argument):
    whole(program, X, argument)


def aliased(x, a, b):
    a.append(1)
    return x + len(b)


def test_one_list_twice_and_two_lists():
    import dyncomp

    fast = dyncomp.optimize(aliased, backend="eager")
    shared = [0]
    assert fast(X, shared, shared).equal(X + 2)
    assert fast(X, [0], [0]).equal(X + 1)
    shared = [0]
    assert fast(X, shared, shared).equal(X + 2)


def appends_only(x, log):
    log.append(x.dim())
    return x + 1


def test_appending_needs_no_guard_on_the_length():
    assert not any("len(L['log'])" in text for text in guards(appends_only, X, [1]))


def reads_one_key(x, table):
    table["y"] = x
    return table["x"] + x


def test_reading_a_key_guards_that_key_alone():
    texts = guards(reads_one_key, X, {"x": X, "other": 3})
    assert not any("list(L['table'])" in text or "other" in text for text in texts)


def half_used(x):
    it = iter([1, 2, 3])
    pairs = zip([1, 2, 3], "abc", strict=True)
    next(it), next(pairs)
    y = x + 1
    print(end="")
    return y, list(it), list(pairs)


def test_half_used_iterators_survive_a_break():
    broken(half_used, breaks=None)


def returns_iterators(x):
    counted = enumerate([5, 6])
    next(counted)
    return x + 1, counted, map(len, ["a"]), filter(None, [0, 1])


def test_iterators_can_be_returned():
    import dyncomp

    fast = dyncomp.optimize(returns_iterators, backend="eager")
    for _ in range(2):
        _, counted, mapped, filtered = fast(X)
        assert (list(counted), list(mapped), list(filtered)) == ([(1, 6)], [1], [1])
    assert trace(returns_iterators).breaks == []


def shares_and_cycles(x):
    inner = [x + 1]
    outer = {"a": inner, "b": inner}
    inner.append(outer)
    return outer


def test_shared_and_cyclic_results():
    import dyncomp

    got = dyncomp.optimize(shares_and_cycles, backend="eager")(X)
    assert got["a"] is got["b"] and got["a"][1] is got


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 9)),
            st.tuples(st.just("pop"), st.integers(-4, 4)),
            st.tuples(st.just("insert"), st.integers(-4, 4)),
            st.tuples(st.just("reverse"), st.just(0)),
            st.tuples(st.just("set"), st.integers(-4, 4)),
        ),
        max_size=8,
    )
)
def test_random_list_programs(steps):
    def program(x, items, steps):
        for name, n in steps:
            try:
                if name == "append":
                    items.append(n)
                elif name == "pop":
                    items.pop(n)
                elif name == "insert":
                    items.insert(n, x)
                elif name == "set":
                    items[n] = n
                else:
                    items.reverse()
            except IndexError:
                items.append("error")
        return x + len(items)

    import dyncomp

    ours, theirs = [1, 2], [1, 2]
    want = program(X, theirs, steps)
    got = dyncomp.optimize(program, backend="eager")(X, ours, steps)
    assert got.equal(want) and [type(v) for v in ours] == [type(v) for v in theirs]
    assert [v for v in ours if v is not X] == [v for v in theirs if v is not X]
    assert torch.equal(got, want)


FUNCTIONS = frozenset({len, torch.sin, collections.namedtuple, dict})


def test_frozen_sets_of_functions():
    whole(lambda x: x + 1 if collections.namedtuple in FUNCTIONS and torch.cos not in FUNCTIONS else x - 1)
    whole(lambda x: (x + len(FUNCTIONS), dict in FUNCTIONS, FUNCTIONS >= {torch.sin}))


def test_results_with_names_are_made():
    whole(lambda x: torch.return_types.max([x + 1, x * 2]).indices)
    whole(lambda x: (torch.return_types.sort((x, x + 1)), x * 2))
