"""Which products go to oneDNN, and that they compute what ATen's do."""

import pytest
import torch

from dyncomp.codegen.compile import compile_graph
from dyncomp.codegen.lower import linear
from tests.codegen.graphs import assert_close, flat, trace

F = torch.nn.functional
R = torch.randn
LINEAR = ("mkldnn::_linear_pointwise", "")

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this torch has no oneDNN",
)


@pytest.fixture(autouse=True)
def elsewhere_than_on_intel(monkeypatch):
    monkeypatch.setattr(linear, "_mkl_is_at_home", lambda: False)


@torch.no_grad()
def uses_onednn(function, *inputs):
    """Whether the plan calls oneDNN; checks the results."""
    want = flat(function(*inputs))
    plan = compile_graph(trace(function, *inputs))
    assert_close(list(plan(*inputs)), want, 4.0)
    return LINEAR in plan.data()["ops"]


def test_a_large_matrix_with_a_few_rows():
    assert uses_onednn(F.linear, R(16, 512), R(1024, 512), R(1024))
    assert uses_onednn(F.linear, R(2, 8, 512), R(1024, 512))
    assert uses_onednn(lambda x, w, b: torch.addmm(b, x, w), R(16, 512), R(512, 1024), R(1024))
    assert uses_onednn(lambda x, w: torch.relu(x + 1) @ w.t() - 1, R(16, 512), R(1024, 512))


def test_a_part_of_a_larger_matrix():
    assert uses_onednn(lambda x, w: F.linear(x, w[100:1124]), R(16, 512), R(2000, 512))


def test_what_stays_with_aten():
    assert not uses_onednn(F.linear, R(1, 1024), R(8192, 1024))
    assert not uses_onednn(F.linear, R(16, 32), R(64, 32), R(64))
    assert not uses_onednn(F.linear, R(16, 512).double(), R(1024, 512).double())
    assert not uses_onednn(lambda x, w: x[:, ::2] @ w, R(16, 1024), R(512, 1024))
    assert not uses_onednn(lambda x, w: x @ w[:, ::2], R(16, 512), R(512, 2048))
    assert not uses_onednn(lambda x, w, b: torch.addmm(b, x, w, beta=0.5), R(16, 512), R(512, 1024), R(1024))
    assert not uses_onednn(lambda x, w, b: torch.addmm(b, x, w), R(16, 512), R(512, 1024), R(16, 1024))


def test_switched_off():
    with torch.backends.mkldnn.flags(enabled=False):
        assert not uses_onednn(F.linear, R(16, 512), R(1024, 512))


def test_where_mkl_is_at_home(monkeypatch):
    """There only large matrices that lie transposed, as nn.Linear's do, gain."""
    monkeypatch.setattr(linear, "_mkl_is_at_home", lambda: True)
    assert uses_onednn(F.linear, R(16, 1024), R(2048, 1024), R(2048))
    assert not uses_onednn(F.linear, R(16, 512), R(1024, 512), R(1024))
    assert not uses_onednn(lambda x, w, b: torch.addmm(b, x, w), R(16, 1024), R(1024, 2048), R(2048))
