"""Gradients that are added up at places from data: values as in eager, and no copy of what is added to."""

import pytest
import torch
import torch.nn.functional as F

from tests.codegen.graphs import schedule_of
from tests.train.train_checks import check_function

IDS = torch.tensor([[0, 3, 3], [7, 0, 9]])
FLAT = IDS.flatten()


def table(dtype=torch.float32):
    return torch.randn(10, 12, dtype=dtype).requires_grad_()


EMBEDDINGS = {
    "plain": lambda e: F.embedding(IDS, e) * 2,
    "transposed ids": lambda e: F.embedding(IDS.t(), e).cos(),
    "int32": lambda e: F.embedding(IDS.int(), e).cos(),
    "padding": lambda e: F.embedding(IDS, e, padding_idx=3) * 2,
    "by frequency": lambda e: F.embedding(IDS, e, scale_grad_by_freq=True) * 2,
    "expanded gradient": lambda e: F.embedding(IDS, e).sum(),
    "transposed gradient": lambda e: F.embedding(IDS, e).transpose(0, 2).cos().contiguous(),
    "no ids": lambda e: F.embedding(IDS[:0], e).sum() + e.sum(),
    "shared with a product": lambda e: F.linear(F.embedding(IDS, e) * 2, e),
    "shared, padding": lambda e: F.linear(F.embedding(IDS, e, padding_idx=3) * 2, e),
    "shared by three": lambda e: F.linear(F.embedding(IDS, e), e).sum() + F.embedding(IDS.t(), e).cos().sum(),
    "shared, product read twice": lambda e: F.linear(F.embedding(IDS, e), e).cos().sum() + (e * e).sum(),
}
SCATTERS = {
    "index": lambda e, r: e[IDS] * r.view(2, 3, 12),
    "two indices": lambda e, r: e[IDS, IDS.clamp(max=3)] * 2,
    "mask": lambda e, r: e[torch.arange(10) % 2 == 0] * 2,
    "gather": lambda e, r: e.gather(1, IDS.repeat(5, 2)[:, :4] % 10) * 2,
    "index_select": lambda e, r: e.index_select(0, FLAT) * r,
    "index_add": lambda e, r: (e * 2).index_add(0, FLAT, r) * e,
    "index_add to an input": lambda e, r: e.index_add(0, FLAT, r) * e,
    "index_add, read elsewhere": lambda e, r: (y := e * 2).index_add(0, FLAT, r) * y,
    "scatter_add": lambda e, r: e.exp().scatter_add(0, FLAT[:, None].expand(6, 12), r).cos(),
    "scatter": lambda e, r: e.exp().scatter(0, torch.arange(6)[:, None].expand(6, 12), r).cos(),
    "scatter of a number": lambda e, r: e.exp().scatter(0, torch.arange(6)[:, None].expand(6, 12), 3.0) * e,
    "index_put": lambda e, r: (e * 2).index_put((FLAT,), r, accumulate=True) * e,
    "index_copy": lambda e, r: (e * 2).index_copy(0, torch.arange(6), r) * e,
}
PLACES = torch.tensor([2, 0, 1])
# What is written is read as another argument of the same operation.
TWICE = {
    "index_add": lambda x: (x * 2).index_add(0, PLACES, x * 2),
    "index_add to itself": lambda x: (y := x * 2).index_add(0, PLACES, y),
    "index_add of a product": lambda x: (y := x @ x).index_add(0, PLACES, y),
    "index_copy": lambda x: (y := x @ x).index_copy(0, PLACES, y),
    "scatter": lambda x: (y := x * 2).scatter(1, PLACES.expand(3, 3), y),
    "scatter_add": lambda x: (y := x * 2).scatter_add(1, PLACES.expand(3, 3), y),
    "index_put": lambda x: (y := x * 2).index_put((PLACES,), y),
    "index_put, accumulate": lambda x: (y := x * 2).index_put((PLACES,), y, accumulate=True),
    "the indices": lambda x: ((i := (x * 0).long() + PLACES).scatter(1, i, 7) * x),
    "indices and values": lambda x: ((i := (x * 0).long() + PLACES).scatter_add(1, i, i) * x),
    "indices in a list": lambda x: ((i := (x[0] * 0).long() + PLACES).index_put((i,), torch.arange(3)) * x),
}


@pytest.mark.parametrize("name", TWICE)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_an_argument_twice(name, requires_grad):
    check_function(TWICE[name], torch.randn(3, 3).requires_grad_(requires_grad))


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embedding(name):
    check_function(EMBEDDINGS[name], table())


@pytest.mark.parametrize("name", ["plain", "padding", "shared with a product"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_embedding_types(name, dtype):
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-9
    check_function(EMBEDDINGS[name], table(dtype), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scatter(name, dtype):
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-5
    rows = torch.randn(6, 12, dtype=dtype).requires_grad_()
    check_function(SCATTERS[name], table(dtype), rows, rtol=tolerance, atol=tolerance)


def called(function, *inputs):
    return [getattr(step, "name", "kernel") for step in schedule_of(function, *inputs).steps]


def test_which_calls_are_made():
    e, r = torch.randn(10, 12), torch.randn(6, 12)
    backward = torch.ops.aten.embedding_dense_backward
    assert called(lambda g: backward(g, FLAT, 10, -1, False), r) == ["kernel", "aten::index_add_"]
    assert called(lambda e, r: (e * 2).index_add(0, FLAT, r), e, r) == ["kernel", "aten::index_add_"]
    zeros = lambda r: [torch.zeros(10, 12).index_add(0, FLAT % (9 + k), r) for k in (0, 1)]  # noqa: E731
    assert called(zeros, r).count("aten::index_add_") == 2  # one fill each
    assert called(lambda e, r: e.index_add(0, FLAT, r), e, r) == ["aten::index_add"]  # an input stays as it is
    shared = called(lambda a, b, g: a @ b + backward(g, FLAT, 10, -1, False), torch.randn(10, 4), torch.randn(4, 12), r)
    assert shared == ["aten::mm", "aten::index_add_"]


def test_an_own_result_of_another_node_is_not_written():
    """A node that hands on its operand's tensor must not make it look unread."""
    e, r = table(), torch.randn(6, 12).requires_grad_()

    def function(e, r):
        y = e.exp()
        return y.to(torch.float32).contiguous().index_add(0, FLAT, r) * y.sum(), y * 2

    check_function(function, e, r, rtol=1e-5, atol=1e-4)
