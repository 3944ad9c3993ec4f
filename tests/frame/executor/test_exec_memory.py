"""alloc, scratch, flag, check, free, copy and write_back."""

from __future__ import annotations

import weakref

import pytest
import torch

from dyncomp._frame import _exec
from tests.frame.executor.exec_support import (
    ADD_ONE,
    F32,
    FILL_BYTES,
    RAISE_FLAG,
    Slot,
    alloc,
    contiguous,
    plan,
    same_error,
)

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(), (0,), (3,), (2, 3), (0, 5), (4, 1, 3)])
def test_alloc_gives_an_ordinary_tensor(dtype, sizes):
    y = plan(
        0, [("alloc", 1, dtype, sizes, contiguous(*sizes), torch.device("cpu"))], [("slot", 1)], single=True
    )()
    reference = torch.empty(sizes, dtype=dtype)
    assert (y.dtype, y.shape, y.stride(), y.device) == (
        dtype,
        reference.shape,
        reference.stride(),
        reference.device,
    )
    assert y.untyped_storage().nbytes() == reference.untyped_storage().nbytes()
    assert y.is_contiguous() and not y.requires_grad and y._version == 0 and not y.is_inference()
    assert y.data_ptr() % 64 == 0
    y.zero_()
    assert y._version == 1 and not y.any()


@pytest.mark.parametrize("strides", [(1, 4), (8, 2), (0, 1)])
def test_alloc_with_strides(strides):
    y = plan(0, [("alloc", 1, F32, (4, 4), strides, "cpu")], [("slot", 1)], single=True)()
    reference = torch.empty_strided((4, 4), strides)
    assert y.stride() == strides and y.untyped_storage().nbytes() == reference.untyped_storage().nbytes()


def test_outputs_can_be_resized_trained_and_mutated_like_any_tensor():
    y = plan(0, [alloc(1, 4)], [("slot", 1)], single=True)()
    y.zero_().requires_grad_()
    (y * 2).sum().backward()
    assert torch.equal(y.grad, torch.full((4,), 2.0))
    z = y.detach()
    z.resize_(100000)
    assert z.shape == (100000,) and not z[:4].any()


def test_alloc_on_another_device():
    y = plan(0, [("alloc", 1, F32, (4, 4), (1, 4), "meta")], [("slot", 1)], single=True)()
    assert y.is_meta and y.stride() == (1, 4)


def test_inference_mode_decides_what_outputs_are():
    code = [
        ("scratch", 3, F32, (4,), (1,), 0),
        alloc(1, 4),
        ("op", 0, (Slot(1),), (), (2,)),
        ("op", 0, (Slot(3),), (), (4,)),
    ]
    p = plan(0, code, [("slot", 1), ("slot", 2)], ops=[("aten::sin", "")], arena=64)
    for _ in range(2):
        assert not any(y.is_inference() for y in p())
        with torch.inference_mode():
            assert all(y.is_inference() for y in p())


def test_scratch_is_memory_of_the_call():
    code = [
        ("scratch", 1, F32, (4,), (1,), 0),
        ("scratch", 2, F32, (4,), (1,), 64),
        ("kernel", ADD_ONE, 4, 8, [0, 1], []),
        ("kernel", ADD_ONE, 4, 8, [1, 2], []),
        ("free", 1),
        ("scratch", 1, F32, (2, 2), (2, 1), 0),
        ("kernel", ADD_ONE, 4, 8, [2, 1], []),
        alloc(3, 2, 2),
        ("kernel", ADD_ONE, 4, 8, [1, 3], []),
    ]
    p = plan(1, code, [("slot", 3)], single=True, arena=128)
    x = torch.randn(4)
    for _ in range(3):
        assert torch.equal(p(x), (x + 1 + 1 + 1 + 1).view(2, 2))


def test_scratch_must_stay_inside():
    scratch = ("scratch", 1, F32, (4,), (1,), 0)
    for code in (
        [scratch],
        [scratch, ("view", 2, 1, (2,), (1,), 0)],
        [scratch, ("view", 3, 1, (4,), (1,), 0), ("view_rel", 2, 3, (2,), (1,), 0)],
    ):
        with pytest.raises(ValueError, match="must not be an output"):
            plan(0, code, [("slot", code[-1][1])], arena=64)
    with pytest.raises(ValueError, match="beyond the arena of 64 bytes"):
        plan(0, [("scratch", 1, F32, (4,), (1,), 52)], [], arena=64)
    with pytest.raises(ValueError, match="no multiple of the element size"):
        plan(0, [("scratch", 1, F32, (1,), (1,), 2)], [], arena=64)


def test_an_arena_as_large_as_the_call_says():
    rows = ("s", 0)
    code = [
        ("size", 0, 0, 0),
        ("int", 1, "mul", rows, 4),
        ("int", 2, "add", ("s", 1), 63),
        ("int", 2, "floordiv", ("s", 2), 64),
        ("int", 2, "mul", ("s", 2), 64),
        ("int", 3, "mul", ("s", 2), 2),
        ("arena", ("s", 3)),
        ("scratch", 1, F32, (rows,), (1,), 0),
        ("scratch", 2, F32, (rows,), (1,), ("s", 2)),
        ("kernel", ADD_ONE, rows, ("s", 0), [0, 1], []),
        ("kernel", ADD_ONE, rows, 8, [1, 2], []),
        ("alloc", 3, F32, (rows,), (1,), "cpu"),
        ("kernel", ADD_ONE, rows, 8, [2, 3], []),
    ]
    p = plan(1, code, [("slot", 3)], single=True)
    for n in (4, 1000, 0, 3, 70001, 16):
        x = torch.randn(n)
        assert torch.equal(p(x), x + 1 + 1 + 1)


def test_a_plan_has_one_arena():
    with pytest.raises(ValueError, match="has an arena already"):
        plan(0, [("arena", 64), ("arena", 64)], [])
    with pytest.raises(ValueError, match="has an arena already"):
        plan(0, [("arena", 64)], [], arena=64)
    too_small = [("size", 0, 0, 0), ("arena", ("s", 0)), ("scratch", 1, F32, (4,), (1,), 0)]
    with pytest.raises(RuntimeError, match="beyond the arena"):
        plan(1, too_small, [])(torch.zeros(3))


@pytest.mark.parametrize("how", [lambda t: t, lambda t: t.view(2, 2), lambda t: t[1:]])
def test_an_arena_that_an_operator_keeps_is_left_to_it(how):
    kept = []
    name = f"dyncomp_test::keep{id(how)}"

    @torch.library.custom_op(name, mutates_args=())
    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(how(x))
        return x.clone()

    code = [
        ("scratch", 1, F32, (4,), (1,), 0),
        ("kernel", ADD_ONE, 4, 8, [0, 1], []),
        ("op", 0, (Slot(1),), (), (2,)),
    ]
    p = plan(1, code, [("slot", 2)], single=True, ops=[(name, "")], arena=64)
    inputs = [torch.full((4,), float(i)) for i in range(4)]
    for x in inputs:
        assert torch.equal(p(x), x + 1)
    for x, tensor in zip(inputs, kept, strict=True):
        assert torch.equal(tensor, how(x + 1))
    del tensor
    before = _exec.pool_stats()["live_bytes"]
    kept.clear()
    assert _exec.pool_stats()["live_bytes"] == before - 4 * 64


def test_free_drops_the_tensor_during_the_call():
    seen = []

    @torch.library.custom_op("dyncomp_test::look", mutates_args=())
    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(_exec.pool_stats()["live_bytes"])
        return x.clone()

    def live(code):
        plan(
            1,
            [alloc(1, 1 << 20), *code, ("op", 0, (Slot(0),), (), (2,))],
            [("slot", 2)],
            ops=[("dyncomp_test::look", "")],
        )(torch.ones(1))
        return seen.pop()

    assert live([]) - live([("free", 1)]) == 4 << 20


def test_copy_converts_and_broadcasts():
    p = plan(1, [alloc(1, 2, 3, dtype=torch.float64), ("copy", 1, 0)], [("slot", 1)], single=True)
    x = torch.arange(3)
    assert torch.equal(p(x), x.double().expand(2, 3))
    same_error(lambda: p(torch.ones(4)), lambda: torch.empty(2, 3, dtype=torch.float64).copy_(torch.ones(4)))


WRITE = plan(
    2,
    [("op", 0, (Slot(1), 1), (), (2,)), ("write_back", 0, 2)],
    [("input", 0)],
    ops=[("aten::add", "Scalar")],
)


def test_write_back_changes_the_input_and_bumps_its_version_once():
    x, y = torch.zeros(3), torch.ones(3)
    (out,) = WRITE(x, y)
    assert out is x and torch.equal(x, torch.full((3,), 2.0)) and x._version == 1 and y._version == 0
    base = torch.zeros(2, 3)
    WRITE(base[1], torch.ones(3, dtype=torch.int64))
    assert base._version == 1 and base.tolist() == [[0, 0, 0], [2, 2, 2]]
    WRITE(base, torch.arange(3.0))
    assert torch.equal(base, (torch.arange(3.0) + 1).expand(2, 3))


def test_write_back_fails_as_eager_does():
    leaf = torch.zeros(3, requires_grad=True)
    same_error(lambda: WRITE(leaf, torch.ones(3)), lambda: leaf.copy_(torch.ones(3)))
    with torch.no_grad():
        WRITE(leaf, torch.ones(3))
    assert leaf.tolist() == [2, 2, 2]
    with torch.inference_mode():
        frozen = torch.zeros(3)
        WRITE(frozen, torch.ones(3))
    assert frozen.tolist() == [2, 2, 2]
    same_error(lambda: WRITE(frozen, torch.ones(3)), lambda: frozen.copy_(torch.ones(3)))
    same_error(lambda: WRITE(torch.zeros(3), torch.ones(4)), lambda: torch.zeros(3).copy_(torch.ones(4)))


def test_quiet_writes_leave_the_version_alone():
    code = [("own", 0), ("op", 0, (Slot(1), 1), (), (2,)), ("copy", 0, 2)]
    quiet = plan(2, code, [("input", 0)], ops=[("aten::add", "Scalar")])
    leaf = torch.zeros(3, requires_grad=True)
    (out,) = quiet(leaf, torch.ones(3))
    assert out is leaf and leaf.tolist() == [2, 2, 2] and leaf._version == 0
    source = torch.zeros(3)
    clone = torch._lazy_clone(source)
    quiet(clone, torch.ones(3))
    assert source.tolist() == [0, 0, 0] and clone.tolist() == [2, 2, 2]


def test_version_counters_rise_by_what_was_written():
    code = [("op", 0, (Slot(0), 1), (), (1,)), ("write_back", 0, 1), ("wrote", 0, 2), ("detach", 2, 1, (3,), (1,), 0), ("wrote", 1, 3), ("wrote_apart", 2, 5)]
    count = plan(1, code, [("input", 0), ("slot", 1), ("slot", 2)], ops=[("aten::add", "Scalar")])
    base = torch.zeros(2, 3)
    row, fresh, alias = count(base[1])
    assert (row._version, base._version, fresh._version, alias._version) == (3, 3, 3, 5)
    fresh.add_(1)
    assert (fresh._version, alias._version) == (4, 5) and torch.equal(fresh, alias)
    with torch.inference_mode():  # tensors of it have no counter
        count(torch.zeros(3))
    for bad in (("wrote", 0, 0), ("wrote", 0, -1), ("wrote_apart", 0, -1), ("wrote", 3, 1)):
        with pytest.raises(ValueError):
            plan(1, [*code, bad], [("input", 0)], ops=[("aten::add", "Scalar")])


def test_a_flag_raised_by_a_kernel_is_an_index_error():
    code = [
        ("flag", 1),
        ("kernel", RAISE_FLAG, 4, 1, [0, 1], [10]),
        ("check", 1, "index out of range in self"),
    ]
    p = plan(1, code, [("input", 0)])
    for _ in range(2):
        p(torch.arange(4))
        with pytest.raises(IndexError, match="^index out of range in self$"):
            p(torch.arange(4) + 7)


def test_inputs_may_be_freed_and_still_returned():
    x = torch.ones(3)
    p = plan(1, [("free", 0)], [("input", 0)])
    assert p(x)[0] is x
    with pytest.raises(ValueError, match="slot 0 is read before"):
        plan(1, [("free", 0)], [("slot", 0)])


def test_pool_reuses_blocks_and_keeps_at_most_its_limit():
    size = 3 << 20
    p = plan(
        0,
        [alloc(1, size, dtype=torch.uint8), ("kernel", FILL_BYTES, size, size, [1], [7])],
        [("slot", 1)],
        single=True,
    )
    limit = _exec.pool_stats()["limit"]
    try:
        _exec.trim()
        assert _exec.pool_stats()["kept_bytes"] == 0
        first = p()
        where = first.data_ptr()
        assert where % (2 << 20) == 0
        gone = weakref.ref(first)
        del first
        assert gone() is None and _exec.pool_stats()["kept_bytes"] == size
        hits = _exec.pool_stats()["hits"]
        assert p().data_ptr() == where and _exec.pool_stats()["hits"] == hits + 1
        _exec.set_pool_limit(2 * size)
        several = [p() for _ in range(4)]
        assert all(torch.equal(y, torch.full((size,), 7, dtype=torch.uint8)) for y in several)
        several.clear()
        assert _exec.pool_stats()["kept_bytes"] == 2 * size
        _exec.set_pool_limit(size - 1)
        assert _exec.pool_stats()["kept_bytes"] == 0
        p()
        assert _exec.pool_stats()["kept_bytes"] == 0
    finally:
        _exec.set_pool_limit(limit)
    assert _exec.trim() == 0


def test_no_memory_is_an_error_and_leaves_nothing_behind():
    before = _exec.pool_stats()["live_bytes"]
    p = plan(0, [("alloc", 1, F32, (1 << 60,), (1,), "cpu")], [("slot", 1)])
    with pytest.raises(RuntimeError, match="not enough memory"):
        p()
    assert _exec.pool_stats()["live_bytes"] == before


def test_the_pool_takes_hardly_more_than_was_live():
    """A program that needs tensors of one size, then of another: blocks of both are not kept side by side."""
    sizes = [(40 + i) << 18 for i in range(0, 80, 8)]  # floats: 40 to 112 MiB, each of a size class of its own or nearly
    _exec.trim()
    for count in sizes:
        made = plan(0, [alloc(0, count)], [("slot", 0)])
        (out,) = made()
        stats = _exec.pool_stats()
        assert out.numel() == count
        assert stats["live_bytes"] + stats["kept_bytes"] <= stats["peak_bytes"] * 1.05 + (32 << 20)
        del out
    _exec.trim()
