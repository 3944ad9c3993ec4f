"""Inputs that are views and that a compiled function writes. Without a gradient autograd gives them another node then, and what was
computed before the write leads to the one before; with one the base gets another node, which what is made of other views leads to at once.
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


def compare(program, view, use, **tolerances):
    """`use(call, x, base, notes)` puts all that it sees into `notes`; `call()` runs the program on x, a view of base."""
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
    assert_same(*found, **tolerances)


def sum_of_first(results):
    return (results if torch.is_tensor(results) else results[0]).sum()


VIEWS = {"row": lambda base: base[1], "turned": lambda base: base.t()[2], "no view": lambda base: base[0] * 2}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("program", [used_before, used_after, used_before_through_an_alias, never_written])
class TestNodes:
    def test_asked_for(self, program, view):
        def use(call, x, base, notes):
            notes += torch.autograd.grad(sum_of_first(call()), [x], allow_unused=True)

        compare(program, view, use)

    def test_hooks(self, program, view):
        def use(call, x, base, notes):
            loss = sum_of_first(call())
            assert x.grad_fn is not None  # torch itself ends the process where a hook is put on a view before its new node was looked at
            x.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 2)
            loss.backward()

        compare(program, view, use)

    def test_nobody_looks(self, program, view):
        compare(program, view, lambda call, x, base, notes: sum_of_first(call()).backward())


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
    def test_hooks_from_before(self, program, view):
        def use(call, x, base, notes):
            x.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 2)
            call()[0].sum().backward()

        compare(program, view, use)

    def test_looks_afterwards(self, program, view):
        def use(call, x, base, notes):
            first, *_ = call()
            assert x.grad_fn is not None and base.grad_fn is not None
            x.retain_grad()
            notes += torch.autograd.grad(first.sum(), [x, base], retain_graph=True, allow_unused=True)
            first.sum().backward()
            notes.append(x.grad)

        compare(program, view, use)

    def test_gradients_laid_out_otherwise(self, program, view):
        def use(call, x, base, notes):
            first, *_ = call()
            notes += torch.autograd.grad(first, [base], torch.ones(*first.shape, 2)[..., 0])

        compare(program, view, use)


def through_another_view(x, w):
    v = x.unsqueeze(0)
    v.mul_(w)
    return (v[0] @ v[0]) * v, w + 1


def added_to_itself(x, w):
    x.add_(x)
    return x * w, x.t() if x.dim() == 2 else x + 1


def used_and_rectified(x, w):
    y = x * w
    x.relu_()
    return y, x * 3, x


def view_from_before(x, w):
    v = x.view(2, 2)
    x.mul_(w)
    return v * v, x.sum(), v


def overwritten_inside(x, w):
    y = x + w
    x.copy_(y * y)
    x[0] = 1
    return x * y, y


def zeroed_between(x, w):
    y = x * w
    with torch.no_grad():
        x.zero_()
    return y, x + w, x[1:]


LOOKED_AT = [through_another_view, added_to_itself, used_and_rectified, view_from_before, overwritten_inside, zeroed_between]


def total(results, *tensors):
    """All that asks for gradients, each with a weight of its own."""
    flat = [*(results if isinstance(results, tuple) else [results]), *tensors]
    return sum([(one * (k + 1)).sum() for k, one in enumerate(flat) if one.requires_grad])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("program", LOOKED_AT)
class TestWhichWayGradientsGo:
    """What passes by the input, and what goes to its base at once."""

    def test_gradients_kept_from_before(self, program, view):
        def use(call, x, base, notes):
            x.retain_grad()
            base.retain_grad()
            total(call(), x, base).backward()
            notes += [x.grad, base.grad]

        compare(program, view, use)

    def test_hooks_from_before(self, program, view):
        def use(call, x, base, notes):
            x.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 2)
            base.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 3)
            total(call(), x, base).backward()

        compare(program, view, use)

    def test_hooks_from_afterwards(self, program, view):
        def use(call, x, base, notes):
            results = call()
            assert x.grad_fn is not None and base.grad_fn is not None
            x.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 2)
            base.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 3)
            total(results).backward()

        compare(program, view, use)

    def test_asked_for(self, program, view):
        def use(call, x, base, notes):
            results = call()
            for first in results:
                if first.requires_grad:
                    notes += torch.autograd.grad(first.sum(), [x, base], retain_graph=True, allow_unused=True)
            notes += torch.autograd.grad(total(results), [x, base], allow_unused=True)

        compare(program, view, use)

    def test_second_order(self, program, view):
        def use(call, x, base, notes):
            before = torch.autograd.graph.get_gradient_edge(base)
            results = call()
            (first,) = torch.autograd.grad((total(results, base) ** 2).sum(), [before], create_graph=True)
            notes.append(first.detach())
            if first.requires_grad:
                (first**2).sum().backward()

        compare(program, view, use, rtol=1e-4, atol=1e-4)


def test_each_kind_of_input_is_one_program():
    """Views, others, views again: none is compiled twice."""
    fast = dyncomp.optimize(added_to_itself, backend="codegen")
    for view in ("row", "no view", "row", "no view"):
        leaf = torch.ones(4, 4, requires_grad=True)
        with config.patch(strict=True):
            fast(VIEWS[view](leaf * 2), torch.ones(4))[0].sum().backward()
    assert (dyncomp.stats().recompiles, dyncomp.stats().fallbacks) == (0, {})


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
