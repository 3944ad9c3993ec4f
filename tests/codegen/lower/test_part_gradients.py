"""Gradients of slices and selected parts against eager."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.train.train_checks import check_function

CASES = {
    "select": lambda x: x[:, 2] * x[:, -1],
    "slices": lambda x: x[:, 1:4:2].sum() + (x[..., -2:] * 2).sum(),
    "halves": lambda x: torch.cat((-x[..., 3:], x[..., :3]), -1) * x,
    "chunks": lambda x: sum(part * k for k, part in enumerate(x.chunk(3, -1))),
    "whole slice": lambda x: x[:, 0:5] * 2,
    "empty slice": lambda x: x[:, 4:2].sum() + x.sum(),
    "one element": lambda x: x[1, 2, 3] * x[0, 0, 0],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_case(name, dtype):
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    check_function(CASES[name], torch.randn(4, 5, 6, dtype=dtype).requires_grad_(), rtol=tolerance, atol=tolerance)


def test_transposed():
    check_function(lambda x: x.t()[2:5, ::2] * 2, torch.randn(7, 9).requires_grad_())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2), st.integers(-7, 7), st.integers(-7, 9), st.integers(1, 3))
def test_slices(dim, start, end, step):
    where = (slice(None),) * dim + (slice(start, end, step),)
    check_function(lambda x: (x * 2)[where].cos() * 3, torch.randn(4, 5, 6).requires_grad_(), steps=1)
