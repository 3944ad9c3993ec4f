"""Results that are views of values which the program does not return: to autograd they are what they are in eager."""

import functools

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from tests.support import assert_same


def viewed(x, w):
    return (x @ w).view(2, 2, 4)


def turned(x, w):
    return (x * w).t()


def row(x, w):
    return x.exp()[1] * 1, (x * w)[2]


def half(x, w):
    return (x @ w).chunk(2)[1]


def rows(x, w):
    return (x @ w).tanh().unbind(0)[1:]


def pieces_of_a_piece(x, w):
    a, b = (x @ w).split(2)
    return a.split(1)


def piece_without_its_base(x, w):
    return (x * w).chunk(2)[0].unbind(1)[2:]


def deep(x, w):
    return (x @ w).relu().view(2, 2, 4)[1].t()[1:, None].expand(3, 2, 2)


def beside_what_is_made_of_it(x, w):
    h = (x @ w).view(2, 8)
    return h, (h * h).sum()


def two_bases(x, w):
    return (x * 2).t(), (w.sin() * x)[0], x.t()


def written_base(x, w):
    h = x * w
    t = h.t()
    h.mul_(w)
    return t


def written_view(x, w):
    h = x * w
    t = h[1]
    t.mul_(w[0])
    return t


def view_of_written(x, w):
    h = x * w
    h.sin_()
    return h[1:]


def unsafe(x, w):
    return (x.view(2, 2, 4) @ w)[0]


def linear(x, w):
    return F.linear(x.view(2, 2, 4), w, w[0])


def scalar(x, w):
    return (x * w).sum(0)[1]


def parts_of_heads(x, w):
    q, k = (x @ w).view(2, 2, 4).split(2, -1)
    return q.transpose(0, 1), k.transpose(0, 1)


def filled(x, w):
    h = torch.zeros(4, 4)
    h[1] = x[0] * w[1]
    return h.view(-1)


def pass_through(x, w):
    return (x @ w).view(2, 8).view_as(w.view(2, 8)).detach() + 1, (x @ w).view(16)[3:5]


def flat(x, w):
    return (x + w).flatten(), (x - w).reshape(8, 2)


def moved(x, w):
    return (x * w).t().reshape(16), (x - w).t().contiguous().view(16)


def unfolded(x, w):
    return (x * w).unfold(1, 2, 1)


def diagonal(x, w):
    return (x @ w).diagonal(1)


def strided(x, w):
    return (x @ w).as_strided((2, 2), (5, 1), 3)


PROGRAMS = [
    viewed, turned, row, half, rows, pieces_of_a_piece, piece_without_its_base, deep, beside_what_is_made_of_it, two_bases, written_base, written_view,
    view_of_written, unsafe, linear, scalar, parts_of_heads, filled, pass_through, flat, moved, unfolded, diagonal,
]  # fmt: skip


@pytest.fixture(autouse=True)
def fresh_start(fresh):
    yield


def given():
    torch.manual_seed(1)
    return torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


def told(results):
    """All that autograd shows of results, and which nodes their views share."""
    numbers, found = {}, []
    for one in results:
        base = one._base
        found.append({
            "view": one._is_view(), "base": None if base is None else tuple(base.shape), "offset": one.storage_offset(), "version": one._version,
            "bytes": one.untyped_storage().nbytes(), "leaf": one.is_leaf, "requires_grad": one.requires_grad, "strides": tuple(one.stride()),
            "nodes": [(numbers.setdefault(node, len(numbers)), node.name()) for node in _nodes(one)],
        })  # fmt: skip
    return found


def _nodes(one):
    """Those of a view before that of its base."""
    found = []
    if one._is_view() and one.requires_grad:
        node, base = one.grad_fn, one._base
        while node is not base.grad_fn and getattr(node, "variable", None) is not base:
            found.append(node)
            node = node.next_functions[0][0]
    return found


def both(program, use, backend="codegen", strict=True, calls=2):
    found = []
    for side in (dyncomp.optimize(program, backend=backend), program):
        notes = []
        for _ in range(calls):
            leaves = given()
            torch.manual_seed(0)
            with config.patch(strict=strict):
                results = side(*leaves)
                results = results if isinstance(results, tuple) else (results,)
                try:
                    use(results, leaves, notes)
                except RuntimeError as error:
                    notes.append(str(error).partition(": [")[0])
            notes.append([leaf.grad for leaf in leaves])
        found.append(notes)
    ours, theirs = found
    assert_same(ours, theirs)
    return theirs


def total(results):
    return sum((one * one).sum() for one in results if one.requires_grad)


@pytest.mark.parametrize("backend", ["codegen", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
class TestAsInEager:
    def test_what_autograd_shows(self, program, backend):
        def use(results, leaves, notes):
            notes += told(results)
            notes += [one.detach().clone() for one in results]
            total(results).backward()

        both(program, use, backend)
        assert "training-graph-eager" not in dyncomp.stats().fallbacks

    def test_kept_gradients_and_hooks(self, program, backend):
        def use(results, leaves, notes):
            for one in results:
                if one.requires_grad:
                    one.retain_grad()
                    one.register_hook(lambda gradient: notes.append(gradient.clone()) or gradient * 0.5)
            total(results).backward()
            notes += [one.grad for one in results if one.requires_grad]

        both(program, use, backend)

    def test_asked_for(self, program, backend):
        def use(results, leaves, notes):
            asked = [one for one in results if one.requires_grad]
            notes += torch.autograd.grad(total(results), [*asked, *leaves], retain_graph=True, allow_unused=True)
            notes += torch.autograd.grad(total(results), leaves, allow_unused=True)

        both(program, use, backend)

    def test_second_order(self, program, backend):
        def use(results, leaves, notes):
            slopes = torch.autograd.grad(total(results), leaves, create_graph=True, allow_unused=True)
            sum((one * one).sum() for one in slopes if one is not None and one.requires_grad).backward()

        both(program, use, backend)


WRITES = {
    "write": lambda one: one.mul_(2),
    "write under no_grad": lambda one: torch.no_grad()(one.mul_)(2),
    "detach": lambda one: one.detach_(),
    "write to a view": lambda one: one.view_as(one).add_(1),
    "copy": lambda one: one.copy_(torch.ones_like(one).requires_grad_()),
    "turn": lambda one: one.unsqueeze_(0),
    "requires_grad": lambda one: one.requires_grad_(False),
    "write to the base": lambda one: one._base.mul_(2),
    "write to the base under no_grad": lambda one: torch.no_grad()(one._base.mul_)(2),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_writes(program, write):
    def use(results, leaves, notes):
        one = next(one for one in results if one._is_view())
        later = (one * 3).sum() if one.requires_grad else 0
        WRITES[write](one)
        notes.append(one.grad_fn is not None and one.grad_fn.name())
        notes += [each.detach().clone() for each in results]
        notes += [each._version for each in results]
        (total(results) + later).backward()

    both(program, use)


def of_two_pieces(x, w):
    a, b = (x @ w).chunk(2)
    return a[0], b[0]


def of_one_turned(x, w):
    t = (x @ w).t()
    return t[0], t[1]


def of_a_turned_input(x, w):
    t = x.t()
    return t[0], t[1:], t[1:].unbind(0)[0]


def heads(x, w):
    q, k, v = (x @ torch.cat([w, w, w], 1)).view(2, 2, 12).split(4, -1)
    return q.view(2, 2, 2, 2).transpose(1, 2), k.view(2, 2, 2, 2).transpose(1, 2), v


def tree(x, w):
    a, b = (x @ w).chunk(2)
    c, d = a.chunk(2, 1)
    e, f = c.unbind(0)
    return e[0], f, d.t(), b[0], b[1], (b * b).sum()


def beside_the_base(x, w):
    h = x * w
    t = h.t()
    return h, t[0], t[1], t[1:].t()


def turned_before_a_write(x, w):
    h = x * w
    t = h.t()
    h.mul_(w)
    return t[0], t[1]


def piece_and_rows_of_the_other(x, w):
    a, b = (x * w).chunk(2)
    return b[0], a, b[1].view(2, 2)


def piece_of_a_written_piece(x, w):
    h = x * w
    a = h[1:3]
    a.mul_(w[:2])
    return a[0]


def after_each_write(x, w):
    h = x * w
    t = h.t()
    u = t[1:]
    h.mul_(w)
    v = u[0]
    h.add_(1)
    return v, u[1], t[0]


SHARING = [
    piece_of_a_written_piece, after_each_write,
    piece_and_rows_of_the_other, turned_before_a_write, half, rows, pieces_of_a_piece, piece_without_its_base, parts_of_heads, of_two_pieces, of_one_turned, of_a_turned_input, heads, tree,
    beside_the_base,
]  # fmt: skip


def by_sizes(x, w):
    q, k = (x @ w).view(-1, 2, 2).split(1, 1)
    return q.transpose(0, 1), k.transpose(0, 1), (x * 2)[x.shape[0] // 2 :].t(), q.unbind(2)[1]


@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
def test_sizes_that_vary(options):
    found = []
    for side in (dyncomp.optimize(by_sizes, **options), by_sizes):
        notes = []
        for rows in (4, 6, 8, 5):
            torch.manual_seed(rows)
            x, w = torch.randn(rows, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
            with config.patch(strict=True):
                results = side(x, w)
                total(results).backward()
            notes += [told(results), [one.detach().clone() for one in results], x.grad, w.grad]
        found.append(notes)
    assert_same(*found)
    assert dyncomp.stats().recompiles <= 1


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def of_a_custom_function(x, w):
    return Turned.apply(x * w), (x * 2).sum()


def of_a_view_from_no_grad(x, w):
    h = x * w
    with torch.no_grad():
        part = h[0]
    return part.view(2, 2), h.exp()


def of_a_leaf_made_inside(x, w):
    return torch.zeros(3, requires_grad=True)[0], x * w


def detached(x, w):
    return (x * w).t().detach(), (x * w)[0]


@pytest.mark.parametrize("program", [of_a_custom_function, of_a_view_from_no_grad, of_a_leaf_made_inside, detached, strided])
def test_what_has_no_rule_for_a_view_is_compiled_all_the_same(program):
    def use(results, leaves, notes):
        notes += [one.detach().clone() for one in results]
        total(results).backward()

    both(program, use)
    assert "training-graph-eager" not in dyncomp.stats().fallbacks


@pytest.mark.parametrize("part", [torch.view_as_real, torch.real, torch.imag, lambda z: z.t()], ids=["as real", "real", "imag", "turned"])
def test_views_of_complex_results(part):
    def program(x, w):
        return part(torch.complex(x, w) * torch.complex(w, x))

    def use(results, leaves, notes):
        notes += told(results)
        notes += [one.detach().clone() for one in results]
        sum(torch.view_as_real(one).square().sum() if one.is_complex() else one.square().sum() for one in results).backward()

    both(program, use)
    assert "training-graph-eager" not in dyncomp.stats().fallbacks


@pytest.mark.parametrize("backend", ["codegen", "aot_eager"])
@pytest.mark.parametrize("program", SHARING)
class TestSharedNodes:
    def test_are_eagers(self, program, backend):
        def use(results, leaves, notes):
            notes += told(results)
            notes += [one.detach().clone() for one in results]
            total(results).backward()

        both(program, use, backend)

    def test_hooks_on_them(self, program, backend):
        def use(results, leaves, notes):
            results = [one for one in results if one._is_view()]
            seen = {node: [] for one in results for node in _nodes(one)}
            for node, gradients in seen.items():
                node.register_prehook(functools.partial(list.extend, gradients))
            total(results).backward()
            notes += [[None if one is None else one.clone() for one in gradients] for gradients in seen.values()]

        both(program, use, backend)

    def test_second_order(self, program, backend):
        def use(results, leaves, notes):
            slopes = torch.autograd.grad(total(results), leaves, create_graph=True, allow_unused=True)
            sum((one * one).sum() for one in slopes if one is not None and one.requires_grad).backward()

        both(program, use, backend)

    def test_looks(self, program, backend):
        def use(results, leaves, notes):
            for one in results:
                one.retain_grad()
            notes += torch.autograd.grad(total(results), [*results, *leaves], retain_graph=True, allow_unused=True)
            torch.autograd.grad(total(results[:1]), leaves, allow_unused=True)
            notes += [one.grad for one in results]

        both(program, use, backend)
