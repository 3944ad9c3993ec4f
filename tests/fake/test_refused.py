"""Operations whose results cannot be laid out without running them break the graph by name; results are eager's."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp

PLACES = torch.tensor([[0, 1], [2, 0]])
MASK = torch.eye(4).to_sparse()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("grad", [False, True])
def test_embedding_bag(fresh, mode, grad):
    weight = torch.randn(10, 3, requires_grad=grad)
    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4])

    def f(w):
        return F.embedding_bag(indices, w, offsets, mode=mode).sin()

    got, want = dyncomp.optimize(f)(weight), f(weight)
    torch.testing.assert_close(got, want)
    assert "fake-failed" in dyncomp.stats().break_reasons
    if grad:
        (ours,) = torch.autograd.grad(got.sum(), weight)
        (theirs,) = torch.autograd.grad(want.sum(), weight)
        torch.testing.assert_close(ours, theirs)


SPARSE = {
    "coo": (torch.Tensor.to_sparse, 2),
    "hybrid": (lambda x: x.to_sparse(1), 2),
    "csr": (torch.Tensor.to_sparse_csr, 2),
    "csc": (torch.Tensor.to_sparse_csc, 2),
    "bsr": (lambda x: x.to_sparse_bsr((2, 2)), 2),
    "coo_tensor": (lambda x: torch.sparse_coo_tensor(PLACES, x[0, :2], (4, 4)), 3),  # x[0, :2] in a frame of its own
    "mask": (lambda x: x.sparse_mask(MASK), 2),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_results(fresh, name):
    """Before and after the sparse part there are graphs; the break says what cannot be followed."""
    make, graphs = SPARSE[name]

    def f(x):
        return (make(x * 2).to_dense() + 1).sin()

    x = torch.randn(4, 4)
    torch.testing.assert_close(dyncomp.optimize(f)(x), f(x))
    assert set(dyncomp.stats().break_reasons) == {"unsupported-tensor"}
    assert dyncomp.stats().graphs == graphs


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64])
def test_a_result_that_does_not_fit_what_is_written(fresh, dtype):
    """Of arguments of the same kind: no rule and no argument tells that the result is a float."""

    def function(x):
        return x.ldexp_(x)

    x = torch.ones(3, dtype=dtype)
    with pytest.raises(RuntimeError) as expected:
        function(x.clone())
    with pytest.raises(RuntimeError) as got:
        dyncomp.optimize(function)(x)
    assert str(got.value) == str(expected.value) and x.eq(1).all()
