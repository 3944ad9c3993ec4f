"""Reductions, softmax and normalisations against eager, through the interpreter."""

import pytest
import torch

from tests.codegen.graphs import assert_close, flat, run_interpreted

F = torch.nn.functional
torch.manual_seed(0)
X, Y = torch.randn(4, 6, 8), torch.randn(4, 6, 8)
INTS, BOOLS = torch.randint(-5, 6, (4, 6, 8)), torch.rand(4, 6, 8) > 0.5
W, B = torch.randn(8), torch.randn(8)
IMAGE = torch.randn(2, 8, 5, 6)
LAST = IMAGE.to(memory_format=torch.channels_last)
DIMS = [0, 1, 2, (0, 1), (1, 2), (0, 2), (0, 1, 2)]


def check(function, *inputs, scale=1.0):
    want = flat(function(*inputs))
    assert_close(run_interpreted(function, *inputs), want, scale)


@pytest.mark.parametrize("dim", DIMS, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "var", "std", "logsumexp"])
def test_reduction(name, dim):
    function = getattr(torch, name)
    check(lambda a: function(a, dim=dim), X)
    check(lambda a: function(a, dim=dim, keepdim=True), X)


@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_reduction_of_other_types(dim):
    check(lambda a: a.sum(dim), INTS)
    check(lambda a: a.sum(dim), BOOLS)
    check(lambda a: a.mean(dim), X.bfloat16())
    check(lambda a: a.sum(dim, dtype=torch.float64), X)
    check(lambda a: torch.linalg.vector_norm(a, dim=dim), X)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_one_dim(dim):
    for function in (torch.softmax, torch.log_softmax):
        check(lambda a, f=function: f(a, dim), X)
        check(lambda a, f=function: f(a, dim), X.bfloat16())
    check(lambda a: a.max(dim), X)
    check(lambda a: a.min(dim, keepdim=True), INTS)
    check(lambda a: a.argmax(dim), X)
    check(lambda a: a.argmin(dim, keepdim=True), INTS)
    check(lambda a: a.any(dim), BOOLS)
    check(lambda a: a.all(dim), BOOLS)
    check(lambda a: a.prod(dim), X)
    check(lambda a: F.normalize(a, dim=dim), X)


def test_nan_wins():
    x = X.clone()
    x[1, 2, 3] = float("nan")
    check(lambda a: (a.amax(1), a.amin(2), a.argmax(-1), a.max(0)[1]), x)


def test_whole_tensor():
    check(lambda a: (a.sum(), a.mean(), a.max(), a.argmax(), a.norm(), a.var()), X)
    check(lambda a: torch.var_mean(a, dim=1), X)
    check(lambda a: torch.std_mean(a), X)
    check(lambda a: a.var(dim=(0, 2), correction=0, keepdim=True), X)


def test_nothing_to_reduce():
    check(lambda a: a[:, :1].sum(1), X)
    check(lambda a: a[:, :1].argmax(1, keepdim=True), X)
    check(lambda a: a[:0].sum(0), X)
    check(lambda a: a[:0].prod(0), INTS)
    check(lambda a: (a[:0].any(0), a[:0].all(0), a[:0].any(0).logical_not()), BOOLS)
    check(lambda a: (a[:0].mean(0), a[:0].mean((0, 1)), a[:0].sum(dtype=torch.float64)), X)
    check(lambda a: a[:0] + 1, X)
    check(lambda a: a[0, 0, 0].sum(), X)


@pytest.mark.parametrize("image", [IMAGE, LAST], ids=["contiguous", "channels_last"])
def test_normalisation_of_images(image):
    check(lambda a, w, b: F.group_norm(a, 4, w, b), image, W, B)
    check(lambda a, w, b: F.group_norm(F.silu(a) + a, 2, w, b) * 2, image, W, B)
    check(lambda a, m, v, w, b: F.relu(F.batch_norm(a, m, v, w, b) + a), image, W, W.abs() + 0.1, W, B)
    check(lambda a, m, v: F.batch_norm(a, m, v), image, W, W.abs() + 0.1)
    check(lambda a: F.instance_norm(a), image)
    check(lambda a: a.mean((2, 3)), image)
    check(lambda a: a.sum((0, 2, 3)), image)


def test_normalisation_of_rows():
    check(lambda a, w, b: F.layer_norm(a, (8,), w, b), X, W, B)
    check(lambda a: F.layer_norm(a, (6, 8)), X)
    check(lambda a, w: F.layer_norm(a.bfloat16(), (8,), w.bfloat16()), X, W)
    check(lambda a: F.rms_norm(a, (8,)), X)
    check(lambda a, w: a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-6) * w, X, W)
    check(lambda a: F.layer_norm(F.layer_norm(a, (8,)) + a, (8,)), X)


def test_chains_of_reductions():
    check(lambda a: a.sum(-1).sum(-1), X)
    check(lambda a: a + a.sum(), X)
    check(lambda a: a / a.sum(-1, keepdim=True).abs() / a.sum(1, keepdim=True).abs(), X, scale=50)
    check(lambda a: (a.exp(), a.exp().sum(-1), a.exp().sum(0)), X)
    check(lambda a: a.reshape(2, 2, 6, 8).sum((1, 3)), X)
    check(lambda a: torch.exp(a).transpose(0, 2).reshape(8, 24).sum(0), X)


def test_long_sum_is_as_near_as_eager():
    x = torch.randn(3, 5000)
    exact = x.double().sum(-1)
    got = run_interpreted(lambda a: a.sum(-1), x)[0]
    assert (got - exact).abs().max() < 1e-3
