"""Views, moves, indexing and factories against eager, through the interpreter."""

import pytest
import torch

from tests.codegen.graphs import assert_close, flat, run_interpreted

F = torch.nn.functional
torch.manual_seed(0)
X, Y = torch.randn(4, 6, 8), torch.randn(4, 6, 8)
IMAGE = torch.randn(2, 8, 5, 6)
LAST = IMAGE.to(memory_format=torch.channels_last)


def check(function, *inputs):
    want = flat(function(*inputs))
    assert_close(run_interpreted(function, *inputs), want)


VIEWS = [
    lambda a: a.view(24, 8).t().reshape(8, 4, 6) + 1,
    lambda a: a[:, 1:4, ::2] + 1,
    lambda a: a[:, -3:, 1] * 2,
    lambda a: (a.exp()[:, 1:4, ::2] * 2).sum(-1),
    lambda a: a[:, :1].expand(4, 6, 8) + 1,
    lambda a: a.diagonal(1, 1, 2) + 1,
    lambda a: a.unfold(2, 3, 2) * 1.0,
    lambda a: a.permute(2, 0, 1).unsqueeze(1).squeeze() + 1,
    lambda a: [part * 2 for part in a.chunk(2, 1)],
    lambda a: a.unbind(1)[2] + a.unbind(1)[3],
    lambda a: a.view(4, 2, 3, 8).transpose(1, 2).reshape(4, 6, 8) + a,
    lambda a: (a * 2).flatten(1).view(4, 8, 6).exp() + 1,
    lambda a: a.exp().view(4, 6, 2, 4).permute(2, 0, 1, 3).contiguous(),
]


@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_views(number):
    check(VIEWS[number], X)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_moves(dim):
    check(lambda a: torch.cat([a, a * 2], dim), X)
    check(lambda a, b: torch.cat([a, b, a[:1, :, :], b], 0), X, Y)
    check(lambda a, b: torch.stack([a, b, a], dim), X, Y)
    check(lambda a: torch.cat([a] * 6, dim) + 1, X)
    check(lambda a: a.flip(dim), X)
    check(lambda a: a.roll(3, dim) + 1, X)
    check(lambda a: a.repeat(2, 3, 1), X)
    check(lambda a: a.repeat_interleave(2, dim) + 1, X)


def test_rotary():
    def rotate(a, c, s):
        return a * c + torch.cat((-a[..., 4:], a[..., :4]), -1) * s

    check(rotate, X, Y, X)


@pytest.mark.parametrize("image", [IMAGE, LAST], ids=["contiguous", "channels_last"])
def test_images(image):
    check(lambda a: F.pad(a, (1, 2, 0, 1)), image)
    check(lambda a: F.pad(a, (-1, 1), value=2.0) + 1, image)
    check(lambda a: a.permute(0, 2, 3, 1).contiguous() + 1, image)
    check(lambda a, b: a + b, image, IMAGE)
    check(lambda a: F.max_pool2d(a + 1, 2) * 2, image)
    check(lambda a: F.conv2d(a, torch.ones(4, 8, 3, 3), padding=1).relu() + 1, image)


def test_indexing():
    picks = torch.tensor([0, 3, 1])
    for dim in range(3):
        check(lambda a, i, dim=dim: a.index_select(dim, i) + 1, X, picks)
        check(lambda a, i, dim=dim: a.gather(dim, i), X, torch.randint(0, 4, (4, 6, 8)))
    check(lambda a, i: a[i], X, torch.tensor([0, -1, 2]))
    check(lambda a, i: a[:, i], X, torch.tensor([[0, -1], [2, 3]]))
    check(lambda a, i, j: a[i, :, j] * 2, X, torch.tensor([0, -1, 2]), torch.tensor([0, 1, 2]))
    check(lambda a, i, j: a[:, i, j] * 2, X, torch.tensor([0, -1, 2]), torch.tensor([[0], [1]]))


def test_embedding():
    table, picks = torch.randn(10, 8), torch.randint(0, 10, (3, 5))
    check(lambda w, i: F.embedding(i, w), table, picks)
    check(lambda w, i: F.layer_norm(F.embedding(i, w) * 2 + 1, (8,)), table, picks)


def test_index_out_of_range_raises():
    with pytest.raises(IndexError):
        run_interpreted(lambda w, i: F.embedding(i, w), torch.randn(10, 8), torch.tensor([3, 10]))


def test_factories():
    check(lambda a: torch.arange(8) + a, X)
    check(lambda a: torch.arange(2, 18, 2, dtype=torch.int32) * 2, X)
    check(lambda a: torch.full((3,), 2.5) * 3, X)
    check(lambda a: torch.eye(4) + 1, X)
    check(lambda a: torch.zeros_like(a) + torch.ones(8), X)
    check(lambda a: F.one_hot(a.argmax(-1), 8), X)


def test_scatter_into_copies():
    def write(a, b):
        c = a.clone()
        c[:, 1:3] = b[:, :2] * 2
        c[0] += 1
        return c

    check(write, X, Y)
