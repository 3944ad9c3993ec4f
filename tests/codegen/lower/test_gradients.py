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
