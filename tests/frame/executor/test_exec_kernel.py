"""kernel: pointers, integers, and the split over threads."""

from __future__ import annotations

import pytest
import torch

from tests.frame.executor.exec_support import ADD_ONE, ADD_STRIDED, CHUNK, F32, LINE, alloc, plan

I64 = torch.int64


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def chunks(units: int, grain: int) -> set[tuple[int, int]]:
    """The [begin, end) ranges that a kernel was called with; all units lie in exactly one."""
    code = [alloc(1, units, dtype=I64), ("kernel", CHUNK, units, grain, [1], [])]
    (y,) = plan(0, code, [("slot", 1)])()
    ranges = {(v // 1000000, v % 1000000) for v in y.tolist()}
    assert all(begin <= i < end for i, (begin, end) in enumerate(divmod(v, 1000000) for v in y.tolist()))
    return ranges


def test_units_are_split_by_threads_in_chunks_of_at_least_grain(threads):
    threads(2)
    assert chunks(100, 100) == {(0, 100)}
    assert chunks(101, 100) == {(0, 51), (51, 101)}
    assert chunks(1000, 1) == {(0, 500), (500, 1000)}
    assert chunks(2, 1) == {(0, 1), (1, 2)}
    assert chunks(0, 1) == set()
    threads(1)
    assert chunks(1000, 1) == {(0, 1000)}
    threads(4)
    assert len(chunks(1000, 1)) == 4
    assert len(chunks(3, 1)) == 3
    assert len(chunks(25, 10)) == 3


def test_one_openmp_runtime_is_loaded(threads):
    threads(2)
    chunks(1000, 1)
    with open("/proc/self/maps") as maps:
        runtimes = {line.split()[-1] for line in maps if "omp" in line.rpartition("/")[2] and ".so" in line}
    assert len(runtimes) == 1


@pytest.mark.parametrize("count", [1, 2])
def test_results_do_not_depend_on_the_number_of_threads(threads, count):
    threads(count)
    x = torch.randn(100_000)
    (y,) = plan(1, [alloc(1, 100_000), ("kernel", ADD_ONE, 100_000, 1000, [0, 1], [])], [("slot", 1)])(x)
    assert torch.equal(y, x + 1)


def test_integers_reach_the_kernel():
    (y,) = plan(0, [alloc(1, 5, dtype=I64), ("kernel", LINE, 5, 8, [1], [3, -7])], [("slot", 1)])()
    assert y.tolist() == [-7, -4, -1, 2, 5]


def test_strided_and_offset_inputs():
    base = torch.randn(40)
    code = [alloc(1, 10), ("kernel", ADD_STRIDED, 10, 64, [0, 1], [3])]
    x = base[5::3][:10]
    (y,) = plan(1, code, [("slot", 1)])(x)
    assert torch.equal(y, x + 1)
    code = [("view_rel", 2, 0, (10,), (3,), 2), alloc(1, 10), ("kernel", ADD_STRIDED, 10, 64, [2, 1], [3])]
    (y,) = plan(1, code, [("slot", 1)])(base[4:])
    assert torch.equal(y, base[6::3][:10] + 1)


def test_empty_tensors_are_not_touched():
    (y,) = plan(1, [alloc(1, 0), ("kernel", ADD_ONE, 0, 64, [0, 1], [])], [("slot", 1)])(torch.empty(0))
    assert y.shape == (0,)


def test_sizes_of_the_call():
    code = [
        ("size", 0, 0, 0),
        ("alloc", 1, F32, (("s", 0),), (1,), "cpu"),
        ("kernel", ADD_ONE, ("s", 0), 64, [0, 1], []),
    ]
    p = plan(1, code, [("slot", 1)], single=True)
    for n in (0, 1, 5, 1000):
        x = torch.randn(n)
        assert torch.equal(p(x), x + 1)
    code = [("size", 3, 0, 0), alloc(1, 4, dtype=I64), ("kernel", LINE, 4, 8, [1], [("s", 3), 1])]
    assert plan(1, code, [("slot", 1)], single=True)(torch.ones(5)).tolist() == [1, 6, 11, 16]


def test_a_lazily_cloned_input_is_read_and_stays_shared():
    x = torch.randn(4)
    lazy = torch._lazy_clone(x)
    (y,) = plan(1, [alloc(1, 4), ("kernel", ADD_ONE, 4, 64, [0, 1], [])], [("slot", 1)])(lazy)
    assert torch.equal(y, x + 1) and torch._C._is_cow_tensor(lazy)
