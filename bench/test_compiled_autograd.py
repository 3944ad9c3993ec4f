"""Backwards in a region with compiled autograd, against eager's engine. The forward is eager's in both, or has graph breaks."""

import contextlib

import pytest
import torch
from torch import nn

import dyncomp


class Blocks(nn.Module):
    """Residual blocks with a graph break after every second one."""

    def __init__(self, width, count):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(count)
        )

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = x + block(x)
            if i % 2:
                print(end="")
        return x.square().mean()


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    stack, x = nn.TransformerEncoder(layer, 2), torch.randn(2, 8, 32)
    return stack, lambda: stack(x).square().mean()


def chain():
    torch.manual_seed(0)
    w = nn.ParameterList([torch.randn(64)])
    return w, lambda: (w[0].exp() * w[0]).sin().sum()


def linears():
    torch.manual_seed(0)
    layers = nn.Sequential(*[m for _ in range(20) for m in (nn.Linear(8, 8), nn.ReLU())])
    x = torch.ones(4, 8)
    return layers, lambda: layers(x).square().sum()


def region():
    return dyncomp.enable(compiled_autograd=True)


@pytest.mark.parametrize("make", [chain, linears, encoder])
def test_backward_of_eager_code(compare, make):
    """Only the backwards are timed: the graph is made once and retained."""
    module, loss_of = make()
    dyncomp.reset()
    loss = loss_of()

    def run(inside):
        with inside():
            for _ in range(10):
                module.zero_grad()
                loss.backward(retain_graph=True)

    compare(f"ten backwards of eager code: {make.__name__}", _sides(run), rounds=50)


@pytest.mark.parametrize("width, batch", [(64, 16), (256, 64)])
def test_steps_with_graph_breaks(compare, width, batch):
    torch.manual_seed(0)
    module, x = Blocks(width, 8), torch.randn(batch, width)
    dyncomp.reset()

    def run(inside):
        module.zero_grad()
        with inside():
            module(x).backward()

    sides = {**_sides(run), "compiled forward, eager's engine": lambda: run(dyncomp.enable)}
    compare(f"step with graph breaks: width {width}", sides, rounds=50)


def _sides(run):
    return {"eager": lambda: run(contextlib.nullcontext), "dyncomp": lambda: run(region)}
