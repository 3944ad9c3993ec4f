"""Tensors that cannot be captured, and transforms around compiled code: eager's answer, by a named reason."""

import pytest
import torch

import dyncomp

pytestmark = pytest.mark.usefixtures("fresh")


def dense(tensor):
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_nested:
        return torch.nested.to_padded_tensor(tensor, 0.0)
    return tensor.to_dense() if tensor.layout is not torch.strided else tensor


def same_as_eager(function, *args, reasons=()):
    compiled = dyncomp.optimize(function)
    for _ in range(2):
        torch.testing.assert_close(dense(compiled(*args)), dense(function(*args)))
    told = dyncomp.stats().break_reasons
    assert set(reasons) <= set(told) and "internal" not in told, told


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_sparse_inputs(convert):
    same_as_eager(
        lambda s, x: (s @ x).relu() + 1, convert(torch.eye(3)), torch.randn(3, 4), reasons=["unsupported-tensor"]
    )


def test_sparse_intermediates():
    same_as_eager(lambda x: torch.sparse.mm((x * 2).to_sparse(), x.t()).relu(), torch.randn(3, 4))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_inputs():
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
    same_as_eager(lambda n: torch.nested.to_padded_tensor(n * 2, 0.0) + 1, nested, reasons=["unsupported-tensor"])


def test_lazily_conjugated_inputs():
    same_as_eager(lambda c: c * 2, torch.randn(3, dtype=torch.complex64).conj(), reasons=["unsupported-tensor"])


def scaled(x, y):
    return x.sin() * 2 + y


def test_compiled_code_inside_transforms():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    compiled = dyncomp.optimize(scaled)
    for _ in range(2):
        torch.testing.assert_close(torch.vmap(compiled)(x, y), scaled(x, y))
        torch.testing.assert_close(compiled(x, y), scaled(x, y))
    got = torch.func.grad(lambda a: compiled(a, y).sum())(x)
    torch.testing.assert_close(got, torch.func.grad(lambda a: scaled(a, y).sum())(x))
    assert dyncomp.stats().fallbacks["function-transform"] == 3


def test_fullgraph_inside_a_transform_is_refused():
    compiled = dyncomp.optimize(scaled, fullgraph=True)
    with pytest.raises(dyncomp.errors.FullGraphError, match="function-transform"):
        torch.vmap(compiled)(torch.randn(3, 4), torch.randn(3, 4))


def test_empty_intermediates_need_no_memory():
    x = torch.randn(5, 0, 4)
    same_as_eager(lambda v: torch.softmax(v, 1, dtype=torch.float64) * 2, x)
    same_as_eager(lambda a, b: torch.linalg.multi_dot([a, b, a]), torch.randn(5, 0), torch.randn(0, 5))


def test_copies_that_look_like_views_own_their_memory():
    x = torch.randn(5, 1, 1)
    same_as_eager(lambda v: torch.expand_copy(v, (5, 5, 5)), x)
    same_as_eager(lambda v: torch.view_copy(v, (5,)), x)
    assert dyncomp.optimize(lambda v: torch.view_copy(v, (5,)))(x).data_ptr() != x.data_ptr()
