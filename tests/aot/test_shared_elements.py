"""In-place writes through views whose elements share memory, which eager writes one after the other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dyncomp
from dyncomp import config
from dyncomp.shape.layout import surely_apart
from tests.support import assert_same

PROGRAMS = {
    "windows": lambda x: x.unfold(-1, 2, 1).mul_(2),
    "windows apart": lambda x: x.unfold(0, 2, 2).mul_(2),
    "strided": lambda x: x.as_strided((3, 3), (1, 1)).add_(1),
    "strided apart": lambda x: x.as_strided((3, 3), (3, 1)).add_(1),
    "copied": lambda x: x.unfold(0, 2, 1).copy_(torch.arange(16.0).view(2, 4, 2)),
    "of a copy": lambda x: x.clone().unfold(-1, 3, 1).add_(x.sum()),
    "column": lambda x: x[:, None].add_(1),
}


@pytest.mark.parametrize("backend", ["codegen", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_as_in_eager(program, dynamic, backend, fresh):
    fast = dyncomp.optimize(program, dynamic=dynamic, backend=backend)
    for start in (0.0, 1.0):
        ours, theirs = torch.arange(12.0).view(3, 4) + start, torch.arange(12.0).view(3, 4) + start
        with config.patch(strict=True):
            got = fast(ours)
        assert_same(got, program(theirs))
        assert_same(ours, theirs)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=3))
def test_what_is_surely_apart_has_an_address_each(dims):
    shape, strides = [size for size, _ in dims], [stride for _, stride in dims]
    addresses = [0]
    for size, stride in dims:
        addresses = [a + i * stride for a in addresses for i in range(size)]
    if surely_apart(shape, strides):
        assert len(set(addresses)) == len(addresses)


def test_dense_memory_is_surely_apart():
    for tensor in (torch.empty(3, 4), torch.empty(3, 4).t(), torch.empty(2, 3, 4, 5)[:, ::2].transpose(1, 3), torch.empty(0, 3).expand(0, 3)):
        assert surely_apart(tensor.shape, tensor.stride())
