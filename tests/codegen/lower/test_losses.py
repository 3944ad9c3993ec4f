"""The backward of nll_loss as part of cross entropy, against eager."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.train.train_checks import check_function

REDUCTIONS = ("mean", "sum", "none")
TARGET = torch.tensor([1, 3, 5, 0, 38, 5, 5, 2])


def logits(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows(reduction, dtype):
    check_function(lambda x: F.cross_entropy(x, TARGET, reduction=reduction), logits(8, 39, dtype=dtype))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weights(reduction):
    weight = torch.rand(39)
    check_function(lambda x: F.cross_entropy(x, TARGET, weight, reduction=reduction), logits(8, 39))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("ignored", [5, -100])
def test_ignored(reduction, ignored):
    target = TARGET.masked_fill(TARGET == 5, ignored)
    check_function(lambda x: F.cross_entropy(x, target, ignore_index=ignored, reduction=reduction), logits(8, 39))


def test_all_ignored():
    check_function(lambda x: F.cross_entropy(x, torch.full((8,), -100)), logits(8, 39))


def test_weights_of_zero():
    check_function(lambda x: F.cross_entropy(x, TARGET, torch.zeros(39)), logits(8, 39))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_images(reduction):
    target = torch.randint(0, 5, (2, 4, 7))
    target[0, 0, 0] = -100
    check_function(lambda x: F.cross_entropy(x, target, reduction=reduction), logits(2, 5, 4, 7))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_smoothing(reduction):
    check_function(lambda x: F.cross_entropy(x, TARGET, reduction=reduction, label_smoothing=0.1), logits(8, 39))


def test_transposed():
    check_function(lambda x: F.cross_entropy(x.t(), TARGET), logits(39, 8))


def test_bfloat16():
    check_function(lambda x: F.cross_entropy(x, TARGET), logits(8, 39, dtype=torch.bfloat16), rtol=2e-2, atol=1e-2)


def test_target_out_of_range():
    fast = dyncomp.optimize(lambda x, t: F.cross_entropy(x, t))
    with pytest.raises(IndexError, match="Target 39 is out of bounds"):
        fast(logits(8, 39), TARGET + 1)
