"""Training on batches of nothing: gradients are sums over no element, and nothing may be read for them."""

import pytest
import torch

from tests.support import assert_same, check


def picked(x, index, weight, bias):
    return torch.nn.functional.linear(x.index_select(0, index), weight, bias)


def placed(x, index, weight, bias):
    return x.new_zeros(4, 3).index_copy_(0, index, picked(x, index, weight, bias))


@pytest.mark.parametrize("dynamic", [False, True, None])
@pytest.mark.parametrize("function", [picked, placed])
def test_gradients_of_no_rows(fresh, function, dynamic):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(4, 5), torch.randn(3, 5), torch.randn(3)
    grads = {}

    def step(run, count):
        w, b = (one.clone().requires_grad_() for one in (weight, bias))
        out = run(x, torch.arange(count), w, b)
        (out.square().sum() + out.sum()).backward()
        return out, w.grad, b.grad

    fast = check(function, x, torch.arange(2), weight, bias, graphs=None, dynamic=dynamic)
    for count in (0, 3, 0, 2, 1):
        grads[count] = step(fast, count)
        assert_same(grads[count], step(function, count))


@pytest.mark.parametrize("dynamic", [False, True])
def test_sums_over_nothing_beside_what_they_sum(fresh, dynamic):
    def both(table, index):
        rows = table[index]
        return rows * 2, rows.sum(0), rows.prod(0), (rows > 0).all(0), (rows > 0).any(0)

    table = torch.randn(6, 8)
    for count in (0, 3):
        check(both, table, torch.arange(count), graphs=None, dynamic=dynamic)
