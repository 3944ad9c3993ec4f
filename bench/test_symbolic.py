"""Symbolic sizes against static ones: the eight kernels, small functions and whole models; eager beside them.

`dyncomp` is the symbolic side, so its ratio to "static" says what symbolic sizes cost (1.05 at most is the aim).
"""

import time

import pytest
import torch
from test_kernels import KERNELS
from test_models import MODELS, largest_difference

import dyncomp


def _copy(function):
    """Another function of the same code, so that it is compiled apart."""
    return lambda *args: function(*args)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel(compare, name, threads):
    function, make = KERNELS[name]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            inputs = make()
            sides = {
                "eager": function,
                "dyncomp": dyncomp.optimize(_copy(function), dynamic=True),
                "static": dyncomp.optimize(_copy(function)),
            }
            torch.testing.assert_close(sides["dyncomp"](*inputs), function(*inputs), rtol=1e-4, atol=1e-4)
            compare(f"{name}, {threads} threads", {n: lambda f=f: f(*inputs) for n, f in sides.items()}, rounds=11)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("elements", [4, 16, 64])
def test_small_function(compare, elements):
    def function(x):
        return torch.sin(torch.cos(x))

    with torch.no_grad():
        x = torch.randn(elements)
        sides = {
            "eager": function,
            "dyncomp": dyncomp.optimize(_copy(function), dynamic=True),
            "static": dyncomp.optimize(_copy(function)),
        }
        compare(f"sin(cos(x)), {elements} elements", {n: lambda f=f: f(x) for n, f in sides.items()}, inner=1000)


@pytest.mark.parametrize("name", MODELS)
def test_model(compare, name):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.eval()
    sides, seconds = {"eager": model}, {}
    with torch.no_grad():
        want = model(**inputs)
        for side, dynamic in (("static", False), ("dyncomp", True)):
            dyncomp.reset()
            fast = dyncomp.optimize(_Call(model), dynamic=dynamic)
            start = time.perf_counter()
            difference = largest_difference(want, fast(**inputs))
            seconds[f"first_{side}"] = time.perf_counter() - start
            assert difference <= 1e-4, (side, difference)
            sides[side] = fast
        compare(name, {n: lambda f=f: f(**inputs) for n, f in sides.items()}, rounds=15, **seconds)


class _Call(torch.nn.Module):
    """The model under another module, so that each side has its own code."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        return self.model(**inputs)
