"""`types.SimpleNamespace`: a C class whose objects are a `__dict__`."""

import types

import pytest
import torch

import dyncomp


def whole(f, *args):
    """The result; one graph and no break."""
    fast = dyncomp.optimize(f, fullgraph=True)
    return fast(*args), fast


def test_attributes_are_read_and_guarded():
    def f(x, options):
        return x * options.inner.scale if options.inner.kind is None else x

    options = types.SimpleNamespace(inner=types.SimpleNamespace(kind=None, scale=torch.full((2,), 3.0)))
    got, fast = whole(f, torch.ones(2), options)
    assert torch.equal(got, f(torch.ones(2), options))
    options.inner.kind = "off"
    assert torch.equal(fast(torch.ones(2), options), torch.ones(2))


def test_writes_deletes_and_dict_reach_the_object():
    def f(x, state):
        state.count += 1
        state.last = x + state.count
        del state.gone
        vars(state)["raw"] = len(state.__dict__)
        return state.last * 2

    mine, theirs = (types.SimpleNamespace(count=1, gone=None) for _ in range(2))
    got, _ = whole(f, torch.ones(2), mine)
    assert torch.equal(got, f(torch.ones(2), theirs))
    assert torch.equal(mine.last, theirs.last)
    assert list(vars(mine)) == list(vars(theirs)) and (mine.count, mine.raw) == (theirs.count, theirs.raw)


def test_made_inside_it_leaves_as_what_it_is():
    class Mine(types.SimpleNamespace):
        def total(self):
            return self.a + self.b

    def f(x):
        made = Mine(a=x, b=x * 2)
        made.c = types.SimpleNamespace()
        return made, made.total()

    (made, total), _ = whole(f, torch.ones(2))
    assert type(made) is Mine and type(made.c) is types.SimpleNamespace and list(vars(made)) == ["a", "b", "c"]
    assert torch.equal(total, torch.full((2,), 3.0)) and torch.equal(made.b, torch.full((2,), 2.0))


@pytest.mark.parametrize("other", [{"k": 1}, {"k": 2}, {}])
def test_two_are_equal_when_their_attributes_are(other):
    def f(x, a, b):
        return (x + 1 if a == b else x - 1), a != b, a == 3

    a, b = types.SimpleNamespace(k=1), types.SimpleNamespace(**other)
    got, _ = whole(f, torch.ones(2), a, b)
    want = f(torch.ones(2), a, b)
    assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


def test_a_missing_attribute_and_hash_raise_as_in_eager():
    def missing(x, a):
        try:
            return a.nothing
        except AttributeError as error:
            return x + 1, str(error)

    def hashed(x, a):
        try:
            return {a: x}
        except TypeError as error:
            return x + 1, str(error)

    for f in (missing, hashed):
        got = dyncomp.optimize(f)(torch.ones(2), types.SimpleNamespace())
        want = f(torch.ones(2), types.SimpleNamespace())
        assert torch.equal(got[0], want[0]) and got[1] == want[1]
