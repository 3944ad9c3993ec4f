"""Large results of operations that a plan calls lie in pooled memory, whoever frees them and whenever."""

from __future__ import annotations

import threading

import torch

from dyncomp._frame import _exec
from tests.frame.executor.exec_support import Slot, op_plan

N = 1 << 16


def stats():
    return _exec.pool_stats()


def test_results_are_pooled():
    made = op_plan(1, "aten::relu", (Slot(0),))
    x = torch.randn(N)
    made(x)
    before = stats()
    y = made(x)
    assert stats()["live_bytes"] - before["live_bytes"] >= 4 * N and stats()["hits"] > before["hits"]
    assert torch.equal(y, x.relu())
    del y
    assert stats()["live_bytes"] == before["live_bytes"]


def test_what_is_outside_is_not():
    before = stats()
    y = torch.randn(N).relu()
    assert stats() == before
    small = op_plan(1, "aten::relu", (Slot(0),))(torch.randn(8))
    assert stats() == before and y.numel() > small.numel()


def test_what_is_as_large_takes_no_memory_beside_the_pool():
    made = op_plan(1, "aten::relu", (Slot(0),))
    _exec.trim()
    big, bytes_ = torch.zeros(12 << 20), 48 << 20
    made(big)
    kept = stats()["kept_bytes"]
    assert kept >= bytes_
    same = torch.empty(12 << 20)
    assert stats()["kept_bytes"] <= kept - bytes_ and stats()["live_bytes"] >= bytes_
    del same
    assert stats()["kept_bytes"] == kept
    other = torch.empty(9 << 20)
    assert stats()["kept_bytes"] == 0
    del other
    assert stats()["kept_bytes"] == 0


def test_large_memory_outside_shares_the_pool_once_plans_use_it():
    """An optimiser's temporaries take what the backward left, and leave it to the next forward."""
    made = op_plan(1, "aten::relu", (Slot(0),))
    _exec.trim()
    x = torch.randn(1 << 18)
    made(x)
    before = stats()
    temporary = torch.empty(1 << 18)
    after = stats()
    assert after["live_bytes"] - before["live_bytes"] >= 1 << 20 and after["hits"] == before["hits"] + 1
    del temporary
    assert stats()["kept_bytes"] == before["kept_bytes"] and stats()["live_bytes"] == before["live_bytes"]
    made(x)
    assert stats()["misses"] == before["misses"]


def test_room_is_made_of_huge_blocks():
    """Smaller ones would go back to malloc, which may keep them beside."""
    sizes = [(4 + i) << 20 for i in range(8)]  # bytes, each of a class of its own
    _exec.trim()
    made = op_plan(1, "aten::relu", (Slot(0),))
    made(torch.zeros(1 << 16))
    small = stats()["kept_bytes"]
    assert small >= 1 << 18
    for _ in range(3):
        for size in sizes:
            made(torch.zeros(size // 4))
    assert stats()["kept_bytes"] >= small
    hits = stats()["hits"]
    made(torch.zeros(1 << 16))
    assert stats()["hits"] == hits + 1
    assert _exec.trim() > 0 and stats()["kept_bytes"] == 0


def test_storages_grow_and_are_shared_as_ever():
    made = op_plan(1, "aten::relu", (Slot(0),))
    before = stats()["live_bytes"]
    y = made(torch.ones(N))
    y.resize_(3 * N // 2)
    assert stats()["live_bytes"] == before and torch.equal(y[:N], torch.ones(N))
    z = made(torch.ones(N))
    z.share_memory_()
    assert stats()["live_bytes"] == before and z.is_shared() and torch.equal(z, torch.ones(N))


def test_freed_by_another_thread():
    made = op_plan(1, "aten::relu", (Slot(0),))
    before = stats()["live_bytes"]
    held = [made(torch.ones(N))]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert stats()["live_bytes"] == before


def test_scratch_memory_of_onednn():
    """Asked for while a plan runs, freed when oneDNN likes; the values are eager's."""
    x, w = torch.randn(2, 8, 20, 20), torch.randn(16, 8, 3, 3)
    args = (Slot(0), w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    made = op_plan(1, "aten::convolution", args)
    for _ in range(3):
        y = made(x)
        torch.nn.functional.conv2d(x, w, padding=1)
        torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w, padding=1))
