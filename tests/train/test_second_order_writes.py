"""Gradients of gradients through calls that write their inputs: eager's history is made again from the values before the write."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.support import assert_same
from tests.train.train_checks import same_story


def row_set(x, w):
    x[0] = w * 2
    return (x**3 * w).sum()


def row_multiplied(x, w):
    x[0].mul_(w)
    return (x**3 * w).sum()


def rows_exp(x, w):
    x[1:3].exp_()
    return (x * x * w).sum()


def column_by_column(x, w):
    x[:, 0].mul_(x[:, 1])
    return (x**2 * w).sum()


def all_multiplied(x, w):
    y = x**2
    x.mul_(w)
    return (x.sin() * y).sum()


def added_from_itself(x, w):
    y = (x * w).exp()
    x.add_(y)
    return (y * w).sum()


def copied_over(x, w):
    x.copy_((x * w).sin())
    return (x * x).sum()


def zeroed_first(x, w):
    x.zero_()
    x.add_(w)
    return (x**3).sum()


def written_twice(x, w):
    x[0].mul_(w)
    x[1].copy_(x[0] * w)
    return (x**3).sum()


def view_of_view(x, w):
    x[1:][0].mul_(w)
    return (x**3).sum()


def transposed(x, w):
    x.t()[0].mul_(2.0)
    return (x**3 * w).sum()


def written_and_returned(x, w):
    x.mul_(w)
    return x


def view_returned(x, w):
    x[0].mul_(w)
    return x[0], x**2


def two_views_returned(x, w):
    x.mul_(w)
    return x.unsqueeze(0), x.t()


def by_mask(x, w):
    x.masked_fill_(x > 0, 0.5)
    return (x**3 * w).sum()


def by_index(x, w):
    x[torch.tensor([0, 2])] = w.exp()
    return (x**3 * w).sum()


def rectified(x, w):
    F.relu_(x)
    return (x**3 * w).sum()


def with_a_mask_drawn(x, w):
    x[0].mul_(w)
    return (F.dropout(x, 0.5) ** 3).sum()


def with_noise_drawn(x, w):
    noise = torch.randn_like(x)
    x.mul_(noise * w)
    return (x**3).sum()


def under_no_grad(x, w):
    with torch.no_grad():
        x[0].mul_(0.5)
    return (x**3 * w).sum()


def under_no_grad_after(x, w):
    y = x.sin() * w
    with torch.no_grad():
        x.add_(1.0)
    return (y * y).sum()


def through_data(x, w):
    y = x.exp()
    x.data.add_(1.0)
    return (y * w).sum()


def normalised(x, w):
    x.div_(x.norm(dim=1, keepdim=True))
    return ((x @ w) ** 3).sum()


def shifted(x, w):
    x[1:] += x[:-1].clone()
    return (x**3 * w).sum()


def stepped(x, w):
    x[::2].mul_(w)
    return x.exp().sum()


def two_results(x, w):
    x[0].mul_(w)
    return (x**3).sum(), (x.exp() * w).sum(), x[1]


def only_a_view_is_read(x, w):
    row = x[0]
    row.add_(w)
    return (row * w * row).sum()


def layer_norm(x, w):
    x[0] = w.sin()
    return (F.layer_norm(x, (3,), w) ** 3).sum()


PROGRAMS = [
    row_set, row_multiplied, rows_exp, column_by_column, all_multiplied, added_from_itself, copied_over, zeroed_first, written_twice, view_of_view,
    transposed, written_and_returned, view_returned, two_views_returned, by_mask, by_index, rectified, with_a_mask_drawn, with_noise_drawn,
    under_no_grad, under_no_grad_after, through_data, normalised, shifted, stepped, two_results, only_a_view_is_read, layer_norm,
]  # fmt: skip

INPUTS = {
    "a result": lambda leaf: leaf * 1.0,
    "a result that is kept": lambda leaf: leaf.exp(),
    "a view": lambda leaf: (leaf.expand(6, 4, 3) * 1.0)[2],
    "a transposed view": lambda leaf: (leaf.t() * 1.0).t(),
    "a leaf": lambda leaf: leaf,
    "without gradient": lambda leaf: leaf.detach().clone(),
}


def grad_of_grad(loss, leaves):
    first = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
    total = sum(one.pow(2).sum() for one in first if one is not None)
    second = torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else ()
    return [*first, *second]


def penalty(loss, leaves):
    first = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
    (loss + sum((one.norm() - 1) ** 2 for one in first if one is not None)).backward()
    return [*first, *[leaf.grad for leaf in leaves]]


def hessian_vector(loss, leaves):
    told = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
    total = sum((one * torch.linspace(-1, 1, one.numel()).reshape(one.shape)).sum() for one in told if one is not None)
    for _ in range(2):
        if total.requires_grad:
            found = torch.autograd.grad(total, leaves, create_graph=True, retain_graph=True, allow_unused=True)
            told = [*told, *found]
            total = sum((one.sum() for one in found if one is not None), torch.zeros(()))
    return told


def one_before(loss, leaves):
    return [*torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True), *grad_of_grad(loss, leaves)]


FALLBACKS = ("double-backward-eager", "training-graph-eager", "aot: ", "inputs-share-memory")


def tell(function, kind, derive, after):
    def story(compiled):
        fast, told = compiled(function), []
        leaf, w = torch.randn(4, 3, requires_grad=True), (torch.rand(3) + 0.5).requires_grad_()
        x = INPUTS[kind](leaf)
        results = fast(x, w)
        told.append(x.detach().clone())
        if after:
            with torch.no_grad():
                w.mul_(2.0)
        results = results if isinstance(results, tuple) else (results,)
        loss = sum(
            (one.double() * torch.arange(1.0, one.numel() + 1).reshape(one.shape).cos()).sum() for one in results if one.requires_grad
        )
        del x, results
        torch.rand(2)
        told += [loss.detach(), *derive(loss, [leaf, w])]
        return [*[None if one is None else one.detach() for one in told], torch.rand(1)]

    return story


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_inputs_that_are_written(function, kind):
    for derive in (grad_of_grad, penalty, hessian_vector, one_before):
        same_story(tell(function, kind, derive, False), "aot_eager", FALLBACKS, errors=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [row_multiplied, all_multiplied, with_a_mask_drawn, two_results], ids=lambda f: f.__name__)
def test_with_generated_code(function):
    for kind in ("a result", "a transposed view"):
        same_story(tell(function, kind, penalty, False), "codegen", FALLBACKS, errors=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [row_set, zeroed_first, under_no_grad_after], ids=lambda f: f.__name__)
def test_another_input_written_since(function):
    """Right where eager does not keep what was written, else eager's error."""
    for kind in INPUTS:
        same_story(tell(function, kind, grad_of_grad, True), "aot_eager", FALLBACKS, errors=True, rtol=1e-4, atol=1e-4)


def turned_afterwards(x, w):
    y = (x + w).sin()
    x.t_()
    return (y * y).sum()


def widened_afterwards(x, w):
    y = (x + w).sin()
    x.unsqueeze_(0)
    return (y * y).sum()


@pytest.mark.parametrize("function", [turned_afterwards, widened_afterwards], ids=lambda f: f.__name__)
@pytest.mark.parametrize("grad", [True, False])
def test_metadata_changed_since(function, grad):
    def story(compiled):
        fast, told = compiled(function), []
        for _ in range(2):
            leaf, w = torch.randn(3, 3, requires_grad=True), torch.rand(3, requires_grad=True)
            loss = fast(leaf * 1.0 if grad else leaf.detach().clone(), w)
            told += [None if one is None else one.detach().contiguous() for one in grad_of_grad(loss, [leaf, w])]
        return told

    same_story(story, "aot_eager", FALLBACKS, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["codegen", "aot_eager"])
def test_a_written_input_with_gaps_keeps_them(backend, fresh):
    """What reshapes to a copy there must not be a view when the program runs again."""

    def program(part, v):
        part.fill_(0.3)
        moved = part.reshape(2, -1)
        with torch.no_grad():
            moved[0] = v[0]
        return moved, torch.atan2(part, v)

    found = []
    for side in (dyncomp.optimize(program, backend=backend), program):
        v = torch.arange(1.0, 5.0).requires_grad_()
        _, result = side(torch.ones(6, 4)[::2], v)
        (first,) = torch.autograd.grad(result.sin().sum(), [v], create_graph=True)
        first.pow(2).sum().backward()
        found.append((first.detach(), v.grad))
    assert_same(*found)
