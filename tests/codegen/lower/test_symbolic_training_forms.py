"""The forms of training graphs (sums in place, products around convolutions) with symbolic sizes: eager's gradients, one graph."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from dyncomp.codegen.lower import graph, pointwise_convolution
from dyncomp.fake.rules import convolution
from tests.support import assert_same


@pytest.fixture
def made(monkeypatch):
    """What stands in for operations of the graphs that are compiled."""
    found: list[str] = []
    calls, products = graph.in_place_call, dict(graph._PRODUCTS)

    def record_call(*args):
        result = calls(*args)
        if result is not None:
            found.append(getattr(result, "name", "waits for a product"))
        return result

    def recording(name):
        def rule(*args):
            result = products[name](*args)
            if result is not None:
                found.append(name)
            return result

        return rule

    monkeypatch.setattr(graph, "in_place_call", record_call)
    monkeypatch.setattr(graph, "_PRODUCTS", {name: recording(name) for name in products})
    monkeypatch.setattr(pointwise_convolution, "PER_COPY", 0.0)
    return found


def train(function, parameters, inputs):
    """One compile; gradients of the parameters as eager's for all the inputs."""
    fast = dyncomp.optimize(function, dynamic=True)
    before = dyncomp.stats().graphs
    with config.patch(strict=True, disk_cache=False):
        for x in inputs:
            ours, theirs = (
                torch.autograd.grad(f(x, *parameters).pow(2).sum(), parameters, allow_unused=True) for f in (fast, function)
            )
            assert_same(ours, theirs, rtol=1e-4, atol=1e-3)
    assert dyncomp.stats().graphs == before + 1


def ids(*shapes):
    return [torch.randint(0, 20, shape) for shape in shapes]


TABLE = torch.randn(20, 12)
SHAPES = ((2, 3), (4, 5), (3, 9), (7, 2))
SUMS = {
    "embedding": (lambda i, e: F.embedding(i, e) * 2, ["aten::index_add_"]),
    "padding": (lambda i, e: F.embedding(i.t(), e, padding_idx=3).cos(), ["aten::index_add_"]),
    "shared with a product": (
        lambda i, e: F.linear(F.embedding(i, e).sin(), e), ["waits for a product", "aten::index_add_"]
    ),
    "index": (lambda i, e: e[i] * i.shape[0], ["aten::index_put_"]),
    "index_select": (lambda i, e: e.index_select(0, i.flatten()).cos(), ["aten::index_add_"]),
    "gather": (lambda i, e: e.gather(1, i[:, :2].repeat(1, 3) % 12), ["aten::scatter_add_"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_sums_at_places_from_data(made, name):
    function, wanted = SUMS[name]
    train(function, [TABLE.clone().requires_grad_()], ids(*SHAPES))
    assert made == wanted


def images(*shapes):
    return [torch.randn(shape) for shape in shapes]


IMAGES = ((2, 8, 6, 6), (3, 8, 4, 8), (5, 8, 2, 10))
CONVOLUTIONS = {
    "plain": (lambda x, w, b: F.conv2d(x, w), 1),
    "bias, between loops": (lambda x, w, b: F.conv2d(x.relu(), w * 2, b).sigmoid(), 1),
    "channels last": (lambda x, w, b: F.conv2d(x.to(memory_format=torch.channels_last), w, b), 1),
    "one after the other": (lambda x, w, b: F.conv2d(F.conv2d(x, w, b).tanh(), w.transpose(0, 1).contiguous()), 2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_as_products(made, name):
    function, count = CONVOLUTIONS[name]
    torch.manual_seed(0)
    train(function, [torch.randn(12, 8, 1, 1, requires_grad=True), torch.randn(12, requires_grad=True)], images(*IMAGES))
    assert made.count("aten.convolution.default") == made.count("aten.convolution_backward.default") == count


@pytest.mark.parametrize("row_major", [False, True])
def test_gradients_of_kernels_of_one_element_lie_as_onednn_lays_them_out_here(made, monkeypatch, row_major):
    """Which of two equal layouts that is depends on the machine, so the operation is asked; products follow its answer."""
    monkeypatch.setattr(convolution, "_gives_row_major_kernels", lambda *args: row_major)
    function, _ = CONVOLUTIONS["channels last"]
    fast = dyncomp.optimize(function, dynamic=True)
    weight, bias = torch.randn(12, 8, 1, 1, requires_grad=True), torch.randn(12, requires_grad=True)
    (gradient,) = torch.autograd.grad(fast(torch.randn(2, 8, 6, 6), weight, bias).sum(), weight)
    assert "aten.convolution_backward.default" in made
    assert gradient.stride() == ((8, 1, 1, 1) if row_major else (8, 1, 8, 8))


def test_what_sizes_do_not_decide_is_left_to_aten(made):
    """Whether the places that a stride reads divide the image is not known for all sizes."""
    torch.manual_seed(0)
    weight, bias = torch.randn(12, 8, 1, 1, requires_grad=True), torch.randn(12, requires_grad=True)
    train(lambda x, w, b: F.conv2d(x, w, b, stride=2), [weight, bias], images((2, 8, 6, 6), (3, 8, 4, 8), (5, 8, 7, 5)))
    assert not made
