"""view and view_rel: values, bounds, and what eager's views carry when they leave the plan."""

from __future__ import annotations

import pytest
import torch

from tests.frame.executor.exec_support import F32, Slot, alloc, plan


def view(sizes, strides, offset, opcode="view"):
    return plan(1, [(opcode, 1, 0, sizes, strides, offset)], [("slot", 1)], single=True)


def test_offsets_count_from_the_storage_or_from_the_source():
    x = torch.arange(20.0)
    assert torch.equal(view((2, 3), (3, 1), 4)(x[5:]), x[4:10].view(2, 3))
    assert torch.equal(view((2, 3), (3, 1), 4, "view_rel")(x[5:]), x[9:15].view(2, 3))
    assert torch.equal(view((2, 3), (0, 2), 0)(x), x[:5:2].expand(2, 3))
    assert torch.equal(view((), (), 3)(x), x[3])
    assert view((0, 3), (3, 1), 20)(x).shape == (0, 3)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "make",
    [lambda: torch.arange(6.0), lambda: torch.arange(6.0).requires_grad_(), lambda: torch.arange(12.0)[6:]],
)
def test_an_output_view_is_a_view_as_eager_has_it(grad, make):
    x = make()
    with torch.set_grad_enabled(grad and not x.requires_grad):
        y, want = view((2, 3), (3, 1), 0, "view_rel")(x), x.view(2, 3)
    assert torch.equal(y, want) and y._is_view() and y._base is want._base
    assert y.data_ptr() == x.data_ptr() and y.requires_grad == want.requires_grad and y.grad_fn is None
    with torch.no_grad():
        y.add_(1)
    assert x._version == want._version == y._version == 1
    assert torch.equal(x.detach().view(2, 3), y)


def test_views_of_views_know_the_first_base():
    code = [
        ("view_rel", 1, 0, (8,), (1,), 2),
        ("view_rel", 2, 1, (2, 3), (3, 1), 1),
        ("free", 1),
        ("view", 3, 2, (6,), (1,), 4),
        ("free", 0),
    ]
    x = torch.arange(10.0)
    y, z = plan(1, code, [("slot", 2), ("slot", 3)])(x)
    assert torch.equal(y, x[3:9].view(2, 3)) and torch.equal(z, x[4:10]) and y._base is x and z._base is x
    x.add_(1)
    assert y._version == z._version == 1


def test_a_slot_written_again_is_no_longer_the_base():
    code = [
        alloc(1, 6),
        ("op", 0, (Slot(1), 1.0), {}, (None,)),
        ("view", 2, 1, (4,), (1,), 0),
        ("free", 1),
        alloc(1, 6),
        ("op", 0, (Slot(1), 2.0), {}, (None,)),
        ("view", 3, 2, (2,), (1,), 1),
    ]
    y, z = plan(0, code, [("slot", 3), ("slot", 1)], ops=[("aten::fill_", "Scalar")])()
    assert y.tolist() == [1, 1] and z.tolist() == [2] * 6


def test_views_of_fresh_outputs_share_memory_and_version():
    code = [alloc(1, 6), ("op", 0, (Slot(1), 1.0), {}, (None,)), ("view", 2, 1, (2, 3), (3, 1), 0)]
    y, z = plan(0, code, [("slot", 1), ("slot", 2)], ops=[("aten::fill_", "Scalar")])()
    z.add_(1)
    assert y.tolist() == [2] * 6 and y._version == 1 and z._base is y


def test_views_inside_a_plan_feed_operators():
    code = [("view_rel", 1, 0, (3, 2), (1, 3), 0), ("op", 0, (Slot(1), Slot(0)), {}, (2,))]
    p = plan(1, code, [("slot", 2)], single=True, ops=[("aten::mm", "")])
    for x in (torch.randn(2, 3), torch.randn(3, 2, 3)[1], torch.nn.Parameter(torch.randn(2, 3))):
        assert torch.equal(p(x), (x.t() @ x).detach()) and x._version == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.bool, torch.complex64])
def test_dtypes(dtype):
    x = torch.arange(12).reshape(3, 4).to(dtype)
    assert torch.equal(view((4, 3), (1, 4), 0)(x), x.t())


def test_inference_tensors():
    p = view((3,), (1,), 0)
    with torch.inference_mode():
        x = torch.arange(3.0)
        assert p(x).is_inference() and p(x)._is_view() == x.view(3)._is_view()
    y = p(x)
    assert y.is_inference() and torch.equal(x, y)
    z = torch.arange(3.0)
    with torch.inference_mode():
        assert p(z).is_inference() == z.view(3).is_inference()


@pytest.mark.parametrize(
    ("sizes", "strides", "offset"), [((7,), (1,), 0), ((2, 2), (5, 1), 0), ((1,), (1,), 6), ((1,), (1,), -1)]
)
def test_views_cannot_leave_the_storage(sizes, strides, offset):
    inside = [("view", 1, 0, sizes, strides, offset), ("op", 0, (Slot(1),), {}, (2,))]
    for p in (view(sizes, strides, offset), plan(1, inside, [("slot", 2)], ops=[("aten::sin", "")])):
        with pytest.raises(RuntimeError, match="reaches beyond a storage of 24 bytes"):
            p(torch.ones(6))


def test_sizes_of_the_call():
    code = [
        ("size", 0, 0, 0),
        ("size", 1, 0, 1),
        ("stride", 2, 0, 0),
        ("stride", 3, 0, 1),
        ("view_rel", 1, 0, (("s", 1), ("s", 0)), (("s", 3), ("s", 2)), 0),
    ]
    p = plan(1, code, [("slot", 1)], single=True)
    for x in (torch.randn(2, 3), torch.randn(5, 4)[1:, ::2], torch.randn(1, 7).t()):
        y = p(x)
        assert torch.equal(y, x.t()) and y.stride() == x.t().stride()


def test_alloc_of_the_call():
    code = [
        ("size", 0, 0, 0),
        ("int", 1, "mul", ("s", 0), 2),
        ("alloc", 1, F32, (("s", 0), 2), (2, 1), "cpu"),
        ("view", 2, 1, (("s", 1),), (1,), 0),
        ("op", 0, (Slot(1), 3), {}, (None,)),
    ]
    y, z = plan(1, code, [("slot", 1), ("slot", 2)], ops=[("aten::fill_", "Scalar")])(torch.ones(3))
    assert y.shape == (3, 2) and z.shape == (6,) and z.tolist() == [3] * 6


@pytest.mark.parametrize("requires_grad", [True, False])
def test_detach_gives_an_alias_that_autograd_does_not_know(requires_grad):
    x = torch.arange(12.0)[2:].requires_grad_(requires_grad)
    y = view((2, 3), (3, 1), 1, "detach")(x)
    assert torch.equal(y, x.detach()[1:7].view(2, 3)) and not y.requires_grad and not y._is_view() and y.is_leaf
    y.mul_(2)
    assert y._version == x._version and y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    both = plan(1, [("detach", 1, 0, (10,), (1,), 0), ("view_rel", 2, 1, (5,), (2,), 0)], [("slot", 1), ("slot", 2)])
    whole, part = both(x)
    assert part._base is whole and not part.requires_grad


def test_detach_of_scratch_memory_must_not_leave():
    with pytest.raises(ValueError, match="scratch memory"):
        code = [("scratch", 1, F32, (2,), (1,), 0), ("detach", 2, 1, (2,), (1,), 0)]
        plan(1, code, [("slot", 2)], arena=64)
