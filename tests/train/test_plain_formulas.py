"""Backward formulas that go another way for tensor subclasses: captured, they give what they give for plain tensors."""

import pytest
import torch

import dyncomp

FUNCTIONS = {
    "max": lambda a: a.max(),
    "min": lambda a: a.min(),
    "median": lambda a: a.median(),
    "nanmedian": lambda a: a.nanmedian(),
    "prod": lambda a: a.prod(),
    "prod along": lambda a: a.prod(0),
    "prod along the last": lambda a: a.prod(-1, keepdim=True),
    "prod in another type": lambda a: a.prod(dtype=torch.float64),
    "prod along in another type": lambda a: a.prod(1, dtype=torch.float64),
}
INF, NAN = float("inf"), float("nan")
VALUES = {
    "plain": [[0.5, -1.5, 2.0], [1.0, 3.0, -0.25]],
    "ties": [[2.0, -1.0, 2.0], [1.0, 1.0, -1.0]],
    "nan": [[0.5, NAN, 2.0], [1.0, 3.0, NAN]],
    "zero": [[0.5, -1.5, 0.0], [1.0, 3.0, -0.25]],
    "zeros": [[0.0, 0.0, INF], [0.0, 3.0, -0.25]],
    "inf": [[0.5, INF, 2.0], [1.0, 3.0, -INF]],
}
GIVEN = {"one": 1.0, "inf": INF, "nan": NAN}


def made(values, turned):
    a = torch.tensor(VALUES[values])
    return (a.t().contiguous().t() if turned else a).requires_grad_()


def same(name, values, got, want):
    torch.testing.assert_close(got, want, equal_nan=True)
    if not name.startswith("prod") or "zero" not in values:  # of products with a zero eager's strides go by the data
        assert got.stride() == want.stride()


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_strides(fresh, name, backend):
    function = FUNCTIONS[name]
    fast = dyncomp.optimize(function, backend=backend)
    for values in VALUES:
        for turned in (False, True):
            for given in GIVEN.values():
                found = []
                for one in (fast, function):
                    a = made(values, turned)
                    result = one(a)
                    found.append(torch.autograd.grad(result, a, torch.full_like(result, given))[0])
                same(name, values, *found)
    assert not dyncomp.stats().fallbacks


@pytest.mark.parametrize("name", FUNCTIONS)
def test_backward_inside(fresh, name):
    """Of a captured step, and of a backward that is compiled by itself."""

    def step(a):
        FUNCTIONS[name](a).sum().mul(2).backward()

    fast = dyncomp.optimize(step, options={"capture_backward": True})
    for values in VALUES:
        found = [made(values, True) for _ in range(3)]
        fast(found[0])
        step(found[1])
        loss = FUNCTIONS[name](found[2]).sum() * 2
        with dyncomp.enable(compiled_autograd=True):
            loss.backward()
        for one in (found[0], found[2]):
            same(name, values, one.grad, found[1].grad)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_gradients(fresh, name):
    fast = dyncomp.optimize(FUNCTIONS[name])
    for values in VALUES:
        found = []
        for one in (fast, FUNCTIONS[name]):
            a = made(values, True)
            (first,) = torch.autograd.grad((one(a) ** 2).sum(), a, create_graph=True)
            found.append(torch.autograd.grad(first.sin().sum(), a)[0])
        torch.testing.assert_close(*found, equal_nan=True)
