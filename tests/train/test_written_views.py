"""Inputs that are views and that a compiled function writes without a gradient: autograd gives them another node then, and what was
computed before the write leads to the one before, as in eager.
"""

import pytest
import torch

import dyncomp
from dyncomp import config
from tests.support import assert_same


@pytest.fixture(autouse=True)
def fresh_start(fresh):
    yield


def used_before(x, w):
    y = x * w
    with torch.no_grad():
        x.mul_(0.5)
    return y


def used_after(x, w):
    with torch.no_grad():
        x.clamp_(-1, 1)
    return x * w


def used_before_through_an_alias(x, w):
    y = x * w
    x.detach()[0].zero_()
    return y, w + 1


def never_written(x, w):
    return (x * w).sum()


VIEWS = {"row": lambda base: base[1], "turned": lambda base: base.t()[2], "no view": lambda base: base[0] * 2}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("program", [used_before, used_after, used_before_through_an_alias, never_written])
class TestNodes:
    def compare(self, program, view, use):
        found = []
        for side in (dyncomp.optimize(program, backend="codegen"), program):
            notes = []
            for _ in range(2):
                torch.manual_seed(0)
                leaf, w = torch.randn(4, 4, requires_grad=True), torch.randn(4)
                base = leaf * 1.5
                x = VIEWS[view](base)
                with config.patch(strict=True):
                    results = side(x, w)
                    loss = (results if torch.is_tensor(results) else results[0]).sum()
                    use(loss, x, notes)
                notes += [leaf.grad, x.detach().clone()]
            found.append(notes)
        assert_same(*found)

    def test_asked_for(self, program, view):
        self.compare(program, view, lambda loss, x, notes: notes.extend(torch.autograd.grad(loss, [x], allow_unused=True)))

    def test_hooks(self, program, view):
        def use(loss, x, notes):
            assert x.grad_fn is not None  # torch itself ends the process where a hook is put on a view before its new node was looked at
            x.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 2)
            loss.backward()

        self.compare(program, view, use)

    def test_nobody_looks(self, program, view):
        self.compare(program, view, lambda loss, x, notes: loss.backward())
