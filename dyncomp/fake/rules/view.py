"""Views: shape, strides and offset over the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.registry import rule
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import Ints, countable, is_one, late, must_hold, numel, resolve_size, view_strides
from dyncomp.shape.symbolic import select

# `x[1:]` comes with 2**63 - 1 for its end; no dimension is as large.
_THE_END = 2**62
_UNCOUNTABLE = "numel: integer multiplication overflow"  # eager's words


def _view(x: TensorMeta, shape: Ints, strides: Ints, offset: int) -> TensorMeta:
    return TensorMeta(shape, strides, x.dtype, x.device, offset)


def wrap_dim(dim: int, rank: int) -> int | None:
    """A dimension counted from the front, or None if it is out of range."""
    if -rank <= dim < rank:
        return dim % rank
    return None


@rule("view _unsafe_view")
def _reshape(x: TensorMeta, size: Sequence[int]) -> TensorMeta | None:
    shape = resolve_size(numel(x.shape), size)
    if shape is None:
        raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {numel(x.shape)}")
    strides = view_strides(x.shape, x.strides, shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans "
            "across two contiguous subspaces). Use .reshape(...) instead."
        )
    return _view(x, shape, strides, x.offset)


@rule("detach alias lift_fresh")
def _same(x: TensorMeta) -> TensorMeta:
    return _view(x, x.shape, x.strides, x.offset)


@rule("t")
def _t(x: TensorMeta) -> TensorMeta | None:
    return _view(x, x.shape[::-1], x.strides[::-1], x.offset) if x.ndim <= 2 else None


@rule("transpose.int")
def _transpose(x: TensorMeta, first: int, second: int) -> TensorMeta | None:
    a, b = wrap_dim(first, x.ndim), wrap_dim(second, x.ndim)
    if a is None or b is None:
        return None
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return _permuted(x, order)


@rule("permute")
def _permute(x: TensorMeta, dims: Sequence[int]) -> TensorMeta | None:
    order = [wrap_dim(dim, x.ndim) for dim in dims]
    if None in order or sorted(order) != list(range(x.ndim)):  # type: ignore[type-var]
        return None
    return _permuted(x, order)  # type: ignore[arg-type]


def _permuted(x: TensorMeta, order: Sequence[int]) -> TensorMeta:
    return _view(x, tuple([x.shape[d] for d in order]), tuple([x.strides[d] for d in order]), x.offset)


@rule("expand")
def _expand(x: TensorMeta, size: Sequence[int], *, implicit: bool = False) -> TensorMeta | None:
    new = len(size) - x.ndim
    if new < 0:
        return None
    shape: list[int] = []
    strides: list[int] = []
    spread = False
    for i in range(len(size) - 1, -1, -1):
        wanted = size[i]
        if i >= new:
            have, stride = x.shape[i - new], x.strides[i - new]
            wanted = have if not late(wanted) and wanted == -1 else wanted
        else:
            # A new dimension lies outside the next inner one; of size 1 it keeps that stride.
            have, stride = 1, shape[-1] * strides[-1] if x.shape else 0
        if late(wanted) or late(have):
            fits = must_hold(wanted >= 0) and (not late(have) and have == 1 or not is_one(have) and must_hold(wanted == have))
            if not fits:
                return None
            shape.append(wanted)
            strides.append(select(wanted == have, stride, 0))
            continue
        if wanted < 0:
            return None
        if type(have) is int and have == 1 and type(stride) is int and stride == 0:
            shape.append(wanted)
            strides.append(0)
            spread = True
            continue
        if wanted != have != 1:
            return None
        shape.append(wanted)
        spread = spread or wanted != have
        strides.append(stride if wanted == have else 0)
    if spread and not countable(shape):
        raise RuntimeError(_UNCOUNTABLE)
    return _view(x, tuple(shape[::-1]), tuple(strides[::-1]), x.offset)


@rule("unsqueeze")
def _unsqueeze(x: TensorMeta, dim: int) -> TensorMeta | None:
    at = wrap_dim(dim, x.ndim + 1)
    if at is None:
        return None
    stride = x.shape[at] * x.strides[at] if at < x.ndim else 1
    return _view(x, (*x.shape[:at], 1, *x.shape[at:]), (*x.strides[:at], stride, *x.strides[at:]), x.offset)


@rule("squeeze squeeze.dim squeeze.dims")
def _squeeze(x: TensorMeta, dim: Any = None) -> TensorMeta | None:
    asked = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    dims = [d if dim is None else wrap_dim(d, max(x.ndim, 1)) for d in asked]
    if None in dims or len(set(dims)) != len(dims):
        return None
    kept = [d for d in range(x.ndim) if d not in dims or x.shape[d] != 1]
    return _permuted(x, kept)


@rule("slice.Tensor")
def _slice(
    x: TensorMeta, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> TensorMeta | None:
    at = wrap_dim(dim, x.ndim)
    if at is None or step <= 0:
        return None
    first, length = span(start, end, step, x.shape[at])
    shape = (*x.shape[:at], length, *x.shape[at + 1 :])
    strides = (*x.strides[:at], x.strides[at] * step, *x.strides[at + 1 :])
    return _view(x, shape, strides, x.offset + first * x.strides[at])


def span(start: int | None, end: int | None, step: int, size: int) -> tuple[int, int]:
    """First position of a slice, and how many there are."""
    first, last = bounds(start, end, size)
    return first, (last - first + step - 1) // step


def bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """The bounds of a slice from 0 to `size`, the second not before the first."""
    first = _clip(0 if start is None else start, size)
    return first, _greater(_clip(size if end is None else end, size), first)


def _clip(position: int, size: int) -> int:
    """Where a slice bound lies; of a number that only the running program gives an expression that holds for all of them."""
    if type(position) is int and position >= _THE_END:  # no question, which would be a guard
        return size
    if late(position) or late(size):
        position = select(position < 0, position + size, position)
        return torch.sym_min(_greater(position, 0), size)  # type: ignore[no-any-return]
    if position < 0:
        position = position + size
    return min(max(position, 0), size)


def _greater(a: int, b: int) -> int:
    return torch.sym_max(a, b) if late(a) or late(b) else max(a, b)  # type: ignore[no-any-return]


@rule("select.int")
def _select(x: TensorMeta, dim: int, index: int) -> TensorMeta | None:
    at = wrap_dim(dim, x.ndim)
    if at is None:
        return None
    if late(index) or late(x.shape[at]):
        if not must_hold(-x.shape[at] <= index) or not must_hold(index < x.shape[at]):
            return None
    elif not -x.shape[at] <= index < x.shape[at]:
        return None
    return _dropped(x, at, index % x.shape[at])


def _dropped(x: TensorMeta, dim: int, index: int) -> TensorMeta:
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    return _view(x, shape, x.strides[:dim] + x.strides[dim + 1 :], x.offset + index * x.strides[dim])


@rule("unfold")
def _unfold(x: TensorMeta, dim: int, size: int, step: int) -> TensorMeta | None:
    at = wrap_dim(dim, x.ndim)
    if at is None or not (size >= 0 and size <= x.shape[at] and step > 0):
        return None
    shape = (*x.shape[:at], (x.shape[at] - size) // step + 1, *x.shape[at + 1 :], size)
    return _view(x, shape, (*x.strides[:at], step * x.strides[at], *x.strides[at + 1 :], x.strides[at]), x.offset)


@rule("unbind.int")
def _unbind(x: TensorMeta, dim: int = 0) -> list[TensorMeta] | None:
    at = wrap_dim(dim, x.ndim)
    return None if at is None else [_dropped(x, at, i) for i in range(x.shape[at])]


@rule("split.Tensor unsafe_split.Tensor")
def _split(x: TensorMeta, size: int, dim: int = 0) -> list[TensorMeta] | None:
    at = wrap_dim(dim, x.ndim)
    if at is None or size <= 0:
        return None
    total = x.shape[at]
    whole = [size] * (int((total + size - 1) // size) - 1)  # how many pieces there are is all that is asked of the sizes
    return _pieces(x, at, [*whole, total - len(whole) * size])


@rule("split_with_sizes unsafe_split_with_sizes")
def _split_with_sizes(x: TensorMeta, sizes: Sequence[int], dim: int = 0) -> list[TensorMeta] | None:
    at = wrap_dim(dim, x.ndim)
    if at is None or not must_hold(sum(sizes) == x.shape[at]) or not all(must_hold(size >= 0) for size in sizes):
        return None
    return _pieces(x, at, sizes)


def _pieces(x: TensorMeta, dim: int, sizes: Sequence[int]) -> list[TensorMeta]:
    pieces, start = [], 0
    for size in sizes:
        shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
        pieces.append(_view(x, shape, x.strides, x.offset + start * x.strides[dim]))
        start += size
    return pieces


@rule("as_strided")
def _as_strided(
    x: TensorMeta, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> TensorMeta | None:
    if len(size) != len(stride) or any(n < 0 for n in (*size, *stride)):
        return None
    offset = x.offset if storage_offset is None else storage_offset
    if not countable(size):
        raise RuntimeError(_UNCOUNTABLE)
    return _view(x, tuple(size), tuple(stride), offset)


@rule("_reshape_alias")
def _reshape_alias(x: TensorMeta, size: Sequence[int], stride: Sequence[int]) -> TensorMeta:
    return _view(x, tuple(size), tuple(stride), x.offset)
