"""Frames whose first call runs no tensor operation are asked about again, a bounded number of times."""

import contextlib

import pytest
import torch

import dyncomp
from dyncomp import driver, patience


@pytest.fixture
def traced(monkeypatch):
    """Names of the functions that were traced, in order."""
    names = []
    trace_frame = driver.interp.trace_frame

    def noting(func, args, owner):
        names.append(func.__name__)
        return trace_frame(func, args, owner)

    monkeypatch.setattr(driver.interp, "trace_frame", noting)
    return names


def optional(x=None, scale=2):
    return None if x is None else torch.sin(x) * scale


def switched(x, on):
    return x.exp() - 1 if on else x


class Drop(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5) if self.training else x


def early_print(x, out):
    if x is None:
        print("nothing", file=out)
        return 0
    return x.cos() + 1


def test_an_argument_that_brings_a_tensor(fresh):
    fast, x = dyncomp.optimize(optional), torch.rand(4)
    assert fast() is None and dyncomp.stats().graphs == 0
    for _ in range(3):
        torch.testing.assert_close(fast(x), optional(x))
    assert fast(None, 3) is None
    torch.testing.assert_close(fast(x), optional(x))
    assert dyncomp.stats().graphs == 1


def test_a_branch_that_is_taken_later(fresh, traced):
    fast, x = dyncomp.optimize(switched), torch.rand(4)
    for _ in range(3):
        assert fast(x, False) is x
    assert traced == ["switched"]  # its guards tell that the other calls are alike
    torch.testing.assert_close(fast(x, True), x.exp() - 1)
    assert dyncomp.stats().graphs == 1
    for _ in range(3):
        assert fast(x, False) is x
        torch.testing.assert_close(fast(x, True), x.exp() - 1)
    assert len(traced) == 3 and dyncomp.stats().graphs == 1  # what was idle is a version like others now


def test_a_frame_behind_a_break(fresh):
    def outer(x, drop):
        print(end="")
        return drop(x) + 1

    drop, other = Drop().eval(), Drop().eval()
    fast, x = dyncomp.optimize(outer), torch.rand(40)
    for training in (False, True, False, True):
        results = []
        for module, call in ((drop, fast), (other, outer)):
            module.train(training)
            torch.manual_seed(3)
            results += [call(x, module), torch.get_rng_state()]
        assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])


def test_a_break_before_any_tensor(fresh, tmp_path):
    fast, x = dyncomp.optimize(early_print), torch.rand(4)
    with (tmp_path / "out").open("w") as out:
        assert fast(None, out) == 0 and dyncomp.stats().graphs == 0
        torch.testing.assert_close(fast(x, out), x.cos() + 1)
        assert fast(None, out) == 0
    assert (tmp_path / "out").read_text() == "nothing\n" * 2
    assert dyncomp.stats().graphs == 1


def test_left_alone_in_the_end(fresh, monkeypatch):
    asked = []
    monkeypatch.setattr(patience, "answer_again", lambda *a, real=patience.answer_again: asked.append(a) or real(*a))
    monkeypatch.setattr(driver, "answer_again", patience.answer_again)
    fast, x = dyncomp.optimize(switched), torch.rand(4)
    for _ in range(100):
        assert fast(x, False) is x
    assert len(asked) <= patience._CALLS + 1
    torch.testing.assert_close(fast(x, True), x.exp() - 1)
    assert dyncomp.stats().graphs == 0


def test_traces_are_bounded(fresh, traced):
    def count(x, n):
        return n + 1

    fast, x = dyncomp.optimize(count), torch.rand(4)
    assert [fast(x, i) for i in range(40)] == list(range(1, 41))
    assert len(traced) <= patience._TRACES


def test_calls_that_bring_no_tensor_are_not_traced_again(fresh, traced):
    def count(n):
        return n + 1

    with dyncomp.enable():
        assert [count(i) for i in range(40)] == list(range(1, 41))
    assert traced.count("count") == 1


def test_reset_begins_anew(fresh, traced):
    fast, x = dyncomp.optimize(switched), torch.rand(4)
    for _ in range(3):
        fast(x, False)
        dyncomp.reset()
    assert traced == ["switched"] * 3


def test_global_state_is_among_what_makes_calls_alike(fresh):
    def f(x):
        return x * 2 if torch.is_grad_enabled() else x

    fast, x = dyncomp.optimize(f), torch.rand(3)
    for enabled in (False, False, True, False, True):
        with torch.no_grad() if not enabled else contextlib.nullcontext():
            torch.testing.assert_close(fast(x), f(x))
    assert dyncomp.stats().graphs == 1
