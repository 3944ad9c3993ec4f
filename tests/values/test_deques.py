"""Deques from outside and made inside: any sequence of changes leaves what Python leaves."""

import collections

import torch
from hypothesis import given
from hypothesis import strategies as st

import dyncomp
from tests.support import check


def program(x, queue, changes):
    for name, number in changes:
        if name == "append":
            queue.append(number)
        elif name == "appendleft":
            queue.appendleft(number)
        elif name == "extend":
            queue.extend([number, number + 1])
        elif name == "pop" and queue:
            queue.pop()
        elif name == "popleft" and queue:
            queue.popleft()
        elif name == "rotate":
            queue.rotate(number % 3)
        elif name == "insert":
            try:
                queue.insert(number % 3, number)
            except IndexError as error:
                queue[-1] = str(error)
            try:
                queue[0:1]
            except TypeError as error:
                queue.append(str(error))
        elif name == "repeat":
            queue *= 2
        elif name == "join":
            queue += list(queue + queue)[:3]
            queue.extend(queue * 2)
    return x + len(queue), list(queue), queue.maxlen


_names = st.sampled_from(["append", "appendleft", "extend", "pop", "popleft", "rotate", "insert", "repeat", "join"])


@given(
    start=st.lists(st.integers(0, 9), max_size=4),
    limit=st.sampled_from([None, 1, 2, 3]),
    changes=st.lists(st.tuples(_names, st.integers(10, 20)), max_size=5),
    inside=st.booleans(),
)
def test_any_changes(start, limit, changes, inside):
    def made(x):
        queue = collections.deque(start, maxlen=limit)
        return *program(x, queue, changes), queue

    dyncomp.reset()
    if inside:
        got, want = dyncomp.optimize(made)(torch.ones(2)), made(torch.ones(2))
    else:
        mine, theirs = collections.deque(start, maxlen=limit), collections.deque(start, maxlen=limit)
        got = *dyncomp.optimize(program)(torch.ones(2), mine, changes), mine
        want = *program(torch.ones(2), theirs, changes), theirs
    assert torch.equal(got[0], want[0]) and got[1:] == want[1:] and type(got[3]) is collections.deque


def test_changed_while_it_is_iterated():
    def function(x):
        items = collections.deque([1, 2])
        try:
            for item in items:
                items.append(item)
        except RuntimeError as error:
            return x + len(items), str(error)

    check(function, torch.ones(2), backend="eager")
