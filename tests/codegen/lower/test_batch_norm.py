"""Batch norm in training: results, gradients and running statistics against eager."""

import pytest
import torch
from torch import nn

import dyncomp
from tests.codegen.graphs import schedule_of
from tests.train.train_checks import check_function, check_module

SHAPES = [(6, 5), (3, 5, 9), (4, 5, 6, 7), (3, 5, 3, 3), (2, 5, 17, 16), (2, 5, 3, 4, 2)]
LAYERS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def layer(shape, **settings):
    made = LAYERS[len(shape)](shape[1], **settings)
    if made.affine:
        with torch.no_grad():
            made.weight.uniform_(0.5, 2)
            made.bias.uniform_(-1, 1)
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape):
    check_module(nn.Sequential(layer(shape), nn.ReLU()), torch.randn(shape).requires_grad_())


@pytest.mark.parametrize(
    "settings", [{"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"eps": 0.1}]
)
def test_settings(settings):
    check_module(layer((4, 5, 6, 7), **settings), torch.randn(4, 5, 6, 7).requires_grad_())


@pytest.mark.parametrize("shape", [(4, 5, 6, 7), (3, 16, 5, 5)])
def test_channels_last(shape):
    x = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    check_module(nn.Sequential(layer(shape), nn.ReLU()), x.requires_grad_())


def test_transposed_input():
    check_module(layer((7, 5, 6)), torch.randn(5, 7, 6).transpose(0, 1).requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types(dtype):
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-9
    check_module(
        layer((4, 5, 6, 7)).to(dtype),
        torch.randn(4, 5, 6, 7).to(dtype).requires_grad_(),
        rtol=tolerance,
        atol=tolerance,
    )


def test_residual_block():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.Conv2d(6, 6, 1, bias=False)
            self.first, self.second = nn.BatchNorm2d(6), nn.BatchNorm2d(6)

        def forward(self, x):
            y = torch.relu(self.first(self.one(x)))
            return torch.relu(self.second(self.two(y)) + x)

    check_module(Block(), torch.randn(3, 6, 8, 9).requires_grad_(), rtol=1e-4, atol=1e-4)


def test_large_mean_and_small_spread():
    """The variance takes two passes: no digits are lost to the mean. (x * a + c, as in eager, loses some of the result's.)"""
    x = (torch.randn(4, 3, 16, 16) * 1e-2 + 100).requires_grad_()
    check_function(lambda x: torch.nn.functional.batch_norm(x, None, None, training=True), x, rtol=1e-2, atol=1e-2)


def test_one_value_a_channel_is_refused_as_in_eager():
    module = nn.BatchNorm1d(5)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        dyncomp.optimize(module)(torch.randn(1, 5))


def test_no_more_than_statistics_and_result():
    """One kernel for the two sums, one for the result and what reads it."""
    norm = torch.ops.aten._native_batch_norm_legit_functional
    one = torch.ones(8)
    steps = schedule_of(lambda x: torch.relu(norm(x, one, one, one, one, True, 0.1, 1e-5)[0]), torch.randn(4, 8, 6, 6))
    assert len(steps.steps) == 2
