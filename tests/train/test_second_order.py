"""Gradients of gradients through compiled functions: compiled or by eager's autograd, never wrong."""

import pytest
import torch
import torch.nn.functional as F

from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
SECOND = ("double-backward-eager",)


def r(*shape, grad=True):
    return torch.randn(*shape, requires_grad=grad)


@BACKENDS
def test_gradient_penalty(backend):
    def story(compiled):
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        fast, told = compiled(net), []
        for _ in range(3):
            x = r(5, 4)
            score = fast(x).sum()
            (slope,) = torch.autograd.grad(score, x, create_graph=True)
            (score + ((slope.norm(dim=1) - 1) ** 2).mean()).backward()
            # Which of two gradients comes first decides the strides of a dimension of size 1.
            told += [x.grad, [p.grad.clone(memory_format=torch.contiguous_format) for p in net.parameters()]]
            net.zero_grad()
        return told

    same_story(story, backend, fallbacks=SECOND, rtol=1e-4)


@BACKENDS
def test_third_order(backend):
    def story(compiled):
        fast, told = compiled(lambda x, w: (x**4 * w).sum()), []
        for _ in range(2):
            x, w = r(3), r(3)
            value = fast(x, w)
            for _ in range(3):
                (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
                told.append(value.detach())
            value.sum().backward()
            told += [x.grad, w.grad]
        return told

    same_story(story, backend, fallbacks=SECOND)


@BACKENDS
def test_penalty_inside_the_compiled_function(backend):
    def f(x, w):
        y = (x * w).sin().sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return y + slope.pow(2).sum()

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            x, w = r(3), r(3)
            fast(x, w).backward()
            told += [x.grad, w.grad]
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: ", *SECOND))


@BACKENDS
def test_some_outputs_only(backend):
    def f(x, w):
        return (x**3).sum(), (x * w.exp()).sum(), x * w

    def story(compiled):
        fast, told = compiled(f), []
        for which in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            x, w = r(3), r(3)
            results = fast(x, w)
            total = sum(results[i].sum() for i in which)
            slopes = torch.autograd.grad(total, (x, w), create_graph=True, allow_unused=True)
            told.append([None if s is None else s.detach() for s in slopes])
            again = sum(s.pow(2).sum() for s in slopes if s is not None)
            if again.requires_grad:
                told += torch.autograd.grad(again, (x, w), allow_unused=True)
        return told

    same_story(story, backend, fallbacks=SECOND)


@BACKENDS
def test_non_leaf_inputs_and_views(backend):
    def story(compiled):
        fast, told = compiled(lambda v, w: (v**3 * w, v[0] * 2)), []
        for _ in range(2):
            x, w = r(3, 2), r(3, 2)
            a, b = fast(x.sin().t().t(), w)
            (slope,) = torch.autograd.grad(a.sum() + b.sum(), x, create_graph=True)
            slope.pow(2).sum().backward()
            told += [x.grad, w.grad]
        return told

    same_story(story, backend, fallbacks=SECOND)


@BACKENDS
def test_random_masks_and_buffers(backend):
    def story(compiled):
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.4), torch.nn.Linear(6, 1)
        )
        fast, told = compiled(net), []
        for _ in range(2):
            x = r(5, 4)
            y = fast(x).sum()
            torch.rand(3)
            (slope,) = torch.autograd.grad(y, x, create_graph=True)
            slope.pow(2).sum().backward()
            told += [x.grad, [p.grad for p in net.parameters()], [b.clone() for b in net.buffers()], torch.rand(1)]
            net.zero_grad()
        return told

    same_story(story, backend, fallbacks=SECOND, rtol=1e-3, atol=1e-4)


@BACKENDS
def test_inputs_changed_in_between(backend):
    """Eager's error, not a number from the changed value."""

    def story(compiled):
        x, w = r(3), r(3)
        y = compiled(lambda x, w: (x**3 * w).sum())(x, w)
        with torch.no_grad():
            x.add_(1)
        try:
            torch.autograd.grad(y, x, create_graph=True)
        except RuntimeError as error:
            return str(error).partition(":")[0]
        return "no error"

    same_story(story, backend, fallbacks=SECOND)


@BACKENDS
def test_functional_jacobian_and_hessian(backend):
    def story(compiled):
        fast = compiled(lambda x: (x.sin() * x).sum())
        x = r(3)
        return torch.autograd.functional.hessian(fast, x), torch.autograd.functional.jacobian(
            compiled(lambda x: x.exp() * x), x
        )

    same_story(story, backend, fallbacks=("double-backward-eager", "backward-"))


@BACKENDS
def test_double_backward_of_autocast(backend):
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        return F.softplus(y.float()).sum()

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            x, w = r(4, 4), r(4, 4)
            (slope,) = torch.autograd.grad(fast(x, w), x, create_graph=True)
            slope.pow(2).sum().backward()
            told += [x.grad, w.grad]
        return told

    same_story(story, backend, fallbacks=SECOND, rtol=2e-2, atol=2e-2)
