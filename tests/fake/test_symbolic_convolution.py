"""Memory formats of convolutions and pools whose sizes vary: eager's at every size that the guards let through."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from tests.support import assert_same

LAST, PLAIN = torch.channels_last, torch.contiguous_format
SHAPES = [(2, 8, 8), (3, 12, 9), (1, 8, 11), (20, 9, 8), (2, 150, 90), (17, 70, 80), (2, 8, 8)]


def calls(function, channels, memory_format, compiles, shapes=SHAPES):
    dyncomp.reset()
    fast = dyncomp.optimize(function, backend="aot_eager", dynamic=True)
    with torch.no_grad(), config.patch(strict=True, verify_passes=True):
        for batch, height, width in shapes:
            x = torch.randn(batch, channels, height, width).to(memory_format=memory_format)
            assert_same(fast(x), function(x), f"{(batch, height, width)}")
    made = dyncomp.stats()
    assert made.graph_breaks == 0, made.break_reasons
    assert not [name for name in made.fallbacks if name.startswith("aot")], made.fallbacks
    assert made.frames <= compiles, f"{made.frames} compiles instead of at most {compiles}"


@pytest.mark.parametrize("weight_format", [LAST, PLAIN])
@pytest.mark.parametrize("image_format", [LAST, PLAIN])
@pytest.mark.parametrize("settings", [{}, {"stride": 2}, {"padding": 1}, {"groups": 4}, {"dilation": 2}])
@pytest.mark.parametrize("kernel", [1, 3, 4])
def test_convolution(kernel, settings, image_format, weight_format):
    groups = settings.get("groups", 1)
    weight = torch.randn(8, 4 // groups, kernel, kernel).to(memory_format=weight_format)
    calls(lambda x: F.conv2d(x, weight, **settings), 4, image_format, compiles=6)


def test_transposed_convolution():
    weight = torch.randn(4, 6, 3, 3).to(memory_format=LAST)
    calls(lambda x: F.conv_transpose2d(x, weight, torch.randn(6) * 0, stride=2), 4, LAST, compiles=6)


@pytest.mark.parametrize("turned", [True, False])
def test_sequences(turned):
    """Computed as images of height 1; a weight may be laid out with its channels last."""
    weight = torch.randn(8, 3, 4).transpose(1, 2) if turned else torch.randn(8, 4, 3)

    def program(x):
        return F.conv1d(x[:, :, 0], weight, padding=1), F.conv1d(x.flatten(2), weight)

    calls(program, 4, PLAIN, compiles=6)


def test_permuted_images():
    """As models do that normalise the channels as the last dimension."""
    weight = torch.randn(4, 1, 3, 3)

    def program(x):
        y = F.layer_norm(x.permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2)
        return F.conv2d(y, weight, padding=1, groups=4) + x

    calls(program, 4, PLAIN, compiles=6)


@pytest.mark.parametrize("program", [
    lambda x: F.max_pool2d(x, 3, 2, 1),
    lambda x: F.avg_pool2d(x, 3, 1, 1),
    lambda x: F.adaptive_avg_pool2d(x, 1),
    lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] // 2 + 1), mode="bilinear"),
    lambda x: F.pad(x, (1, 2, 1, 1), mode="reflect"),
    lambda x: F.pad(x, (1, 0, 2, 1), mode="replicate"),
])  # fmt: skip
def test_height_and_width_are_not_compared(program):
    calls(program, 4, PLAIN, compiles=2, shapes=[(2, 8, 8), (2, 12, 8), (3, 9, 16), (1, 8, 8), (1, 11, 6)])


@pytest.mark.parametrize("image_format, compiles", [(PLAIN, 2), (LAST, 6)])
def test_padding_that_may_be_none(image_format, compiles):
    """Of a row-major image the padded one is row-major whether or not there is any padding."""

    def program(x):
        return F.pad(x, (0, -x.shape[3] % 4, 0, -x.shape[2] % 4))

    shapes = [(2, 9, 7), (2, 8, 8), (3, 8, 9), (3, 13, 16), (1, 8, 7), (1, 9, 8)]
    calls(program, 4, image_format, compiles=compiles, shapes=shapes)
