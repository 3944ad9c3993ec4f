"""Backward formulas against ATen's kernels, through whole training graphs."""

import pytest
import torch
import torch.nn.functional as F

from tests.train.train_checks import check_function

CASES = {
    "relu": lambda x, w: torch.relu(x * w),
    "tanh": lambda x, w: torch.tanh(x * w),
    "sigmoid": lambda x, w: torch.sigmoid(x * w),
    "silu": lambda x, w: F.silu(x * w),
    "gelu": lambda x, w: F.gelu(x * w),
    "gelu by tanh": lambda x, w: F.gelu(x * w, approximate="tanh"),
    "hardtanh": lambda x, w: F.hardtanh(x * w),
    "leaky_relu": lambda x, w: F.leaky_relu(x * w, 0.1),
    "softmax": lambda x, w: F.softmax(x * w, -1) * w,
    "softmax over rows": lambda x, w: F.softmax(x * w, 0) * w,
    "log_softmax": lambda x, w: F.log_softmax(x * w, -1),
    "layer norm": lambda x, w: F.layer_norm(x * 2, (40,), w),
    "layer norm with bias": lambda x, w: F.layer_norm(x, (40,), w, w * 2),
    "layer norm without weight": lambda x, w: F.layer_norm(x * w, (40,)),
    "layer norm over two dimensions": lambda x, w: F.layer_norm(x.view(2, 4, 10, 4), (10, 4)) * w.view(10, 4),
}


@pytest.mark.parametrize("name", CASES)
def test_formula(name):
    x = torch.randn(8, 40) * 2
    x[0, :3] = torch.tensor([0.0, -1.0, 1.0])
    w = torch.randn(40)
    check_function(CASES[name], x.requires_grad_(), w.requires_grad_(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["relu", "tanh", "silu", "gelu", "softmax", "layer norm"])
def test_half_types(name):
    x, w = torch.randn(8, 40, dtype=torch.bfloat16), torch.randn(40, dtype=torch.bfloat16)
    check_function(CASES[name], x.requires_grad_(), w.requires_grad_(), rtol=3e-2, atol=3e-2)


def masked_softmax(x, w):
    """Rows of which nothing is left give zeros."""
    scores = (x * w).masked_fill(x > 1.5, -torch.inf).masked_fill(torch.arange(8)[:, None] == 3, -torch.inf)
    return torch.ops.aten._safe_softmax(scores, -1)


def test_safe_softmax():
    x, w = torch.randn(8, 40).requires_grad_(), torch.randn(40).requires_grad_()
    check_function(masked_softmax, x, w)
    check_function(masked_softmax, x.detach().bfloat16().requires_grad_(), w.detach().bfloat16(), rtol=3e-2, atol=3e-2)


GROUP_NORMS = {
    "weights": ((3, 6, 5, 7), 3, True),
    "no weights": ((3, 6, 5, 7), 2, False),
    "one group": ((2, 6, 9), 1, True),
    "a group each": ((2, 6, 4, 4), 6, True),
    "no positions": ((4, 6), 2, True),
}


@pytest.mark.parametrize("name", GROUP_NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_group_norm(name, dtype):
    shape, groups, affine = GROUP_NORMS[name]
    x, w = torch.randn(shape, dtype=dtype).requires_grad_(), torch.randn(6, dtype=dtype).requires_grad_()
    if affine:
        check_function(lambda x, w: F.group_norm(x, groups, w, w * 2), x, w, rtol=1e-4, atol=2e-5)
    else:
        check_function(lambda x, w: F.group_norm(x * 2, groups) * w.sum(), x, w, rtol=1e-4, atol=2e-5)


def test_group_norm_channels_last():
    x = torch.randn(3, 6, 5, 7).contiguous(memory_format=torch.channels_last).requires_grad_()
    check_function(lambda x, w: F.group_norm(x, 3, w, w), x, torch.rand(6).requires_grad_(), rtol=1e-4, atol=2e-5)


def test_rms_norm():
    x, w = torch.randn(8, 40).requires_grad_(), torch.rand(40).requires_grad_()
    check_function(lambda x, w: F.rms_norm(x, (40,), w, 1e-6), x, w, rtol=1e-4, atol=2e-5)
