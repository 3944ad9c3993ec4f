"""Fakes of symbolic sizes: at every size that the guards let through, eager has these sizes and strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp.fake import FakeMode
from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.env import ShapeEnv
from dyncomp.shape.program import guard_program, value_program
from dyncomp.shape.symbolic import is_symbolic, layout_of
from dyncomp.shape.truths import expr_of

INDEX = torch.tensor([0, 1])


def enter(mode: FakeMode, name: int, tensor: torch.Tensor, dims: Sequence[int]) -> FakeTensor:
    env = mode.env

    def size_at(dim: int) -> Any:
        size = tensor.shape[dim]
        return env.create_int(size, (name, "size", dim)) if dim in dims else size

    layout = layout_of(env, tensor.shape, tensor.stride(), size_at, lambda dim: (name, "stride", dim))
    return mode.from_real(tensor, layout)


def read(tensors: Sequence[torch.Tensor], origin: Any) -> int:
    name, what, dim = origin
    return tensors[name].shape[dim] if what == "size" else tensors[name].stride(dim)


def flatten(value: Any) -> list[Any]:
    return [t for item in value for t in flatten(item)] if isinstance(value, (tuple, list)) else [value]


class Trace:
    """A program run once on symbolic sizes; `check` compares with eager at others."""

    def __init__(self, program: Callable[..., Any], tensors: Sequence[torch.Tensor], dims: Sequence[Sequence[int]]):
        self.program, self.env = program, ShapeEnv()
        mode = FakeMode(self.env)
        fakes = [enter(mode, i, t, d) for i, (t, d) in enumerate(zip(tensors, dims, strict=True))]
        self.inputs = [fake.meta for fake in fakes]
        with torch.no_grad(), mode:
            self.results = flatten(program(*fakes))
        assert self.check(*tensors), "the guards do not hold for the call that made them"

    def check(self, *tensors: torch.Tensor) -> bool:
        """False if the guards refuse these tensors."""
        guards = guard_program(self.env)
        for tensor, meta in zip(tensors, self.inputs, strict=True):
            pairs = [*zip(meta.shape, tensor.shape, strict=True), *zip(meta.strides, tensor.stride(), strict=True)]
            if any(not is_symbolic(want) and want != got for want, got in pairs):
                return False
        if guards is not None and guards.run([read(tensors, origin) for origin in guards.inputs]) is None:
            return False
        with torch.no_grad():
            expected = flatten(self.program(*tensors))
        for want, got in zip(expected, self.results, strict=True):
            if not isinstance(want, torch.Tensor):
                assert self.values([got], tensors) == [want]
                continue
            assert self.values(got.meta.shape, tensors) == list(want.shape)
            assert self.values(got.meta.strides, tensors) == list(want.stride())
            assert got.dtype == want.dtype
        return True

    def values(self, numbers: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
        program = value_program(self.env, [expr_of(n) for n in numbers])
        return program.run([read(tensors, origin) for origin in program.inputs])


ONE_TENSOR: list[Callable[..., Any]] = [
    lambda x: torch.cat([x, x]),
    lambda x: x.reshape(-1, 2),
    lambda x: x.view(x.shape[0], -1).t(),
    lambda x: x.flatten(1).unsqueeze(0).expand(3, -1, -1),
    lambda x: x[1:, : x.shape[1] - 1],
    lambda x: x[:, ::2],
    lambda x: x[:, None, -2:],
    lambda x: x.split(2, 0)[0],
    lambda x: x.chunk(2, 1),
    lambda x: F.pad(x, (1, 2, 0, 1)),
    lambda x: x.sum(1, keepdim=True) + x,
    lambda x: x.mean(0).softmax(-1),
    lambda x: x @ x.transpose(-1, -2),
    lambda x: x.transpose(-1, -2).contiguous().view(-1),
    lambda x: F.layer_norm(x, x.shape[-1:]),
    lambda x: x.cumsum(1).amax(0),
    lambda x: x[INDEX].index_select(1, INDEX),
    lambda x: torch.zeros(x.shape[0], x.shape[1] * 2) * 2,
    lambda x: torch.arange(x.shape[0]) + torch.ones(x.shape[0]).to(torch.int64),
    lambda x: torch.stack([x, x], 1).permute(2, 0, 1).reshape(x.shape[1], -1),
    lambda x: x.repeat(2, 1, 1),
    lambda x: x.sort(-1),
    lambda x: x.tril().masked_fill(x > 0, 0.0),
    lambda x: x.unfold(0, 2, 1),
    lambda x: torch.where(x > 0, x, x.new_zeros(())).gelu() if hasattr(x, "gelu") else F.gelu(x),
    lambda x: x.narrow(0, 1, x.shape[0] - 1),
    lambda x: F.interpolate(x[None, None], scale_factor=2),
    lambda x: x.std(0) * x.var(),
    lambda x: torch.einsum("ij,kj->ik", x, x),
    lambda x: (x.numel(), x.size(0) // 2, x.shape[1] % 3, x.stride(0)),
    lambda x: x.diagonal(),
    lambda x: x.view(-1)[: x.shape[0]].view(1, -1).expand(x.shape[1], -1),
    lambda x: F.one_hot(torch.zeros(x.shape[0], dtype=torch.int64), 3),
    lambda x: x.roll(1, 0).flip(1),
    lambda x: torch.linspace(0, 1, x.shape[0]),
    lambda x: x.topk(2, 1),
    lambda x: F.conv1d(x[None], torch.ones(3, 6, 2)) if x.shape[0] == 6 else x,
    lambda x: torch.tensor_split(x, 2, 1),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ONE_TENSOR)))
def test_one_tensor(number: int):
    trace = Trace(ONE_TENSOR[number], [torch.randn(6, 4)], [(0, 1)])
    hits = [trace.check(torch.randn(*sizes)) for sizes in ((6, 4), (8, 6), (10, 2), (4, 4), (7, 5), (6, 9))]
    assert hits[0] and sum(hits) >= 2, [str(g) for g in trace.env.guards]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    heads = [t.view(t.shape[0], t.shape[1], 2, 4).transpose(1, 2) for t in (q, k, v)]
    scores = heads[0] @ heads[1].transpose(-1, -2) / 2.0
    mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril()
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    fused = F.scaled_dot_product_attention(*heads)
    return (weights @ heads[2]).transpose(1, 2).reshape(q.shape[0], q.shape[1], 8), fused


def test_attention_keeps_batch_and_sequence_open():
    tensors = [torch.randn(3, 5, 8) for _ in range(3)]
    trace = Trace(attention, tensors, [(0, 1)] * 3)
    assert trace.env.guards == []
    assert trace.check(*[torch.randn(2, 7, 8) for _ in range(3)])
    assert trace.check(*[torch.randn(9, 64, 8) for _ in range(3)])


def test_linear_and_convolution():
    weight, kernel = torch.randn(6, 8), torch.randn(4, 3, 3, 3)
    trace = Trace(lambda x: F.linear(x, weight).relu(), [torch.randn(3, 5, 8)], [(0, 1)])
    assert trace.env.guards == [] and trace.check(torch.randn(2, 9, 8))

    def image(x: torch.Tensor) -> torch.Tensor:
        y = F.max_pool2d(F.conv2d(x, kernel, padding=1).relu(), 2)
        return F.adaptive_avg_pool2d(y, 1).flatten(1)

    trace = Trace(image, [torch.randn(2, 3, 8, 8)], [(0, 2, 3)])
    assert trace.check(torch.randn(5, 3, 12, 12))


def test_memory_formats_and_broadcast():
    x = torch.randn(3, 4, 6, 5).to(memory_format=torch.channels_last)
    trace = Trace(lambda a: (a + 1).mean((2, 3)) * a.sum(), [x], [(0, 2, 3)])
    assert trace.check(torch.randn(2, 4, 7, 9).to(memory_format=torch.channels_last))
    assert not trace.check(torch.randn(2, 4, 7, 9))
    trace = Trace(lambda a, b: a + b, [torch.randn(5, 7), torch.randn(7)], [(0, 1), (0,)])
    assert trace.check(torch.randn(9, 3), torch.randn(3))
    assert not trace.check(torch.randn(9, 3), torch.randn(1))


STEPS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "view": lambda x, n: x.reshape(-1, x.shape[-1]),
    "fold": lambda x, n: x.reshape(*x.shape[:-1], -1, 2) if x.shape[-1] % 2 == 0 else x,
    "flat": lambda x, n: x.flatten(),
    "add": lambda x, n: x + x.sum(-1, keepdim=True),
    "cat": lambda x, n: torch.cat([x, x], n % x.dim()),
    "slice": lambda x, n: x[n:] if x.shape[0] > n else x,
    "drop": lambda x, n: x[..., : x.shape[-1] - 1] if x.shape[-1] > 2 else x,
    "step": lambda x, n: x[..., ::2],
    "split": lambda x, n: x.split(max(x.shape[0] // 2, 1), 0)[-1],
    "chunk": lambda x, n: x.chunk(2, -1)[0],
    "pad": lambda x, n: F.pad(x, (n, 1)),
    "reduce": lambda x, n: x.amax(n % x.dim(), keepdim=True),
    "mean": lambda x, n: x.mean(0) if x.dim() > 1 else x,
    "matmul": lambda x, n: x @ x.transpose(-1, -2) if x.dim() > 1 else x,
    "swap": lambda x, n: x.transpose(0, -1),
    "copy": lambda x, n: x.contiguous(),
    "unsqueeze": lambda x, n: x.unsqueeze(n % x.dim()),
    "expand": lambda x, n: x.unsqueeze(0).expand(n + 1, *x.shape),
    "new": lambda x, n: x + torch.ones(x.shape[-1]),
    "softmax": lambda x, n: x.softmax(-1),
    "number": lambda x, n: x * (x.shape[0] // 2 + x.shape[-1] % 3),
}
sizes = st.integers(1, 9)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2)), min_size=1, max_size=6),
    st.lists(sizes, min_size=2, max_size=3), st.lists(st.lists(sizes, min_size=3, max_size=3), min_size=4, max_size=4),
)  # fmt: skip
def test_random_programs(steps, first, others):
    def program(x: torch.Tensor) -> torch.Tensor:
        for name, number in steps:
            if x.dim() <= 4:
                x = STEPS[name](x, number)
        return x

    trace = Trace(program, [torch.zeros(first)], [range(len(first))])
    for other in others:
        trace.check(torch.zeros(other[: len(first)]))


def test_static_fakes_stay_plain():
    mode = FakeMode()
    with mode:
        y = mode.from_real(torch.ones(3, 4)) @ mode.from_real(torch.ones(4, 2))
    assert not any(is_symbolic(n) for n in (*y.meta.shape, *y.meta.strides))
