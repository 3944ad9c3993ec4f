"""What of the user's memory a backward may read: what eager keeps for the same gradients. Usual patterns keep what they did."""

import functools

import pytest
import torch
import torch.nn.functional as F

from tests.aot.test_joint import check, kept


def r(*shape):
    return torch.randn(*shape, requires_grad=True)


def of_a_result(x, w):
    h = x * 2
    return h * w, h, (h + 1).exp() * 3


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x, w: (x.clone() * w, x.sin()), ["clone", "input"]),
        (lambda x, w: ((x + 1).sin(), x * w), ["add", "input", "input"]),
        (lambda x, w: (x.masked_fill(x > 0.5, 0.5), x * w), ["gt", "input", "input"]),
        (lambda x, w: (torch.empty_like(x).copy_(x) * w, x.sin()), ["clone", "input"]),
    ],
)
def test_what_eager_keeps_for_another_result_is_kept_apart(function, values):
    joint = check(function, r(3, 4), r(3, 4))
    assert kept(joint) == values


def test_results_that_eager_keeps_for_other_gradients_are_not_read_for_these():
    joint = check(of_a_result, r(3, 4), r(3, 4))
    shown = [place for place, (kind, index) in enumerate(joint.saved) if kind == "value" and joint.forward.outputs[index][0] == "output"]
    assert len(shown) == 1
    assert {outputs for outputs, _ in joint.readers[shown[0]]} == {0b1}  # the product's, not those of `exp`


def test_two_results_of_which_one_is_kept():
    """They are computed once, but the user may write to the first while eager keeps the second for the product."""
    joint = check(lambda x, w: (x.tanh(), x.tanh() * w), r(3, 4), r(3, 4))
    assert "output" not in kept(joint)


# As eager keeps them between the same ends, or for some of the inputs around where another value would cost memory.
USUAL = {
    "linear": (lambda x, w, b: F.linear(x, w, b), ["input", "input"]),
    "gelu": (lambda x, w, b: F.gelu(x), ["input"]),
    "chain": (lambda x, w, b: (x.sin().cos() * 2).exp(), ["input"]),
    "scaled gelu": (lambda x, w, b: F.gelu(x) * b, ["input", "input"]),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (4,), b, b), ["input", "input", "item", "item"]),
    "softmax attention": (lambda x, w, b: ((x @ w) @ (x @ w).t()).softmax(-1) @ x, ["input", "input", "mm", "softmax"]),
    "root mean square norm": (lambda x, w, b: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * b, ["input", "input", "mean"]),
    "perceptron": (lambda x, w, b: F.gelu(F.linear(x, w, b)) @ w, ["addmm", "gelu", "input", "input"]),
}  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_usual_patterns(name):
    function, values = USUAL[name]
    assert kept(check(function, r(4, 4), r(4, 4), r(4))) == values


def test_masks_are_kept_where_they_cost_little():
    """For the gradient of `y` alone eager does not come to what keeps `x`."""

    def function(x, y, w):
        return functools.reduce(torch.mm, [w] * 9, torch.where(x > 0, x.sin(), y))

    joint = check(function, r(16, 16), r(16, 16), r(16, 16))
    assert "gt" in kept(joint)
