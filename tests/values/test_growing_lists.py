"""Lists that grow by an item a call are compiled once or twice, not once a length."""

import pytest
import torch

import dyncomp

X = torch.arange(6.0).reshape(2, 3)


def appends(history, x):
    history.append(x + 1)
    return x * 2


def reads_the_last(history, x):
    history.append(x.sum())
    return x + history[-1]


def counts(history, x):
    history.append(x.sum())
    return x * 2, len(history)


def asks_how_many(history, x):
    history.extend([x.sum(), x])
    return (x * 2 if len(history) > 3 else x), len(history) % 3


def asks_whether_any(history, x):
    first = not history
    history += [x]
    return x * 2, first


def reads_the_first(history, x):
    history.append(x.mean())
    return x + history[0]


def scales(history, x):
    history.append(1)
    return x / len(history)


def pushes_and_pops(history, x):
    history.append(x + 1)
    history.append(history[-1] * 2)
    return history.pop() + x


PROGRAMS = {appends: 1, reads_the_last: 1, counts: 2, asks_how_many: 3, asks_whether_any: 2, reads_the_first: 2, scales: 2, pushes_and_pops: 1}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_few_compiles(fresh, program):
    fast = dyncomp.optimize(program, backend="eager")
    mine, theirs = [], []
    for i in range(12):
        got, expected = fast(mine, X + i), program(theirs, X + i)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert dyncomp.stats().graphs <= PROGRAMS[program]
    assert not dyncomp.stats().fallbacks


def test_an_item_that_is_gone_is_noticed(fresh):
    fast = dyncomp.optimize(lambda items, x: x + items[1], backend="eager")
    assert fast([1, 2, 3], X).equal(X + 2)
    assert fast([1, 2], X).equal(X + 2)
    with pytest.raises(IndexError):
        fast([1], X)
