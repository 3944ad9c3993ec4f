"""Backward formulas of activations against ATen's kernels, through whole training graphs."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.train.train_checks import check_function

CASES = {
    "elu": lambda x: F.elu(x, 0.7),
    "elu from its result": lambda x: F.elu(x * 1.5, 0.7, inplace=True) * 2,
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.6),
    "softplus": F.softplus,
    "softplus with a bound": lambda x: F.softplus(x, 2.0, 1.5),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "softshrink": lambda x: F.softshrink(x, 0.5),
    "hardshrink": lambda x: F.hardshrink(x, 0.5),
}
EDGES = [0.0, -0.0, -3.0, 3.0, -0.5, 0.5, 20.0, -20.0, 60.0, math.nan]


def edge_values(dtype, rows=7, columns=13):
    x = torch.randn(rows, columns) * 4
    x[0, : len(EDGES)] = torch.tensor(EDGES)
    return x.to(dtype)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_formula(name, dtype):
    check_function(lambda x: CASES[name](x * 1.0), edge_values(dtype).requires_grad_(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_bfloat16(name):
    check_function(
        CASES[name] if "result" in name else lambda x: CASES[name](x * 1.0),
        edge_values(torch.bfloat16).requires_grad_(),
        rtol=2e-2,
        atol=1e-2,
    )


@pytest.mark.parametrize("name", ["elu", "softplus", "hardswish", "mish"])
def test_transposed(name):
    x = edge_values(torch.float32).t().requires_grad_()
    check_function(lambda x: CASES[name](x.t() * 1.0), x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", [1, 13])
def test_prelu(weights):
    w = torch.rand(weights).requires_grad_()
    check_function(
        lambda x, w: F.prelu(x * 1.0, w),
        edge_values(torch.float32)[:, :].nan_to_num().requires_grad_(),
        w,
        rtol=1e-5,
        atol=1e-4,
    )
