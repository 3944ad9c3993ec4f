"""Results of a call that its other results are made of: hooks and questions about their gradients see what flows inside."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from tests.support import assert_same


def chain(x, w):
    h = torch.tanh(x @ w)
    y = (h * h).sum() + x.sum()
    return h, y


def three(x, w):
    a = x.sin()
    b = a @ w
    c = b.relu() * a
    return a, b, c


def dropped(x, w):
    h = F.dropout(x @ w, 0.5)
    return h, F.layer_norm(h, (4,)) * w


def written(x, w):
    h = x * 2
    y = (h.exp() * w).sum()
    h = h.mul_(3)
    return h, y + h.sum()


PROGRAMS = [chain, three, dropped, written]


@pytest.fixture(autouse=True)
def fresh_start(fresh):
    yield


def given():
    torch.manual_seed(1)
    return torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


def both(program, use, backend="codegen"):
    """`use(results, leaves, notes)` on eager's results and ours; all that it notes and the leaves' gradients, twice."""
    found = []
    for side in (dyncomp.optimize(program, backend=backend), program):
        told = []
        for _ in range(2):
            leaves = given()
            torch.manual_seed(0)
            notes = []
            with config.patch(strict=True):
                results = side(*leaves)
                use(results, leaves, notes)
            told.append((notes, [leaf.grad for leaf in leaves]))
        found.append(told)
    ours, theirs = found
    assert_same(ours, theirs)


def total(results):
    return sum((one * one).sum() for one in results[1:])


@pytest.mark.parametrize("backend", ["codegen", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
class TestLooks:
    def test_kept_gradients(self, program, backend):
        def use(results, leaves, notes):
            for one in results:
                one.retain_grad()
            total(results).backward()
            notes += [one.grad for one in results]

        both(program, use, backend)

    def test_hooks(self, program, backend):
        def use(results, leaves, notes):
            results[0].register_hook(lambda gradient: notes.append(gradient.clone()))
            results[0].register_hook(lambda gradient: gradient * 0.5)
            total(results).backward()

        both(program, use, backend)

    def test_hooks_on_nodes(self, program, backend):
        def use(results, leaves, notes):
            results[0].grad_fn.register_prehook(lambda gradients: tuple(None if one is None else one * 2 for one in gradients))
            total(results).backward()

        both(program, use, backend)

    def test_asked_for(self, program, backend):
        def use(results, leaves, notes):
            notes += torch.autograd.grad(total(results), [results[0]], retain_graph=True)
            notes += torch.autograd.grad(total(results), [results[0], *leaves], retain_graph=True)
            notes += torch.autograd.grad(results[-1].sum(), [results[0]])

        both(program, use, backend)

    def test_nobody_looks(self, program, backend):
        def use(results, leaves, notes):
            total(results).backward()

        both(program, use, backend)
        assert "backward-by-results-eager" not in dyncomp.stats().fallbacks

    def test_a_gradient_of_its_own_too(self, program, backend):
        def use(results, leaves, notes):
            results[0].retain_grad()
            (total(results) + results[0].sum()).backward(retain_graph=True)
            torch.autograd.backward([results[0].sum(), results[-1].sum()])
            notes.append(results[0].grad)

        both(program, use, backend)


def test_with_create_graph_it_is_refused_by_name():
    x, w = given()
    with config.patch(strict=True):
        h, y = dyncomp.optimize(chain)(x, w)
        with pytest.raises(RuntimeError, match="create_graph"):
            torch.autograd.grad(y, h, create_graph=True)


def test_under_compiled_autograd():
    def use(results, leaves, notes):
        results[0].register_hook(lambda gradient: notes.append(gradient.clone()))
        with dyncomp.enable(compiled_autograd=True):
            total(results).backward()

    both(chain, use)


def test_it_is_counted():
    x, w = given()
    h, y = dyncomp.optimize(chain)(x, w)
    h.retain_grad()
    y.backward()
    assert dyncomp.stats().fallbacks["backward-by-results-eager"] == 1
