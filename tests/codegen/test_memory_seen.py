"""Operations that see memory instead of values: `as_strided` counts from the start of a storage, which here may be the arena's."""

import pytest
import torch

import dyncomp
from tests.support import assert_same


def offset(x, w):
    q = w.sin() + x[0]
    u = torch.index_add(q * 2, 0, torch.tensor([0, 1]), x[:2])
    return u.as_strided((2, 2), (2, 1), 3) + 1, q.cumsum(0), u.as_strided((3,), (1,), 1) * 2


def under_another_view(x, w):
    q = w.sin() + x[0]
    u = torch.index_add(q * 2, 0, torch.tensor([0, 1]), x[:2]).reshape(3, 3).t()
    return u.as_strided((2, 2), (2, 1), 3) + 1, q.cumsum(0), (u * 2).as_strided((2,), (1,), 1)


def written(x, w):
    q = w.sin() + x[0]
    u = (q * 2).cumsum(0) * 2 + q
    u.as_strided((2, 2), (2, 1), 3).mul_(2)
    return u + 1, q.cumsum(0)


def copied(x, w):
    q = w.sin() + x[0]
    u = (q * 2).cumsum(0).reshape(3, 3).t() + q.sum()
    taken = torch.as_strided_copy(u, (2,), (1,), 1), torch.as_strided_copy(u * 2, (2, 2), (1, 2), 2)
    return *taken, torch.as_strided_scatter(u, torch.zeros(2), (2,), (1,), 1) * 2, q.cumsum(0)


@pytest.mark.parametrize("function", [offset, under_another_view, written, copied], ids=lambda f: f.__name__)
def test_offsets_count_from_the_tensors_own_memory(function):
    fast = dyncomp.optimize(function, fullgraph=True)
    x, w = torch.arange(8.0), torch.randn(9)
    for _ in range(2):
        assert_same(fast(x, w), function(x, w))


def test_gradient_of_overlapping_windows():
    def f(x):
        padded = torch.cat([x, x.sin()])
        return padded.as_strided((5, 4), (2, 1)).cumsum(1) * 2, torch.stft(
            x, 4, hop_length=2, window=torch.hann_window(4), return_complex=True
        ).abs()

    fast = dyncomp.optimize(f)
    ours = torch.randn(16, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    for function, x in ((fast, ours), (f, theirs)):
        windows, spectrum = function(x)
        ((windows * torch.arange(20.0).view(5, 4)).sum() + (spectrum * torch.arange(27.0).view(3, 9)).sum()).backward()
    assert_same(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
