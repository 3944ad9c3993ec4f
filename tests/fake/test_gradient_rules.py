"""Shape rules of gradient formulas against eager, by rule (row-major operands) and by meta kernel (others); sizes plain and symbolic."""

import pytest
import torch

import dyncomp
from dyncomp.fake import meta_kernel
from tests.fake.test_rules import LAYOUTS, agree
from tests.support import assert_same

aten = torch.ops.aten
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
F = torch.nn.functional
ACTIVATIONS = {
    "gelu": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": aten.silu_backward,
    "tanh": aten.tanh_backward,
    "sigmoid": aten.sigmoid_backward,
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0),
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1, 1),
    "mish": aten.mish_backward,
    "leaky": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "hardswish": aten.hardswish_backward,
    "hardsigmoid": aten.hardsigmoid_backward,
    "softplus": lambda g, x: aten.softplus_backward(g, x, 1, 20),
    "softmax": lambda g, x: aten._softmax_backward_data(g, x, -1, x.dtype),
    "log_softmax": lambda g, x: aten._log_softmax_backward_data(g, x, 0, x.dtype),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(2, 3), (3, 1, 4)])
def test_activations(name, dtype, shape):
    agree(ACTIVATIONS[name], torch.ones(shape, dtype=dtype), torch.ones(shape, dtype=dtype))


@pytest.mark.parametrize("layout", ["reversed", "swapped", "gaps"])
def test_other_layouts_go_to_the_meta_kernel(layout):
    x = LAYOUTS[layout](torch.ones(3, 4))
    agree(ACTIVATIONS["tanh"], x, x)
    agree(ACTIVATIONS["threshold"], x, x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("inner", [(4,), (3, 4)])
def test_layer_norm(dtype, inner):
    x = torch.ones(2, 3, 4, dtype=dtype)
    stats = torch.ones((2, 3, 1) if inner == (4,) else (2, 1, 1), dtype=dtype)
    weight = torch.ones(inner, dtype=dtype)
    agree(lambda *t: aten.native_layer_norm_backward(*t[:2], inner, *t[2:], [True] * 3), x, x, stats, stats, weight, weight)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_lookups_and_dropout(dtype, reduction, weighted):
    x, rows, one = torch.ones(3, 4, dtype=dtype), torch.tensor([0, 2, 1]), torch.ones((), dtype=dtype)
    weight = [torch.ones(4, dtype=dtype)] if weighted else []
    agree(
        lambda g, x, t, total, *w: aten.nll_loss_backward(g, x, t, w[0] if w else None, reduction, -100, total),
        one.expand(3).contiguous() if reduction == 0 else one, x, rows, one, *weight,
    )  # fmt: skip
    agree(lambda g, i: aten.embedding_dense_backward(g, i, 5, -1, False), x, rows.int())
    agree(lambda g, m: aten.native_dropout_backward(g, m, 2.0), x, x > 0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.out = torch.nn.Linear(8, 11)

    def forward(self, ids):
        x = self.norm(self.table(ids))
        x = F.gelu(x) + F.silu(x) * torch.tanh(x) + F.dropout(F.softplus(x), 0.0)
        return F.cross_entropy(self.out(x).flatten(0, 1), ids.flatten()) + x.softmax(-1).square().mean()


def test_a_symbolic_training_step_runs_no_meta_kernel_of_them(fresh, monkeypatch):
    seen = []
    run = meta_kernel._run
    monkeypatch.setattr(meta_kernel, "_run", lambda op, *rest, **named: seen.append(str(op)) or run(op, *rest, **named))
    torch.manual_seed(0)
    ours = Net()
    theirs = Net()
    theirs.load_state_dict(ours.state_dict())
    fast = dyncomp.optimize(ours, dynamic=True, backend="aot_eager")
    for shape in ((2, 5), (3, 7), (4, 2)):
        ids = torch.randint(0, 11, shape)
        fast(ids).backward()
        theirs(ids).backward()
        assert_same([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])
    assert dyncomp.stats().graphs == 1
    rules = ("gelu_backward", "silu_backward", "tanh_backward", "layer_norm_backward", "nll_loss_backward", "softmax_backward")
    assert not [name for name in seen if any(rule in name for rule in rules)], seen


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_losses_and_norms_of_any_layout_and_of_nothing(rows, dynamic):
    """A size that turns out to be 0 must not be divided by."""

    def f(x, y, n):
        few = x[: n % 3]
        return (
            F.mse_loss(x, y), F.smooth_l1_loss(x, y, reduction="sum"), F.huber_loss(x, y, reduction="none"), F.mse_loss(few, few * 2),
            F.group_norm(few.reshape(1, 1, -1), 1), F.pixel_unshuffle(few.detach().reshape(1, 1, -1, 2), 2) if few.shape[0] == 0 else x,
        )  # fmt: skip

    x = torch.randn(4, max(rows, 1) + 3).t().requires_grad_()
    y = torch.randn(4, max(rows, 1) + 3).t()
    results = []
    for function in (f, dyncomp.optimize(f, backend="aot_eager", dynamic=dynamic)):
        parts = function(x * 1, y, rows)
        results.append((parts, torch.autograd.grad(sum(part.sum() for part in parts if part.requires_grad), x)))
    (want, want_grads), (got, got_grads) = results
    assert_same(got, want)
    assert_same(got_grads, want_grads)
