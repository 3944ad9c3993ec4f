"""Autocast and operations that torch makes of others: what they are made of is cast as in eager, with gradients and without."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.support import assert_same

X, TARGET, CLASSES = torch.randn(5, 16), torch.randn(5, 16), torch.randint(0, 16, (5,))

OPERATIONS = {
    "einsum": lambda x, w: torch.einsum("ij,kj->ik", x, w),
    "tensordot": lambda x, w: torch.tensordot(x, w, 1),
    "multi_dot": lambda x, w: torch.linalg.multi_dot([x, w, w]),
    "matrix_power": lambda x, w: torch.linalg.matrix_power(w, 3),
    "inner": torch.inner,
    "cross_entropy": lambda x, w: F.cross_entropy(x @ w, CLASSES),
    "smoothed": lambda x, w: F.cross_entropy(x @ w, CLASSES, label_smoothing=0.1),
    "nll_loss": lambda x, w: F.nll_loss((x @ w).log_softmax(-1), CLASSES),
    "cosine": lambda x, w: F.cosine_embedding_loss(x @ w, TARGET, torch.ones(5)),
    "triplet": lambda x, w: F.triplet_margin_loss(x @ w, TARGET, x),
    "cdist": lambda x, w: torch.cdist(x @ w, TARGET),
    "norm": lambda x, w: torch.linalg.norm(x @ w),
    "reflected": lambda x, w: F.pad((x @ w)[None], (1, 1), mode="reflect"),
    "gru cell": lambda x, w: torch.gru_cell(x[:, :4], x[:, :4], w[:12, :4], w[:12, :4]),
    "lstm cell": lambda x, w: torch.lstm_cell(x[:, :4], [x[:, :4], x[:, 4:8]], w[:, :4], w[:, :4]),
    "attention": lambda x, w: F.scaled_dot_product_attention((x @ w)[None, None], x[None, None], x[None, None]),
    "linear inside of an island": lambda x, w: _island(x, w),
}


def _island(x, w):
    y = torch.einsum("ij,kj->ik", x, w)
    with torch.autocast("cpu", enabled=False):
        y = torch.einsum("ij,kj->ik", y.float(), w)
    return torch.einsum("ij,kj->ik", y, w)


STATES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "grad": contextlib.nullcontext,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("state", list(STATES))
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_parts_are_cast_as_in_eager(fresh, name, state, dtype):
    function = OPERATIONS[name]
    fast = dyncomp.optimize(function, backend="aot_eager")
    w = torch.randn(16, 16, requires_grad=state == "grad")
    with torch.autocast("cpu", dtype), STATES[state]():
        expected, got = function(X, w), fast(X, w)
    single = isinstance(expected, torch.Tensor) and expected.dtype == torch.float32
    close = 1e-5 if single else 2e-2
    assert_same(got, expected, name, rtol=close, atol=close)
    assert not dyncomp.stats().fallbacks


def test_a_mode_inside_of_autocast_is_left_as_it_was(fresh):
    """Blocks that the program opens itself, without gradients, through the default backend."""

    def program(x, w):
        with torch.no_grad():
            first = torch.einsum("ij,jk->ik", x, w)
            with torch.autocast("cpu", torch.bfloat16):
                second = torch.einsum("ij,jk->ik", x, w)
                with torch.autocast("cpu", enabled=False):
                    third = torch.einsum("ij,jk->ik", x, w)
        return first, second, third, torch.einsum("ij,jk->ik", x, w)

    w = torch.randn(16, 16)
    assert_same(dyncomp.optimize(program, fullgraph=True)(X, w), program(X, w), rtol=2e-2, atol=2e-2)
