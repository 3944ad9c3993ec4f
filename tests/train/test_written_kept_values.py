"""What eager's history keeps must not be written before a backward comes to it: then both raise, in the same words.

The compiled backward may read other values, so what eager keeps is watched whether it is read or not.
"""

import pytest
import torch
import torch.nn.functional as F

from tests.train.train_checks import same_story

BACKENDS = ["codegen", "aot_eager"]

# Writes to a tensor with history, of which many keep the result, others what is multiplied.
OPERATIONS = {
    "relu_": lambda x, w: x.relu_(),
    "sigmoid_": lambda x, w: x.sigmoid_(),
    "tanh_": lambda x, w: x.tanh_(),
    "exp_": lambda x, w: x.exp_(),
    "sqrt_": lambda x, w: x.sqrt_(),
    "rsqrt_": lambda x, w: x.rsqrt_(),
    "leaky_relu_": lambda x, w: F.leaky_relu_(x, 0.1),
    "elu_": lambda x, w: F.elu_(x),
    "celu_": lambda x, w: F.celu_(x),
    "selu_": lambda x, w: F.selu_(x),
    "hardtanh_": lambda x, w: F.hardtanh_(x),
    "threshold_": lambda x, w: F.threshold_(x, 0.3, 0.2),
    "silu_": lambda x, w: F.silu(x, inplace=True),
    "dropout_": lambda x, w: F.dropout(x, 0.5, True, True),
    "mul_": lambda x, w: x.mul_(w),
    "div_": lambda x, w: x.div_(w),
    "add_": lambda x, w: x.add_(w),
    "addcmul_": lambda x, w: x.addcmul_(w, w),
    "pow_": lambda x, w: x.pow_(2),
    "clamp_": lambda x, w: x.clamp_(0.2, 0.8),
    "clamp_ by tensors": lambda x, w: x.clamp_(max=w),
    "masked_fill_": lambda x, w: x.masked_fill_(w > 0.5, 0.0),
    "reciprocal_": lambda x, w: x.reciprocal_(),
    "square_": lambda x, w: x.square_(),
    "abs_": lambda x, w: x.abs_(),
    "lerp_": lambda x, w: x.lerp_(w, 0.3),
    "row relu_": lambda x, w: x[0].relu_(),
    "row mul_": lambda x, w: x[0].mul_(w[1]),
    "softplus": lambda x, w: x.copy_(F.softplus(x)),
    "softmax": lambda x, w: x.copy_(x.softmax(-1)),
    "exp": lambda x, w: x.exp(),
    "exp of a row": lambda x, w: x[0].exp(),
    "mul": lambda x, w: x * w,
    "matmul": lambda x, w: x @ w.t(),
    "max": lambda x, w: x.max(dim=0).values * 2,
    "prod": lambda x, w: x.prod(0),
    "where": lambda x, w: torch.where(w > 0.4, x, w),
}

RAISE = {"softplus", "softmax"}  # they write what they keep, so that every backward raises

WRITTEN = {
    "nothing": lambda x, w, out, row: None,
    "the input": lambda x, w, out, row: x.detach().mul_(2),
    "the output": lambda x, w, out, row: out.detach().mul_(2),
    "a view": lambda x, w, out, row: row.detach().mul_(2),
    "a new view": lambda x, w, out, row: x.detach()[1:].add_(1),
    "the other operand": lambda x, w, out, row: w.detach().add_(1),
    "twice": lambda x, w, out, row: x.detach().mul_(2).add_(1),
    "with a history": lambda x, w, out, row: x.mul_(2),
}  # fmt: skip


def gradients_of_all(loss, start, w):
    loss.backward()
    return [start.grad, w.grad]


def gradients_of_one(loss, start, w):
    return [torch.autograd.grad(loss, start)[0], start.grad, w.grad]


def gradients_of_the_other(loss, start, w):
    return [torch.autograd.grad(loss, w, allow_unused=True)[0], start.grad, w.grad]


def twice(loss, start, w):
    loss.backward(retain_graph=True)
    loss.backward()
    return [start.grad, w.grad]


def told(run, write, backward):
    torch.manual_seed(0)
    start = torch.linspace(0.1, 0.9, 6).reshape(2, 3).requires_grad_()
    w = torch.linspace(0.7, 0.2, 6).reshape(2, 3).requires_grad_()
    x = start * 1
    out, row = run(x, w)
    seen = [x.detach().clone(), out.detach().clone(), x._version, out._version]
    write(x, w, out, row)
    loss = (out * torch.arange(out.numel()).reshape(out.shape)).sum() + x.sum()
    try:
        seen += backward(loss, start, w)
    except RuntimeError as error:
        seen.append(str(error))
    return seen


BACKWARDS = [gradients_of_all, gradients_of_one, gradients_of_the_other, twice]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_writes_after_the_call(operation):
    def function(x, w):
        OPERATIONS[operation](x, w)
        out = OPERATIONS[operation](x * 1.5, w) + x.sum()
        return out, x[1]

    def kept(x, w):
        return OPERATIONS[operation](x, w), x[1]

    for program in (function, kept):

        def story(compiled, program=program):
            run = compiled(program)
            return [(name, backward.__name__, *told(run, WRITTEN[name], backward)) for name in WRITTEN for backward in BACKWARDS]

        same_story(story, fallbacks=("training-graph-eager", "aot: the program raises") if operation in RAISE else ())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("written", ["scale", "index", "mean", "input"])
def test_values_beside_the_differentiable_ones(written, backend):
    """A result without a gradient, a buffer and a plain input that eager keeps."""

    def function(x, scale, mean):
        top = x.max(dim=1)
        normed = F.batch_norm(x, mean, torch.ones(3), training=False)
        return (normed * scale).exp(), top.values, top.indices

    def story(compiled):
        x = torch.linspace(0.1, 0.9, 6).reshape(2, 3).requires_grad_() * 1
        x.retain_grad()
        scale, mean = torch.full((3,), 0.5), torch.full((3,), 0.25)
        out, values, index = compiled(function)(x, scale, mean)
        {"scale": scale, "index": index, "mean": mean, "input": x.detach()}[written].mul_(1)
        seen = []
        for results in ([values], [out], [out, values]):
            try:
                seen.append(torch.autograd.grad([one.sum() for one in results], x, retain_graph=True)[0])
            except RuntimeError as error:
                seen.append(str(error))
        return seen

    same_story(story, backend)
