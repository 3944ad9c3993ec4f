"""View ops: an index map each. Sizes, strides and offset of the alias are those that the fake result has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dyncomp.codegen.ir.index import ZERO, Index
from dyncomp.codegen.lower.builder import Lowering, broadcast_index, regroup
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Indices, Pointwise, Tensor, View


def _view(lx: Lowering, node: Any, x: Tensor, to_source: Callable[[Indices], Indices]) -> View | Pointwise:
    val = node.meta["val"]
    if node.target._schema.returns[0].alias_info is None:  # the `_copy` forms
        return lx.compute(
            val.shape, x.dtype, lambda scope, index: scope.read(x, to_source(index)), [x], val.stride()
        )
    return lx.view(x, val.shape, to_source, val.stride(), val.storage_offset())


@lowering(
    "aten.view.default",
    "aten.reshape.default",
    "aten._reshape_alias.default",
    "aten.unsqueeze.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.view_copy.default",
)
def reshape(lx: Lowering, node: Any, x: Tensor, *sizes: Any, **options: Any) -> Any:
    shape, old = tuple(node.meta["val"].shape), x.shape
    return _view(lx, node, x, lambda index: regroup(index, shape, old))


@lowering("aten.alias.default", "aten.detach.default", "aten.positive.default")
def same(lx: Lowering, node: Any, x: Tensor) -> Any:
    return _view(lx, node, x, lambda index: index)


@lowering("aten.permute.default")
def permute(lx: Lowering, node: Any, x: Tensor, dims: list[int]) -> Any:
    rank = len(x.shape)
    order = [d % rank for d in dims]
    return _view(lx, node, x, lambda index: tuple(index[order.index(d)] for d in range(rank)))


@lowering("aten.transpose.int")
def transpose(lx: Lowering, node: Any, x: Tensor, dim0: int, dim1: int) -> Any:
    rank = len(x.shape)
    order = list(range(rank))
    if rank:
        order[dim0 % rank], order[dim1 % rank] = order[dim1 % rank], order[dim0 % rank]
    return _view(lx, node, x, lambda index: tuple(index[d] for d in order))


@lowering("aten.t.default", "aten.numpy_T.default")
def t(lx: Lowering, node: Any, x: Tensor) -> Any:
    return _view(lx, node, x, lambda index: tuple(reversed(index)))


@lowering("aten.expand.default", "aten.expand_copy.default")
def expand(lx: Lowering, node: Any, x: Tensor, sizes: list[int], implicit: bool = False) -> Any:
    return _view(lx, node, x, lambda index: broadcast_index(x.shape, index))


@lowering("aten.slice.Tensor")
def slice_(lx: Lowering, node: Any, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    dim %= len(x.shape)
    size = x.shape[dim]
    first = 0 if start is None else start
    if not any(isinstance(number, Index) for number in (size, start, end)):  # else they are resolved (`aot/places.py`)
        first = min(max(first + size if first < 0 else first, 0), size)
    return _view(lx, node, x, lambda i: (*i[:dim], i[dim] * step + first, *i[dim + 1 :]))


@lowering("aten.select.int")
def select(lx: Lowering, node: Any, x: Tensor, dim: int, position: int) -> Any:
    dim %= len(x.shape)
    resolved = isinstance(position, Index) or isinstance(x.shape[dim], Index)  # `aot/places.py`
    place = position if resolved or position >= 0 else position + x.shape[dim]
    return _view(lx, node, x, lambda i: (*i[:dim], ZERO + place, *i[dim:]))


@lowering("aten.diagonal.default")
def diagonal(lx: Lowering, node: Any, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    rank = len(x.shape)
    row, col = dim1 % rank, dim2 % rank

    def to_source(index: Indices) -> Indices:
        rest = iter(index[:-1])
        ends = {row: index[-1] + max(-offset, 0), col: index[-1] + max(offset, 0)}
        return tuple(ends[d] if d in ends else next(rest) for d in range(rank))

    return _view(lx, node, x, to_source)


@lowering("aten.unfold.default")
def unfold(lx: Lowering, node: Any, x: Tensor, dim: int, size: int, step: int) -> Any:
    if not x.shape:
        return None
    dim %= len(x.shape)
    return _view(lx, node, x, lambda i: (*i[:dim], i[dim] * step + i[-1], *i[dim + 1 : -1]))


def _part(lx: Lowering, x: Tensor, val: Any, dim: int, first: int) -> View:
    return lx.view(
        x, val.shape, lambda i: (*i[:dim], i[dim] + first, *i[dim + 1 :]), val.stride(), val.storage_offset()
    )


@lowering("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.split.sizes")
def split(lx: Lowering, node: Any, x: Tensor, sizes: Any, dim: int = 0) -> Any:
    dim %= len(x.shape)
    parts: list[View] = []
    first = 0
    for val in node.meta["val"]:
        parts.append(_part(lx, x, val, dim, first))
        first += val.shape[dim]
    return tuple(parts)


@lowering("aten.unbind.int")
def unbind(lx: Lowering, node: Any, x: Tensor, dim: int = 0) -> Any:
    dim %= len(x.shape)

    def part(position: int, val: Any) -> View:
        return lx.view(
            x, val.shape, lambda i: (*i[:dim], ZERO + position, *i[dim:]), val.stride(), val.storage_offset()
        )

    return tuple(part(i, val) for i, val in enumerate(node.meta["val"]))
