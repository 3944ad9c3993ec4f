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


def part_written(x, w):
    v = x[1:]
    with torch.no_grad():
        v.relu_()
    return v, w + 1


def result_written(x, w):
    h = x * w
    t = h[1:]
    with torch.no_grad():
        h.mul_(2)
    return t, h


def doubled(x, w):
    x.mul_(w)
    return (x + 1, w + 1)


def through_a_view(x, w):
    v = x.unsqueeze(0)
    v *= w
    return v, w + 1


def read_and_written(x, w):
    x.add_(x * w)
    return x * 2, w + 1


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("program", [part_written, result_written, doubled, through_a_view])
class TestViewsOfWhatIsWritten:
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
                    use(lambda side=side, x=x, w=w: side(x, w), x, base, notes)
                notes += [leaf.grad, x.detach().clone()]
            found.append(notes)
        assert_same(*found)

    def test_hooks_from_before(self, program, view):
        def use(call, x, base, notes):
            x.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 2)
            call()[0].sum().backward()

        self.compare(program, view, use)

    def test_looks_afterwards(self, program, view):
        def use(call, x, base, notes):
            first, *_ = call()
            assert x.grad_fn is not None and base.grad_fn is not None
            x.retain_grad()
            notes += torch.autograd.grad(first.sum(), [x, base], retain_graph=True, allow_unused=True)
            first.sum().backward()
            notes.append(x.grad)

        self.compare(program, view, use)

    def test_gradients_laid_out_otherwise(self, program, view):
        def use(call, x, base, notes):
            first, *_ = call()
            notes += torch.autograd.grad(first, [base], torch.ones(*first.shape, 2)[..., 0])

        self.compare(program, view, use)


def test_what_is_read_and_written_gives_the_same_gradient():
    found = []
    for side in (dyncomp.optimize(read_and_written, backend="codegen"), read_and_written):
        torch.manual_seed(0)
        leaf, w = torch.randn(4, 4, requires_grad=True), torch.randn(4)
        x = (leaf * 1.5)[1]
        side(x, w)[0].sum().backward()
        found.append((leaf.grad, x.detach()))
    assert_same(*found)


def test_views_that_autograd_refuses_run_as_python():
    """Where the graph broken before such a view is used, and where eager does not raise since it needs no gradient."""

    def program(x):
        first, second = x.chunk(2, 0)
        x.transpose_(0, -1)  # breaks the graph
        with torch.no_grad():
            return first.max() + second.sum()

    found = []
    for side in (dyncomp.optimize(program), program):
        leaf = torch.arange(6.0).view(3, 2).requires_grad_()
        with config.patch(strict=True):
            try:
                found.append(side((leaf + 1).t()))
            except RuntimeError as error:
                found.append(str(error)[:80])
    assert_same(*found)
