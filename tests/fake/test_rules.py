"""Shape rules against eager: every family, over memory layouts and dtypes. Strides count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp.fake import FakeMode
from dyncomp.fake.promotion import result_dtype
from dyncomp.fake.registry import RULES, register
from dyncomp.fake.tensor import TensorMeta

aten = torch.ops.aten
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "row-major": lambda t: t,
    "reversed": lambda t: (
        t.permute(*range(t.ndim - 1, -1, -1)).contiguous().permute(*range(t.ndim - 1, -1, -1))
    ),
    "swapped": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "gaps": lambda t: torch.cat([t, t], -1)[..., ::2],
    "offset": lambda t: torch.cat([t, t], 0)[t.shape[0] :],
    "expanded": lambda t: t[:1].expand(t.shape),
    "channels-last": lambda t: t.to(memory_format=torch.channels_last) if t.ndim == 4 else t,
}
INDEX = torch.tensor([0, 1])

POINTWISE: list[Callable[..., Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * 2,
    lambda x, y: 1 - x,
    lambda x, y: x / y,
    lambda x, y: torch.relu(x),
    lambda x, y: x > y,
    lambda x, y: x.ge(0.5),
    lambda x, y: torch.where(x > 0, x, y),
    lambda x, y: x.float().exp() + y,
    lambda x, y: x.clamp(0, 1),
    lambda x, y: torch.maximum(x, y),
    lambda x, y: torch.addcmul(x.float(), y.float(), x.float()),
    lambda x, y: x.float() ** 2,
    lambda x, y: x.float().masked_fill(y > 0, 1.0),
    lambda x, y: torch.lerp(x.float(), y.float(), 0.5),
    lambda x, y: F.gelu(x.float()),
    lambda x, y: x.clone(),
    lambda x, y: x.to(torch.float64),
    lambda x, y: torch.zeros_like(x),
    lambda x, y: x.contiguous(),
]
STRUCTURAL: list[Callable[..., Any]] = [
    lambda x: x.sum(-1),
    lambda x: x.sum(),
    lambda x: x.float().mean((0, 1), keepdim=True),
    lambda x: x.amax(0),
    lambda x: x.max(-1),
    lambda x: x.argmax(1),
    lambda x: (x > 0).any(1),
    lambda x: x.float().var(0),
    lambda x: x.float().softmax(-1),
    lambda x: x.cumsum(0),
    lambda x: torch.cat([x, x], 1),
    lambda x: torch.stack([x, x]),
    lambda x: x[INDEX],
    lambda x: x[:, INDEX],
    lambda x: x.index_select(1, INDEX),
    lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    lambda x: x.sort(-1),
    lambda x: x.float().topk(1, -1),
    lambda x: x.flip(0),
    lambda x: x.roll(1, 0),
    lambda x: x.tril(),
    lambda x: x.repeat(1, *x.shape),
    lambda x: F.pad(x, (1, 1)),
    lambda x: x.reshape(-1),
    lambda x: x.unbind(1),
    lambda x: x.split(1, 0),
    lambda x: x.squeeze(),
    lambda x: x.expand(2, *x.shape),
    lambda x: x.transpose(0, 1)[..., 1:],
    lambda x: x.float() @ x.float().transpose(-1, -2),
    lambda x: F.layer_norm(x.float(), x.shape[-1:]),
    lambda x: aten.slice_scatter(x, x[:, :1], 1, 0, 1),
    lambda x: aten.select_scatter(x, x[0], 0, 1),
]
IMAGES: list[Callable[..., Any]] = [
    lambda x: F.conv2d(x, torch.randn(6, 4, 3, 3), torch.randn(6), padding=1),
    lambda x: F.conv2d(x, torch.randn(4, 1, 3, 3), groups=4, stride=2),
    lambda x: F.conv_transpose2d(x, torch.randn(4, 3, 2, 2), stride=2),
    lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    lambda x: F.avg_pool2d(x, 2),
    lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
    lambda x: F.adaptive_avg_pool2d(x, 1),
    lambda x: F.interpolate(x, scale_factor=2),
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
    lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
    lambda x: F.group_norm(x, 2),
    lambda x: F.pad(x, (1, 2, 0, 1)),
    lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    lambda x: F.pixel_shuffle(x, 2),
    lambda x: F.scaled_dot_product_attention(x, x, x),
]


def agree(program: Callable[..., Any], *tensors: torch.Tensor) -> None:
    mode = FakeMode()
    with torch.no_grad():
        expected = program(*tensors)
        with mode:
            actual = program(*[mode.from_real(t) for t in tensors])
    for want, got in zip(_all(expected), _all(actual), strict=True):
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
        assert got.meta.strides == got.stride() and got.meta.shape == got.shape


def _all(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


@settings(max_examples=250, deadline=None)
@given(
    program=st.sampled_from(POINTWISE),
    shape=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    layouts=st.tuples(st.sampled_from(sorted(LAYOUTS)), st.sampled_from(sorted(LAYOUTS))),
    dtypes=st.tuples(*[st.sampled_from([torch.float32, torch.int64, torch.bfloat16, torch.uint8])] * 2),
    narrow=st.sampled_from(["same", "one", "row", "scalar"]),
)
def test_pointwise(program, shape, layouts, dtypes, narrow) -> None:  # type: ignore[no-untyped-def]
    other = {"same": shape, "one": [1, *shape[1:]], "row": shape[1:], "scalar": []}[narrow]
    x = LAYOUTS[layouts[0]](torch.ones(shape, dtype=dtypes[0]))
    y = torch.ones(other, dtype=dtypes[1])
    agree(program, x, LAYOUTS[layouts[1]](y) if y.ndim > 1 else y)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("shape", [(2, 3), (3, 2, 4), (2, 3, 1), (2, 3, 4, 2)])
def test_reductions_joins_lookups_and_views(layout: str, shape: tuple[int, ...]) -> None:
    for program in STRUCTURAL:
        agree(program, LAYOUTS[layout](torch.rand(shape)))


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_images(layout: str) -> None:
    for program in IMAGES:
        agree(program, LAYOUTS[layout](torch.randn(2, 4, 8, 6)))


@settings(max_examples=100, deadline=None)
@given(
    operands=st.lists(
        st.one_of(
            st.sampled_from([1, 2.5, True]),
            st.tuples(
                st.sampled_from([torch.float16, torch.float32, torch.int8, torch.int64, torch.bool]),
                st.booleans(),
            ),
        ),
        min_size=2,
        max_size=2,
    )
)
def test_promotion_of_two_operands(operands: list[Any]) -> None:
    real = [torch.ones((2,) if o[1] else (), dtype=o[0]) if isinstance(o, tuple) else o for o in operands]
    if not any(isinstance(r, torch.Tensor) for r in real):
        return
    cpu = torch.device("cpu")
    metas = [
        TensorMeta(tuple(r.shape), r.stride(), r.dtype, cpu) if isinstance(r, torch.Tensor) else r
        for r in real
    ]
    assert result_dtype(metas) is torch.result_type(*real)


def test_two_rules_for_one_operation_are_refused() -> None:
    assert aten.relu.default in RULES
    with pytest.raises(ValueError, match="two shape rules"):
        register("relu", lambda x: None)
