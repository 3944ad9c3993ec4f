"""torch callables in captured code: leaves, answers while tracing, factories, random numbers, breaks."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.support import check


def eager(function, *args, **kwargs):
    return check(function, *args, backend="eager", **kwargs)


X, W = torch.randn(3, 4), torch.randn(5, 4)

PROGRAMS = {
    "builtin": lambda x: torch.relu(torch.sin(x)),
    "functional": lambda x: F.gelu(F.layer_norm(F.linear(x, W), (5,))) + F.softmax(F.linear(x, W), dim=-1),
    "python_functional": lambda x: F.dropout(F.silu(x), 0.0, training=False) + F.normalize(x, dim=0),
    "special": lambda x: torch.special.erf(x) + torch.linalg.norm(x) + torch.fft.fft(x).real,
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, W),
    "meshgrid": lambda x: torch.stack(torch.meshgrid(x[0], x[1], indexing="ij")),
    "overload": lambda x: torch.ops.aten.add.Tensor(x, x) + torch.ops.aten.relu(x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "cat_list": lambda x: torch.cat([x, x * 2], dim=1) + torch.stack((x, x)).reshape(3, 8),
    "keywords": lambda x: torch.sum(input=x, dim=1, keepdim=True) + x.mean(dim=(0, 1), dtype=torch.float64),
    "out": lambda x: torch.add(x, x, out=torch.empty(3, 4)),
    "split_with_sizes": lambda x: torch.split(x, [1, 3], dim=1)[1],
    "factories": lambda x: torch.zeros(3, 4) + torch.ones_like(x) + torch.arange(4) + torch.full((1,), 2.0),
    "from_data": lambda x: (
        x + torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.as_tensor(2) + torch.tensor(x.shape[0])
    ),
    "zero_dim": lambda x: x + torch.tensor(1.5, dtype=torch.float64),
    "dtype_of_python": lambda x: x.to(torch.promote_types(torch.float16, torch.float32)),
    "result_type": lambda x: (
        torch.zeros(2, dtype=torch.result_type(x, torch.ones(1, dtype=torch.int64))) + x[:2, 0]
    ),
    "limits": lambda x: x.clamp(min=torch.finfo(x.dtype).min, max=torch.iinfo(torch.int8).max),
    "device_object": lambda x: torch.ones(2, device=torch.device("cpu")) + x[0, :2],
    "size_object": lambda x: x.reshape(torch.Size([4, 3])) + torch.Size([1, 2]).numel(),
    "broadcast_shapes": lambda x: x.expand(torch.broadcast_shapes(x.shape, (2, 1, 1))),
    "state_questions": lambda x: (
        x * (2 if torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") else 3)
    ),
    "default_dtype": lambda x: x.to(torch.get_default_dtype()),
    "tensor_questions": lambda x: x * (2 if torch.is_tensor(x) and torch.is_floating_point(x) else 3),
    "scripting": lambda x: x * (3 if torch.jit.is_scripting() or torch.jit.is_tracing() else 2),
    "assertions": lambda x: (torch._check(x.shape[0] == 3), torch._assert(x.dim() == 2, "two"), x * 2)[-1],
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "masked": lambda x: torch.masked_fill(x, x > 0, float("-inf")),
    "cuda_question": lambda x: x * (3 if torch.cuda.is_available() and x.is_cuda else 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    eager(PROGRAMS[name], X)


def test_random_numbers_come_in_order():
    def f(x):
        a = torch.rand(3)
        unused = torch.randn(2)
        y = F.dropout(x, 0.5, training=True)
        del unused
        return a, y, torch.rand_like(x), torch.randint(0, 5, (2,)), torch.randperm(4)

    eager(f, X)


def test_random_in_place():
    eager(lambda x: x.clone().uniform_().add_(torch.empty(4).normal_()), X)


def test_losses():
    def f(x, target):
        return F.cross_entropy(x, target), F.mse_loss(x, x * 2), F.nll_loss(F.log_softmax(x, -1), target)

    eager(f, X, torch.tensor([0, 1, 3]))


def test_images():
    def f(x, w):
        y = F.max_pool2d(F.conv2d(x, w, padding=1), 2)
        return (
            F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False),
            F.adaptive_avg_pool2d(y, 1),
            F.pad(y, (1, 1)),
        )

    eager(f, torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: (torch.manual_seed(3), x + torch.rand(1))[1], "random"),
        (lambda x: torch.func.linearize(torch.sin, x)[0], "function-transform"),
        (
            lambda x: (
                torch.autograd.grad((x.clone().requires_grad_() * 2).sum(), x, allow_unused=True)[0] is None
                or x
            ),
            "autograd",
        ),
    ],
)
def test_named_breaks(function, reason):
    dyncomp.reset()
    eager(function, X, graphs=None, breaks=None)
    assert reason in dyncomp.stats().break_reasons


def test_gradients_flow_through_the_graph():
    def f(x, w):
        return (x @ w.t()).relu().sum()

    fast = dyncomp.optimize(f, backend="eager")
    grads = []
    for function in (f, fast):
        w = W.clone().requires_grad_()
        function(X, w).backward()
        grads.append(w.grad)
    torch.testing.assert_close(grads[0], grads[1])


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        ctx.save_for_backward(x)
        return x * by

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.by, None


class ScaleNewStyle(torch.autograd.Function):
    @staticmethod
    def forward(x, by):
        return x * by, torch.is_grad_enabled()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.by = inputs[1]

    @staticmethod
    def backward(ctx, grad, _):
        return grad * ctx.by, None


def test_custom_autograd_functions_without_gradients_are_inlined():
    eager(lambda x: Scale.apply(x + 1, 3) - 1, X)
    eager(lambda x: (ScaleNewStyle.apply(x, 2), torch.is_grad_enabled()), X)
    with torch.no_grad():
        eager(lambda x, w: Scale.apply(x @ w.t(), 3), X, torch.nn.Parameter(W.clone()))


def test_values_of_literals_are_known():
    def f(x):
        span = torch.tensor(x.shape[0]) * 2 - 1
        return x[:, 1 : span - 2] * span.item() if span > 3 else x

    eager(f, X)


def test_tensor_operations_on_numbers():
    eager(lambda x: x.reshape(torch.div(x.numel(), 2, rounding_mode="trunc"), 2) + torch.add(1, 2), X)
