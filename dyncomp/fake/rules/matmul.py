"""Matrix products: row-major results. What does not fit is left to the meta kernel's errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyncomp.fake.elementwise import common_device
from dyncomp.fake.registry import rule
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import broadcast, contiguous_strides


@rule("mm")
def _mm(a: TensorMeta, b: TensorMeta) -> TensorMeta | None:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        return None
    return _product((a.shape[0], b.shape[1]), a, b)


@rule("bmm")
def _bmm(a: TensorMeta, b: TensorMeta) -> TensorMeta | None:
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        return None
    return _product((a.shape[0], a.shape[1], b.shape[2]), a, b)


@rule("addmm")
def _addmm(
    bias: TensorMeta, a: TensorMeta, b: TensorMeta, *, beta: Any = 1, alpha: Any = 1
) -> TensorMeta | None:
    result = _mm(a, b)
    return result if result is not None and _fits(bias, result) else None


@rule("baddbmm")
def _baddbmm(
    bias: TensorMeta, a: TensorMeta, b: TensorMeta, *, beta: Any = 1, alpha: Any = 1
) -> TensorMeta | None:
    result = _bmm(a, b)
    return result if result is not None and _fits(bias, result) else None


def _fits(bias: TensorMeta, result: TensorMeta) -> bool:
    return bias.dtype == result.dtype and broadcast([bias.shape, result.shape]) == result.shape


def _product(shape: tuple[int, ...], a: TensorMeta, b: TensorMeta) -> TensorMeta | None:
    device = common_device((a, b))
    if a.dtype != b.dtype or device is None:
        return None
    return TensorMeta(shape, contiguous_strides(shape), a.dtype, device)


@rule("_trilinear")
def _trilinear(
    a: TensorMeta,
    b: TensorMeta,
    c: TensorMeta,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    summed: Sequence[int],
    unroll_dim: int = 1,
) -> TensorMeta | None:
    """The product of three tensors, each with dimensions of size 1 put in, summed over some dimensions: row-major."""
    shapes = []
    for tensor, places in ((a, expand_a), (b, expand_b), (c, expand_c)):
        sizes = list(tensor.shape)
        for place in sorted(places):
            sizes.insert(place, 1)
        shapes.append(tuple(sizes))
    whole = broadcast(shapes) if len(set(map(len, shapes))) == 1 else None
    if whole is None or not a.dtype == b.dtype == c.dtype or not a.device == b.device == c.device:
        return None
    shape = tuple([size for dim, size in enumerate(whole) if dim not in summed])
    return TensorMeta(shape, contiguous_strides(shape), a.dtype, a.device)
