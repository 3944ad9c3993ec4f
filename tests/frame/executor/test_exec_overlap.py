"""Inputs that share memory with one that a plan writes: told by the ranges of memory, and what runs then."""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dyncomp._frame import _exec
from tests.frame.executor.exec_support import ADD_ONE, alloc, plan

MEMORY = torch.arange(24.0)
WHERE = st.builds(
    lambda offset, size, step: MEMORY.as_strided((size,), (step,), offset),
    st.integers(0, 8), st.integers(0, 6), st.integers(0, 3),
)  # fmt: skip


def ends(tensor):
    first = tensor.storage_offset()
    return first, first + (tensor.numel() - 1) * tensor.stride(0)


@given(st.lists(st.tuples(WHERE | st.just(3), st.booleans()), max_size=6))
def test_ranges(given_):
    inputs = [tensor for tensor, _ in given_]
    written = [i for i, (tensor, yes) in enumerate(given_) if yes and not isinstance(tensor, int)]

    def meet(i, j):
        a, b = inputs[i], inputs[j]
        if isinstance(a, int) or isinstance(b, int) or not a.numel() or not b.numel():
            return False
        return ends(a)[0] <= ends(b)[1] and ends(b)[0] <= ends(a)[1]

    expected = any(meet(i, j) for i in written for j in range(len(inputs)) if i != j)
    assert _exec.shares_memory(inputs, written) == expected


def test_other_storages_over_the_same_memory():
    array = numpy.zeros(4, dtype=numpy.float32)
    a, b = torch.from_numpy(array), torch.from_numpy(array)
    assert a.untyped_storage()._cdata != b.untyped_storage()._cdata
    assert _exec.shares_memory([a, b], [1]) and not _exec.shares_memory([a, b], [])


def test_lazy_clones_are_separate():
    a = torch.ones(4)
    assert not _exec.shares_memory([a, torch._lazy_clone(a)], [0])


def test_tensors_without_memory():
    sparse = torch.eye(3).to_sparse()
    assert not _exec.shares_memory([sparse, sparse, torch.empty(0), torch.empty(3, device="meta")], [0, 2, 3])


def test_bad_arguments():
    with pytest.raises(ValueError):
        _exec.shares_memory([MEMORY], [1])
    with pytest.raises(TypeError):
        _exec.shares_memory(3, [])


def adding(**more):
    """out = a + 1, a += 1, as a plan over two inputs."""
    code = [
        alloc(2, 4),
        ("kernel", ADD_ONE, 4, 1, (0, 2), ()),
        ("write_back", 0, 2),
    ]
    return plan(2, code, [("slot", 2)], **more)


def test_the_original_runs_in_place_of_the_code():
    calls = []

    def original(a, b):
        calls.append((a, b))
        return a.add_(1), b

    made = adding(written=[0], original=original)
    a, b = torch.zeros(4), torch.zeros(4)
    (out,) = made(a, b)
    assert not calls and torch.equal(out, torch.ones(4)) and torch.equal(a, torch.ones(4))
    assert made(a, a) == (a, a)
    assert calls == [(a, a)]
    assert made.single()(a, a[1:]) is a and len(calls) == 2
    assert torch.equal(a, torch.full((4,), 3.0))
    with pytest.raises(ZeroDivisionError):
        adding(written=[0], original=lambda a, b: 1 // 0)(a, a)


def test_mistakes():
    for more in ({"written": [0]}, {"original": print}):
        with pytest.raises(ValueError, match="come together"):
            adding(**more)
    with pytest.raises(ValueError, match="no input 2"):
        adding(written=[2], original=print)
