"""mm, bmm, addmm, baddbmm into existing slots, bit for bit as eager."""

from __future__ import annotations

import pytest
import torch

from tests.frame.executor.exec_support import F32, alloc, plan, same_error


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize(("m", "k", "n"), [(4, 5, 6), (1, 1, 1), (0, 3, 2), (3, 0, 2), (33, 65, 17)])
def test_products(dtype, m, k, n):
    a, b, bias = ((torch.randn(s) * 4).to(dtype) for s in ((m, k), (k, n), (n,)))
    code = [
        alloc(3, m, n, dtype=dtype),
        ("mm", 3, 0, 1),
        alloc(4, m, n, dtype=dtype),
        ("addmm", 4, 2, 0, 1, 2, 3),
    ]
    y, z = plan(3, code, [("slot", 3), ("slot", 4)])(a, b, bias)
    assert torch.equal(y, a @ b) and torch.equal(z, torch.addmm(bias, a, b, beta=2, alpha=3))
    batch = [t.expand(2, *t.shape) for t in (a, b)]
    start = torch.zeros(2, m, n, dtype=dtype)
    code = [
        alloc(3, 2, m, n, dtype=dtype),
        ("bmm", 3, 0, 1),
        alloc(4, 2, m, n, dtype=dtype),
        ("baddbmm", 4, 2, 0, 1, 1, 1),
    ]
    y, z = plan(3, code, [("slot", 3), ("slot", 4)])(*batch, start)
    assert torch.equal(y, torch.bmm(*batch)) and torch.equal(z, torch.baddbmm(start, *batch))


def test_strided_operands_and_outputs():
    a, b = torch.randn(5, 4).t(), torch.randn(10, 12)[::2, ::2]
    code = [("alloc", 2, F32, (4, 6), (1, 4), "cpu"), ("mm", 2, 0, 1)]
    (y,) = plan(2, code, [("slot", 2)])(a, b)
    assert torch.equal(y, torch.mm(a, b, out=torch.empty_strided((4, 6), (1, 4)))) and y.stride() == (1, 4)
    scratch = [
        ("scratch", 3, F32, (4, 6), (6, 1), 64),
        ("mm", 3, 0, 1),
        alloc(4, 4, 6),
        ("addmm", 4, 3, 0, 1, 1.0, 1.0),
    ]
    (z,) = plan(2, scratch, [("slot", 4)], arena=1024)(a, b)
    assert torch.equal(z, torch.addmm(a @ b, a, b))


def test_errors_are_eagers():
    a, b, c = torch.randn(3, 4), torch.randn(5, 6), torch.randn(4, 6, dtype=torch.float64)
    mm = plan(2, [alloc(2, 3, 6), ("mm", 2, 0, 1)], [("slot", 2)])
    addmm = plan(3, [alloc(3, 3, 6), ("addmm", 3, 0, 1, 2, 1, 1)], [("slot", 3)])
    same_error(lambda: mm(a, b), lambda: torch.mm(a, b))
    same_error(lambda: mm(a, c), lambda: torch.mm(a, c))
    same_error(lambda: addmm(a, a, b), lambda: torch.addmm(a, a, b))


def test_mistakes():
    with pytest.raises(ValueError, match="beta must be a number, not str"):
        plan(3, [alloc(3, 3, 3), ("addmm", 3, 0, 1, 2, "1", 1)], [])
    with pytest.raises(ValueError, match="slot 3 is read before it is written"):
        plan(2, [("mm", 3, 0, 1)], [])


def test_other_devices_go_through_the_dispatcher():
    code = [("alloc", 2, F32, (3, 5), (5, 1), "meta"), ("mm", 2, 0, 1)]
    (y,) = plan(2, code, [("slot", 2)])(torch.empty(3, 4, device="meta"), torch.empty(4, 5, device="meta"))
    assert y.is_meta and y.shape == (3, 5)
