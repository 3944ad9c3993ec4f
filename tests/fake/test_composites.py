"""Operations that torch composes in C++ from plain sizes: one compile for all sizes, eager's values, strides and gradients."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from dyncomp.fake.composites.registry import FORMS
from tests.interp.test_dynamic import run, tensors
from tests.support import assert_same

SHAPES = ((4, 5), (6, 7), (5, 9), (8, 4))
# name: (program, shapes)
PROGRAMS = {
    "kron": (lambda x: torch.kron(x[:2], x), SHAPES),
    "kron of other ranks": (lambda x: (torch.kron(x, x[0]), torch.kron(x[0], x), torch.kron(x, x[:, 0, None])), SHAPES),
    "two factors": (lambda x: torch.linalg.multi_dot([x, x.t()]), SHAPES),
    "three factors": (lambda x: torch.linalg.multi_dot([x.t(), x, x[0]]), SHAPES),
    "five factors": (lambda x: torch.linalg.multi_dot([x[:, 1], x, x.t(), x, x.t()]), ((4, 5), (6, 7), (9, 10))),
    "vander": (lambda x: (torch.vander(x[0]), torch.vander(x[:, 1], 3, increasing=True), torch.vander(x[0], 1)), SHAPES),
    "vander of a size": (lambda x: torch.vander(x[0].round().long(), x.shape[0]), SHAPES),
    "bilinear": (lambda x: F.bilinear(x, x + 1, torch.ones(3, x.shape[1], x.shape[1]), torch.arange(3.0)), SHAPES),
    "bilinear of rows": (lambda x: F.bilinear(x[0], x[1], torch.ones(2, x.shape[1], x.shape[1])), SHAPES),
    "bilinear, weights that vary": (
        lambda x: F.bilinear(x, x[:, 1:], torch.ones(x.shape[0], x.shape[1], x.shape[1] - 1) * x.mean()), SHAPES
    ),
    "take_along_dim": (lambda x: torch.take_along_dim(x, x.argsort(0), 0), SHAPES),
    "take_along_dim, broadcast": (lambda x: torch.take_along_dim(x, x.argmin(-1, keepdim=True) - 1, -1), SHAPES),
    "take_along_dim of all": (lambda x: torch.take_along_dim(x, x.argmax()), SHAPES),
    "fill_diagonal_": (lambda x: ((x * 2).fill_diagonal_(7.0), (x @ x.t()).fill_diagonal_(-1.0, wrap=True)), ((4, 5), (6, 7), (3, 9))),
    "fill_diagonal_ of a cube": (lambda x: x.new_zeros(len(x), len(x), len(x)).fill_diagonal_(2.0), SHAPES),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), SHAPES),
    "max_pool1d, all settings": (lambda x: F.max_pool1d(x[None], 3, 2, 1, 1, ceil_mode=True), SHAPES),
    "gradient": (lambda x: torch.gradient(x), SHAPES),
    "gradient along one": (lambda x: torch.gradient(x, dim=-1), SHAPES),
    "gradient, steps": (lambda x: torch.gradient(x, spacing=[0.5, 3], edge_order=1), SHAPES),
    "gradient, one step": (lambda x: torch.gradient(x, spacing=0.25, dim=(1, 0), edge_order=2), ((4, 5), (6, 7), (5, 9))),
    "gradient, places": (
        lambda x: torch.gradient(x, spacing=(torch.arange(len(x)) ** 2.0,), dim=0, edge_order=2), ((4, 5), (6, 7), (5, 9))
    ),
    "gradient, all places": (
        lambda x: torch.gradient(x, spacing=(torch.arange(len(x)) ** 2.0, torch.arange(x.shape[1]) * 0.5)), SHAPES
    ),
    "circular": (lambda x: F.pad(x[None], (2, 1), mode="circular"), SHAPES),
    "circular, cut": (lambda x: F.pad(x[None, None], (-1, 2, 1, 0), mode="circular"), SHAPES),
    "affine_grid": (
        lambda x: F.affine_grid(x.mean() * torch.eye(2, 3).expand(2, 2, 3), (2, 1, *x.shape), align_corners=False), SHAPES
    ),
}  # fmt: skip
BEFORE_2_13 = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)  # max_pool1d asks for one size there
NO_GRADIENT = {"vander", "vander of a size", "fill_diagonal_ of a cube"}  # the first is refused by eager


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_one_compile_for_all_sizes(name, backend):
    program, shapes = PROGRAMS[name]
    run(program, *tensors(*shapes), backend=backend, compiles=2 if name == "max_pool1d" and BEFORE_2_13 else 1)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - NO_GRADIENT))
def test_gradients(name):
    program, shapes = PROGRAMS[name]
    fast = dyncomp.optimize(program, dynamic=True)
    before = dyncomp.stats()
    with config.patch(strict=True):
        for shape in shapes:
            inputs = [torch.randn(shape, requires_grad=True)]
            inputs.append(inputs[0].detach().clone().requires_grad_())
            for function, x in zip((program, fast), inputs, strict=True):
                results = function(x)
                results = results if isinstance(results, tuple | list) else [results]
                sum((y * y.detach().cos()).sum() for y in results).backward()
            assert_same(inputs[1].grad, inputs[0].grad, rtol=1e-4, atol=1e-4)
    after = dyncomp.stats()
    assert after.graph_breaks == before.graph_breaks
    assert after.fallbacks.get("training-graph-eager", 0) == before.fallbacks.get("training-graph-eager", 0)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.linalg.multi_dot([x, x]),
        lambda x: torch.take_along_dim(x, x.argsort(0)[:, :2], 0),
        lambda x: torch.take_along_dim(x, x, 0),
        lambda x: torch.gradient(x[:1], dim=0),
        lambda x: F.pad(x[None], (20, 1), mode="circular"),
        lambda x: F.bilinear(x, x[:1], torch.ones(2, x.shape[1], x.shape[1])),
        lambda x: F.max_pool1d(x, 2, padding=3),
        lambda x: x.new_zeros(2, len(x), 3).fill_diagonal_(1.0),
    ],
)
def test_wrong_arguments_raise_as_in_eager(program):
    x = torch.randn(4, 5)
    with pytest.raises((RuntimeError, IndexError)) as theirs:
        program(x)
    with pytest.raises(type(theirs.value)) as ours, config.patch(strict=True):
        dyncomp.optimize(program, dynamic=True)(x)
    assert str(ours.value) == str(theirs.value)


def test_the_kernels_of_others_are_untouched():
    """A form is asked only for fakes with symbolic sizes; every other call gets torch's own kernel."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    x = torch.randn(3, 4)
    assert FORMS
    with torch._C._EnablePythonDispatcher():
        assert torch.equal(torch.kron(x, x), torch.ops.aten.kron.default._op_dk(key, x, x))
        assert torch.equal(torch.gradient(x)[1], torch.gradient(x, dim=1)[0])
