"""Recurrent layers and cells: parts of one product, dropout between layers, oneDNN's calls that keep what only they know."""

import pytest
import torch

import dyncomp
from tests.support import check
from tests.train.train_checks import check_module

LAYERS = {
    "gru": lambda: torch.nn.GRU(4, 5, num_layers=2, dropout=0.4),
    "rnn": lambda: torch.nn.RNN(4, 5, num_layers=2, dropout=0.4, nonlinearity="relu", bidirectional=True),
    "lstm": lambda: torch.nn.LSTM(4, 5, num_layers=2, dropout=0.4),
    "projected lstm": lambda: torch.nn.LSTM(4, 5, proj_size=3),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_in_training(name, dynamic):
    layer = LAYERS[name]()
    fast = dyncomp.optimize(layer, dynamic=dynamic)
    for seed, steps in enumerate((6, 6, 3)):
        x = torch.randn(steps, 2, 4)
        seen = []
        for run in (layer, fast):
            layer.zero_grad()
            torch.manual_seed(seed)
            output, state = run(x)
            output.square().sum().backward()
            parts = state if isinstance(state, tuple) else (state,)
            seen.append([output, *parts, *[p.grad.clone() for p in layer.parameters()], torch.get_rng_state()])
        torch.testing.assert_close(seen[1], seen[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dynamic", [None, True])
def test_layers_without_gradients_stay_whole(dynamic):
    layer = torch.nn.LSTM(4, 5, num_layers=2).requires_grad_(False)
    check(lambda x: layer(x.relu())[0].tanh(), torch.randn(5, 2, 4), dynamic=dynamic)


class Unrolled(torch.nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell, self.first = cell, torch.nn.Parameter(torch.ones(2, 5))

    def forward(self, x):
        state = (self.first, self.first) if isinstance(self.cell, torch.nn.LSTMCell) else self.first
        for step in x:
            state = self.cell(step, state)
        return state


@pytest.mark.parametrize("cell", [torch.nn.GRUCell, torch.nn.LSTMCell, torch.nn.RNNCell])
def test_cells(cell):
    check_module(Unrolled(cell(4, 5)), torch.randn(3, 2, 4))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_draws_as_eager_does(p, dynamic):
    def function(x):
        return torch.nn.functional.dropout(x, p) + torch.rand(1)

    check(function, torch.ones(3, 4), dynamic=dynamic)
