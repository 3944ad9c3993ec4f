"""`with torch.device(...)` inside of compiled code: what is made where, breaks inside of blocks, and the modes afterwards."""

import threading

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

import dyncomp
from dyncomp import config
from tests.support import assert_same

META = torch.device("meta")
X = torch.arange(6.0).view(2, 3)


@pytest.fixture(autouse=True)
def fresh_start(fresh):
    yield


def made_inside(x):
    with torch.device("meta"):
        y = torch.zeros(x.shape)
    return y, torch.ones(2) + x[0, 0]


def made_elsewhere(x):
    with META:
        y = torch.zeros(3, device="cpu") + x[0]
        z = x.new_zeros(2)
    return y, z, x.device


def nested(x):
    with META:
        with torch.device("cpu"):
            a = torch.arange(3)
        b = torch.arange(4)
    return a, b, torch.get_default_device()


def default_inside(x):
    with META as device:
        here = torch.get_default_device()
    return here, device, torch.full((2,), 3.0)


def of_the_input(x):
    with x.device:
        return torch.zeros(2) + x[:, 0]


def raises(x):
    try:
        with META:
            torch.zeros(2)
            raise ValueError("inside")
    except ValueError as error:
        return torch.zeros(2) + x[:, 0], str(error)


def break_inside(x):
    with META:
        a = torch.zeros(2)
        threading.get_ident()
        b = torch.ones(3)
    return a, b, torch.ones(2) + x[:, 0]


def branch_inside(x):
    with torch.device("meta"):
        n = 2 if x.sum() > 3 else 3
        a = torch.zeros(n)
    return a, torch.zeros(n)


def returns_inside(x):
    with META:
        return torch.zeros(2), x + 1


PROGRAMS = [made_inside, made_elsewhere, nested, default_inside, of_the_input, raises, break_inside, branch_inside, returns_inside]
WHOLE = PROGRAMS[:6]


@pytest.mark.parametrize("backend", ["codegen", "aot_eager", "eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager(program, backend):
    fast = dyncomp.optimize(program, backend=backend)
    frames = []
    with config.patch(strict=True):
        for _ in range(4):
            assert_same(fast(X.clone()), program(X.clone()))
            assert not _get_current_function_mode_stack()
            frames.append(dyncomp.stats().frames)
    assert frames[0] == frames[-1]
    if program in WHOLE:
        assert frames[0] == 1 and not dyncomp.stats().graph_breaks


@pytest.mark.parametrize("program", [made_inside, nested, break_inside])
def test_inside_of_a_block_of_the_caller(program):
    fast = dyncomp.optimize(program)
    with config.patch(strict=True):
        for device in ("meta", "cpu", "meta"):
            with torch.device(device):
                modes = _get_current_function_mode_stack()
                try:
                    want = program(X)
                except (RuntimeError, NotImplementedError) as error:
                    with pytest.raises(type(error)) as caught:
                        fast(X)
                    assert str(caught.value) == str(error)
                else:
                    assert_same(fast(X), want)
                assert _get_current_function_mode_stack() == modes


def test_gradients():
    def program(x):
        with x.device:
            mask = torch.ones(3, 3).tril()
        return (x * mask.sum()).exp()

    ours, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
    with config.patch(strict=True):
        dyncomp.optimize(program)(ours).sum().backward()
    program(theirs).sum().backward()
    assert_same(ours.grad, theirs.grad)


def test_a_graph_that_raises_leaves_no_mode_behind():
    def program(x, i):
        with META:
            return x[i] + torch.zeros(1, device="cpu")

    fast = dyncomp.optimize(program, backend="eager")
    assert_same(fast(X, torch.tensor([1])), program(X, torch.tensor([1])))
    with pytest.raises(IndexError):
        fast(X, torch.tensor([7]))
    assert not _get_current_function_mode_stack()
