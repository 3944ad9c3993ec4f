"""Convolutions with a kernel of one element as matrix products: values and gradients as eager's."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from dyncomp.codegen.lower import linear, pointwise_convolution
from tests.codegen.graphs import schedule_of
from tests.train.train_checks import check_function


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Also where it does not pay."""
    monkeypatch.setattr(pointwise_convolution, "PER_COPY", 0.0)


def operands(batch, inner, outer, image, bias=True):
    torch.manual_seed(0)
    x = torch.randn(batch, inner, *image, requires_grad=True)
    w = torch.randn(outer, inner, *(1 for _ in image), requires_grad=True)
    return (x, w, torch.randn(outer, requires_grad=True)) if bias else (x, w)


def names(function, *args):
    return [step.name for step in schedule_of(function, *args).steps if hasattr(step, "name")]


CONVOLUTIONS = {
    "plain": lambda x, w, b: F.conv2d(x, w),
    "bias": lambda x, w, b: F.conv2d(x, w, b),
    "steps": lambda x, w, b: F.conv2d(x, w, b, stride=2),
    "one long step": lambda x, w, b: F.conv2d(x, w, b, stride=(1, 3)),
    "dilated": lambda x, w, b: F.conv2d(x, w, b, dilation=2),
    "between loops": lambda x, w, b: F.conv2d(x.relu(), w * 2, b).sigmoid(),
    "channels last": lambda x, w, b: F.conv2d(x.to(memory_format=torch.channels_last), w, b),
    "both channels last": lambda x, w, b: F.conv2d(
        x.contiguous(memory_format=torch.channels_last), w.contiguous(memory_format=torch.channels_last)
    ),
    "read twice": lambda x, w, b: (y := F.conv2d(x, w)) * y.mean((2, 3), keepdim=True),
    "one after the other": lambda x, w, b: F.conv2d(F.conv2d(x, w, b).relu(), w.transpose(0, 1)),
    "viewed": lambda x, w, b: F.conv2d(x, w).flatten(2).transpose(1, 2),
    "frozen weight": lambda x, w, b: F.conv2d(x, w.detach(), b),
    "frozen input": lambda x, w, b: F.conv2d(x.detach(), w, b),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients(name):
    check_function(CONVOLUTIONS[name], *operands(2, 8, 12, (6, 6)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("image", "convolve"), [((6,), F.conv1d), ((2, 4, 6), F.conv3d)])
def test_other_dimensions(image, convolve):
    check_function(lambda x, w, b: convolve(x, w, b, stride=2), *operands(3, 5, 4, image), rtol=1e-4, atol=1e-4)


@given(
    st.integers(1, 3), st.integers(1, 9), st.integers(1, 9),
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3),
)  # fmt: skip
@settings(max_examples=8, deadline=None)
def test_sizes(batch, inner, outer, height, width, down, right):
    image = (height * down, width * right)
    check_function(
        lambda x, w, b: F.conv2d(x, w, b, stride=(down, right)),
        *operands(batch, inner, outer, image),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda x, w: F.conv2d(x[..., :5, :], w, stride=2),
        lambda x, w: F.conv2d(x, w[:, :4], groups=2),
        lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1)),
        lambda x, w: F.conv2d(x.double(), w.double()),
        lambda x, w: F.conv2d(x, w.expand(-1, -1, 3, 3)),
    ],
)
def test_others_are_left_to_aten(function):
    x, w = (t.detach() for t in operands(2, 8, 12, (6, 6), bias=False))
    assert not {"aten::mm", "mkldnn::_linear_pointwise"} & set(names(function, x, w))
    check_function(function, x.requires_grad_(), w.requires_grad_(), rtol=1e-4, atol=1e-4)


def test_where_it_pays(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(linear, "_mkl_is_at_home", lambda: False)
    few, many = (torch.randn(4, 512, s, s) for s in (3, 40))
    w = torch.randn(1024, 512, 1, 1)
    assert names(F.conv2d, few, w) == ["mkldnn::_linear_pointwise"]
    assert names(F.conv2d, many, w[:64]) == ["aten::convolution"]


@pytest.mark.parametrize("training", [False, True])
def test_without_gradients_it_stays_eagers_call(training):
    """Whose result is eager's to the bit."""
    layer = torch.nn.Conv2d(64, 64, 1)
    x = torch.randn(1, 64, 7, 7)
    with torch.set_grad_enabled(training):
        got, want = dyncomp.optimize(layer)(x), layer(x)
    assert training or torch.equal(got, want)
    torch.testing.assert_close(got, want)
