"""User-written autograd functions and checkpoints inside compiled code."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import dyncomp
from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])


def r(*shape, grad=True):
    return torch.randn(*shape, requires_grad=grad)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power, name="cube"):
        ctx.save_for_backward(x)
        ctx.power = power
        return x**power

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (
            g * ctx.power * x ** (ctx.power - 1) * 10,
            None,
            None,
        )  # ten times too much, to be told from autograd's own


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 20


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * 7


class Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, flags):
        values, where = x.max(-1)
        ctx.mark_non_differentiable(where)
        ctx.save_for_backward(x, w)
        ctx.flags = flags
        ctx.set_materialize_grads(False)
        return values * w, where

    @staticmethod
    def backward(ctx, g, _):
        x, w = ctx.saved_tensors
        return (None if g is None else g[:, None].expand_as(x) * 3), (g * 5 if ctx.flags["w"] else None), None


class SetupContext(torch.autograd.Function):
    @staticmethod
    def forward(x, k):
        return x * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k * 4, None


def functions():
    return {
        "cube": lambda x, w: Cube.apply(x, 3) + w,
        "dirty": lambda x, w: Dirty.apply(x * 1) * w,
        "once": lambda x, w: Once.apply(x) * w,
        "mixed": lambda x, w: Mixed.apply(x, w[0], {"w": True})[0] * 2,
        "setup": lambda x, w: SetupContext.apply(x, 3) * w,
        "chained": lambda x, w: Cube.apply(Once.apply(x).sin(), 2).sum() * w,
    }


@BACKENDS
@pytest.mark.parametrize("name", list(functions()))
def test_function(name, backend):
    def story(compiled):
        fast, told = compiled(functions()[name]), []
        for _ in range(3):
            x, w = r(3, 3), r(3, 3)
            y = fast(x, w)
            y.sum().backward()
            told += [y.detach(), x.grad, w.grad]
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: "))


@BACKENDS
def test_dirty_input(backend):
    def story(compiled):
        fast, told = compiled(lambda v: Dirty.apply(v).sin()), []
        for _ in range(2):
            x = r(3)
            v = x * 1
            y = fast(v)
            (y.sum() + v.sum()).backward()
            told += [v.detach(), x.grad]
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: "))


@BACKENDS
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant, backend):
    def block(x, w):
        return F.dropout(torch.tanh(x @ w), 0.5) @ w

    def f(x, w):
        y = checkpoint(block, x, w, use_reentrant=reentrant)
        return checkpoint(block, y, w, use_reentrant=reentrant).sum() + F.dropout(x, 0.2).sum()

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(3):
            x, w = r(4, 4), r(4, 4)
            y = fast(x, w)
            y.backward()
            told += [y.detach(), x.grad, w.grad, torch.rand(2)]
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: "))


@BACKENDS
@pytest.mark.parametrize("reentrant", [True, False])
def test_compiled_function_under_a_checkpoint(reentrant, backend):
    def block(x, w):
        return F.dropout(torch.tanh(x @ w), 0.5) @ w

    def story(compiled):
        fast, told = compiled(block), []
        for _ in range(3):
            x, w = r(4, 4), r(4, 4)
            y = checkpoint(fast, x, w, use_reentrant=reentrant)
            y = checkpoint(fast, y, w, use_reentrant=reentrant)
            y.sum().backward()
            told += [y.detach(), x.grad, w.grad, torch.rand(2)]
        return told

    same_story(story, backend)


@BACKENDS
def test_sequential_checkpoint_of_a_module(backend):
    def story(compiled):
        net = torch.nn.Sequential(
            *[torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.3), torch.nn.Tanh()) for _ in range(4)]
        )
        fast, told = [compiled(part) for part in net], []
        for _ in range(2):
            x = r(3, 4)
            y = checkpoint_sequential(fast, 2, x, use_reentrant=False)
            y.sum().backward()
            told += [y.detach(), x.grad, [p.grad.clone() for p in net.parameters()]]
        return told

    same_story(story, backend)


class Reversed(torch.autograd.Function):
    """A view whose gradient is turned round, as in training against a domain."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


@BACKENDS
@pytest.mark.parametrize(
    "program",
    [
        lambda x, w: Reversed.apply(x),
        lambda x, w: Reversed.apply(x[1]),
        lambda x, w: Reversed.apply(x)[1],
        lambda x, w: (x * w, Reversed.apply(x)),
        lambda x, w: (x.reshape(-1), Reversed.apply(x)),
        lambda x, w: (lambda h: (h, Reversed.apply(h)))(x * w),
    ],
)
def test_views_with_a_backward_of_their_own(program, backend):
    def story(compiled):
        fast, told = compiled(program), []
        for _ in range(2):
            x, w = r(4, 4), r(4, 4)
            results = fast(x * 1, w)
            results = results if isinstance(results, tuple) else (results,)
            sum((one * one).sum() for one in results).backward()
            told += [one.detach() for one in results] + [x.grad, w.grad]
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: "))


@BACKENDS
def test_a_written_result_is_named_as_in_eager(fresh, backend):
    """The error names the function, as eager does."""
    told = []
    for function in (Once.apply, dyncomp.optimize(lambda x: Once.apply(x), backend=backend)):
        x = r(3)
        y = function(x)
        with torch.no_grad():
            y.mul_(2)
        with pytest.raises(RuntimeError) as raised:
            y.sum().backward()
        told.append(str(raised.value))
    assert told[0] == told[1]
