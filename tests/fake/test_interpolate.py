"""Images resized with symbolic sizes: eager's elements, layouts, gradients and errors."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from tests.support import assert_same, outcome

PLANES = [(1, 3, 4, 5), (1, 3, 7, 8), (1, 3, 2, 3), (1, 3, 9, 10), (1, 3, 1, 2)]
ROWS = [(2, 3, 4), (2, 3, 7), (2, 3, 9), (2, 3, 1)]
SOLIDS = [(1, 2, 4, 5, 4), (1, 2, 3, 4, 3), (1, 2, 1, 2, 1)]


@pytest.fixture(autouse=True)
def fresh_start(fresh):
    yield


def check(program, shapes, gradients=True):
    fast = dyncomp.optimize(program, dynamic=True)
    before = dyncomp.stats().frames
    with config.patch(strict=True):
        for shape in shapes:
            x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
            (got, error), (want, want_error) = outcome(fast, (x,)), outcome(program, (x,))
            assert (type(error), str(error)) == (type(want_error), str(want_error)), shape
            assert_same(got, want)
            if gradients and want_error is None:
                found = []
                for function in (fast, program):
                    leaf = x.clone().requires_grad_()
                    result = function(leaf)
                    given = torch.arange(1.0, result.numel() + 1).view(result.shape)
                    found.append(torch.autograd.grad(result, leaf, given)[0])
                assert_same(*found)
    return dyncomp.stats().frames - before


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("scale", [4 / 3, 1.5, 2.0, 2.3, 3.7, 1.0, 0.9, 0.4])
def test_nearest_elements(mode, scale):
    check(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), PLANES)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_elements_of_rows_and_solids(mode):
    check(lambda x: F.interpolate(x, scale_factor=2.3, mode=mode), ROWS)
    check(lambda x: F.interpolate(x, scale_factor=1.7, mode=mode), SOLIDS)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_given_sizes(mode):
    compiles = check(lambda x: F.interpolate(x, size=(2 * x.shape[2], x.shape[3] + 1), mode=mode), PLANES[:4])
    assert compiles == 2  # with gradients and without
    check(lambda x: F.interpolate(x, size=(5, 6), mode=mode), PLANES)
    check(lambda x: F.interpolate(x, size=(x.shape[2] - 1, 3), mode=mode), PLANES)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("scale", [1.5, 2.0, 0.4])
def test_between_elements(mode, corners, scale):
    check(lambda x: F.interpolate(x, scale_factor=scale, mode=mode, align_corners=corners), PLANES)


def test_between_elements_of_rows_and_solids():
    check(lambda x: F.interpolate(x, scale_factor=2.3, mode="linear"), ROWS)
    check(lambda x: F.interpolate(x, scale_factor=1.7, mode="trilinear"), SOLIDS)


@pytest.mark.parametrize("program", [
    lambda x: F.interpolate(x.contiguous(memory_format=torch.channels_last), scale_factor=1.7),
    lambda x: F.interpolate(x[:, :1], scale_factor=1.7),
    lambda x: F.interpolate((x * 9).abs().to(torch.uint8), scale_factor=1.7),
    lambda x: F.interpolate((x * 9).abs().to(torch.uint8), scale_factor=1.7, mode="bilinear"),
    lambda x: F.interpolate(x, scale_factor=0.7, mode="bilinear", antialias=True),
    lambda x: F.interpolate(x, scale_factor=1.7, recompute_scale_factor=True),
])  # fmt: skip
def test_other_images(program):
    check(program, PLANES, gradients=False)


def test_torchs_own_fakes_keep_torchs_form():
    from torch._subclasses.fake_tensor import FakeTensorMode

    check(lambda x: F.interpolate(x, scale_factor=1.5), PLANES[:2])
    with FakeTensorMode():
        assert F.interpolate(torch.empty(1, 3, 4, 5), scale_factor=1.5).shape == (1, 3, 6, 7)
