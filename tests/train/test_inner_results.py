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


def halves(x, w):
    a, b = (x @ w).tanh().chunk(2)
    return a, b, (a * b).sum()


def turned(x, w):
    t = w.t()
    return t, (t - x) * x


def views_of_views(x, w):
    h = x * w
    t = h.t()
    u = t[0]
    return u, t, (u * u).sum() + t.sin().sum()


def row_first(x, w):
    t = x.t()
    return t[1], t, (t * w).sum()


def viewed_before_a_write(x, w):
    h = x * w
    t = h.t()
    h.mul_(w)
    return t, h, (t * 3).sin()


def rows(x, w):
    a, b, c, d = (x * w).unbind(0)
    return a, b * c, d, a.exp()


PROGRAMS = [chain, three, dropped, written, halves, turned, views_of_views, row_first, viewed_before_a_write, rows]


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
            results[0].grad_fn.register_prehook(lambda gradients: tuple([None if one is None else one * 2 for one in gradients]))
            total(results).backward()

        both(program, use, backend)

    def test_asked_for(self, program, backend):
        def use(results, leaves, notes):
            notes += torch.autograd.grad(total(results), [results[0]], retain_graph=True, allow_unused=True)
            notes += torch.autograd.grad(total(results), [results[0], *leaves], retain_graph=True, allow_unused=True)
            notes += torch.autograd.grad(results[-1].sum(), [results[0]], allow_unused=True)

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


def test_parts_of_one_call_share_its_node():
    def use(results, leaves, notes):
        notes.append(torch.tensor(results[0].grad_fn is results[1].grad_fn))
        notes.append(torch.tensor([one.output_nr for one in results[:2]]))
        total(results).backward()

    both(halves, use)


def read_after(x, w):
    x.mul_(w[0])
    return (x * x).sum()


def returned_too(x, w):
    x.mul_(w[0])
    return x.exp(), x, x.sin()


def seen_after(x, w):
    x.add_(w[1])
    t = x.unsqueeze(0)
    return t, (t * 3).sum()


def overwritten(x, w):
    x.copy_(w[1])
    return x.sin().sum(), w * 2


WRITTEN = [read_after, returned_too, seen_after, overwritten]
VIEWS = {
    "row": lambda base: base[1],
    "first column": lambda base: base[:, 0],
    "column": lambda base: base.t()[2],
    "part": lambda base: base.view(-1)[3:7],
    "no view": lambda base: base[0] * 2,
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("program", WRITTEN)
class TestWrittenInputs:
    """Inputs that are written in place, views of others or not."""

    def compare(self, program, view, use):
        found = []
        for side in (dyncomp.optimize(program, backend="codegen"), program):
            notes = []
            for _ in range(2):
                leaf, w = given()
                base = leaf * 1.5
                x = VIEWS[view](base)
                with config.patch(strict=True):
                    results = side(x, w)
                    last = results if torch.is_tensor(results) else results[-1]
                    use(last.sum(), x, base, notes)
                notes += [leaf.grad, w.grad, base.detach().clone(), x.detach().clone()]
            found.append(notes)
        assert_same(*found)

    def test_kept_gradients(self, program, view):
        def use(loss, x, base, notes):
            x.retain_grad()
            base.retain_grad()
            loss.backward()
            notes += [x.grad, base.grad]

        self.compare(program, view, use)

    def test_hooks(self, program, view):
        def use(loss, x, base, notes):
            for one in (x, base):
                one.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 0.5 if gradient is not None else None)
            loss.backward()

        self.compare(program, view, use)

    def test_asked_for(self, program, view):
        def use(loss, x, base, notes):
            notes += torch.autograd.grad(loss, [x], retain_graph=True, allow_unused=True)
            notes += torch.autograd.grad(loss, [base, x], allow_unused=True)

        self.compare(program, view, use)

    def test_nobody_looks(self, program, view):
        self.compare(program, view, lambda loss, x, base, notes: loss.backward())


@pytest.mark.parametrize("program", [chain, three, dropped, halves, turned, views_of_views])
class TestSecondOrder:
    """Looks at results while, and after, a backward from them is differentiated."""

    def test_penalty_on_an_inner_result(self, program):
        def use(results, leaves, notes):
            asked = torch.autograd.grad(results[-1].sum(), [results[0], *leaves], create_graph=True, allow_unused=True)
            notes += [None if one is None else one.detach() for one in asked]
            (sum((one * one).sum() for one in asked if one is not None) + results[-1].sum()).backward()

        both(program, use)

    def test_the_second_backward_is_looked_at(self, program):
        def use(results, leaves, notes):
            (slope,) = torch.autograd.grad(results[-1].sum(), leaves[0], create_graph=True)
            results[0].register_hook(lambda gradient: notes.append(gradient.detach().clone()))
            results[0].retain_grad()
            penalty = (slope * slope).sum()
            notes += torch.autograd.grad(penalty, [results[0], *leaves], retain_graph=True, allow_unused=True)
            (penalty + total(results)).backward()
            notes.append(results[0].grad)

        both(program, use)

    def test_plain_backwards_after_it_are_looked_at(self, program):
        def use(results, leaves, notes):
            later = (results[0] * 3).sum() if not results[0]._is_view() else 0
            torch.autograd.grad(results[-1].sum(), leaves[0], create_graph=True)
            results[0].register_hook(lambda gradient: gradient * 2)
            total(results).backward(retain_graph=True)
            notes += torch.autograd.grad(total(results) + later, [results[0]], allow_unused=True)

        both(program, use)


@pytest.mark.parametrize("program", [chain, three, dropped])
def test_hooks_move_on(program):
    def use(results, leaves, notes):
        results[0].register_hook(lambda gradient: notes.append(gradient.detach().clone()))
        results[0].retain_grad()
        results[0].grad_fn.register_prehook(lambda gradients: (gradients[0] * 2, *gradients[1:]))
        later = (results[0] * 3).sum()
        (slope,) = torch.autograd.grad(total(results), leaves[0], create_graph=True)
        ((slope * slope).sum() + later).backward()
        notes.append(results[0].grad)

    both(program, use)


def test_the_gradient_of_a_kept_result():
    def use(results, leaves, notes):
        results[0].retain_grad()
        (slope,) = torch.autograd.grad(results[0].sum(), leaves[0], create_graph=True)
        slope.sum().backward()
        notes.append(results[0].grad)

    both(lambda x, w: ((x * 2).exp(), w + 1), use)


def turned_square(x, w):
    t = (x * w).t()
    return t, (t * t * w).sum()


def piece_squared(x, w):
    first, second = (x.exp() * w).chunk(2)
    return first, (first * second * first).sum()


def linear_of_three(x, w):
    y = torch.nn.functional.linear(x.unsqueeze(0), w)
    return y, (y**3).sum()


@pytest.mark.parametrize("used", ["no", "hooked", "used before"])
@pytest.mark.parametrize("program", [turned_square, piece_squared, linear_of_three])
def test_hooks_on_views_with_create_graph(program, used):
    """Gradients of gradients come to them too, from inside of the call; also where something was made of the view before."""

    def use(results, leaves, notes):
        view, y = results
        more = (view * 2).sum() if used == "used before" else y
        view.retain_grad()
        if used == "hooked":
            view.register_hook(lambda gradient: notes.append(gradient.detach().clone()) or gradient * 2)
        (slope,) = torch.autograd.grad(y, leaves[0], create_graph=True)
        ((slope * slope).sum() + more).backward()
        notes.append(view.grad)

    both(program, use)


@pytest.mark.parametrize("program", [turned_square, piece_squared, linear_of_three])
def test_second_derivatives_by_a_view(program):
    def use(results, leaves, notes):
        view, y = results
        for _ in range(2):
            (slope,) = torch.autograd.grad(y, view, create_graph=True)
            notes += torch.autograd.grad(slope.pow(2).sum(), [view, *leaves], retain_graph=True)
        (slope.sum() + y).backward()

    both(program, use)


def test_looks_at_written_views_with_create_graph_are_refused_by_name():
    def program(x, w):
        x.mul_(w)
        return x * x, w + 1

    leaf, w = given()
    x = (leaf * 2)[0]
    with config.patch(strict=True):
        y, _ = dyncomp.optimize(program)(x, w[0])
        assert x.grad_fn is not None
        x.register_hook(lambda gradient: gradient * 2)
        with pytest.raises(RuntimeError, match="create_graph"):
            torch.autograd.grad(y.sum(), leaf, create_graph=True)


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
