"""Operations whose results cannot be laid out without running them break the graph by name; results are eager's."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp


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
