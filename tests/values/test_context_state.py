"""Grad mode, autocast, SDPA choices and inference mode in captured code."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import dyncomp
from tests.support import check

X = torch.randn(3, 4)
W = torch.nn.Parameter(torch.randn(4, 4))


def eager(function, *args, **kwargs):
    return check(function, *args, backend="eager", **kwargs)


def no_grad_block(x, w):
    with torch.no_grad():
        y = x @ w
    return y, y.requires_grad, (x @ w).requires_grad, torch.is_grad_enabled()


def nested(x, w):
    with torch.no_grad():
        a = x @ w
        with torch.enable_grad():
            b = x @ w
        with torch.set_grad_enabled(False):
            c = x @ w
    return a, b, c


@torch.no_grad()
def decorated(x, w):
    return x @ w


def autocast_block(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        with torch.autocast("cpu", enabled=False):
            z = x @ w
    return y, z, y.dtype, torch.is_autocast_enabled("cpu")


def with_exit_stack(x, w):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(contextlib.nullcontext())
        y = x @ w
    return y


def attention(x, w):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(x[None], x[None], x[None])


def profiled(x, w):
    with torch.autograd.profiler.record_function("part"):
        return x @ w


def inference(x, w):
    with torch.inference_mode():
        y = x @ w
    return y.is_inference(), torch.is_inference_mode_enabled(), x + 1


def raising(x, w):
    try:
        with torch.no_grad():
            y = x @ w
            raise ValueError("inside")
    except ValueError:
        return y, x @ w, torch.is_grad_enabled()


PROGRAMS = [no_grad_block, nested, autocast_block, attention, profiled, raising]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_program(function):
    eager(function, X, W)


def test_exit_stack():
    eager(with_exit_stack, X, W, graphs=None, breaks=None)


def test_inference_mode():
    eager(inference, X, W, graphs=None, breaks=None)


def test_decorated_function_inlines():
    eager(lambda x, w: decorated(x, w) + x @ w, X, W)


def test_mode_set_for_good():
    def f(x, w):
        torch.set_grad_enabled(False)
        return x @ w

    fast = dyncomp.optimize(f, backend="eager")
    for _ in range(2):
        try:
            assert not fast(X, W).requires_grad
            assert not torch.is_grad_enabled()
        finally:
            torch.set_grad_enabled(True)


def test_break_inside_a_block():
    def f(x, w):
        with torch.no_grad():
            y = x @ w
            print(end="")
            z = y @ w
        return z, (x @ w).requires_grad, torch.is_grad_enabled()

    eager(f, X, W, graphs=None, breaks=None)


def test_error_inside_a_block_leaves_no_mode_behind():
    def f(x, w):
        with torch.no_grad():
            return x @ w @ x

    eager(f, X, W, graphs=None, breaks=None)
    assert torch.is_grad_enabled()


def test_modes_outside_are_guarded():
    fast = dyncomp.optimize(lambda x, w: x @ w, backend="eager")
    assert fast(X, W).requires_grad
    with torch.no_grad():
        assert not fast(X, W).requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fast(X, W).dtype is torch.bfloat16
    assert fast(X, W).dtype is torch.float32


def test_flags_that_a_block_restores_are_guarded():
    def f(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(x[None], x[None], x[None])
        return y, torch.backends.cuda.flash_sdp_enabled()

    fast = dyncomp.optimize(f, backend="eager")
    for choice in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(choice):
            assert fast(X)[1] == f(X)[1] == (choice is SDPBackend.FLASH_ATTENTION)


def test_default_autocast_dtype_is_guarded():
    def f(x, w):
        with torch.autocast("cpu"):
            return x @ w

    fast = dyncomp.optimize(f, backend="eager")
    before = torch.get_autocast_dtype("cpu")
    try:
        for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
            torch.set_autocast_dtype("cpu", dtype)
            assert fast(X, W).dtype is dtype
    finally:
        torch.set_autocast_dtype("cpu", before)


def test_leaving_inference_mode_by_return():
    def f(x):
        with torch.inference_mode():
            return x + 1

    fast = check(f, torch.ones(3), graphs=None, breaks=None)  # what is made in the block are inference tensors
    assert fast(torch.ones(3)).is_inference() and not torch.is_inference_mode_enabled()
