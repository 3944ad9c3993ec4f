"""Indexing with data: embedding, index_select, gather, index.Tensor, and slice/select scatters that write
a part into a copy.

An index is checked in the kernel (`scope.checked`): out of range raises as in eager. Negative ones wrap
where the op allows them.
"""

from __future__ import annotations

from typing import Any

from dyncomp.codegen.ir.index import ZERO, Index
from dyncomp.codegen.ir.nodes import Value
from dyncomp.codegen.ir.types import compute_type
from dyncomp.codegen.lower.builder import Lowering, broadcast_index, broadcast_shapes, dtype_of
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Indices, Scope, Tensor, may_be_empty

INDEX_TYPES = ("i64", "i32")


def _gather(lx: Lowering, node: Any, x: Tensor, dim_of: dict[int, Tensor], index_of: Any, shape_index: Any) -> Any:
    """Element of x at an index made of plain indices and, for the dims in `dim_of`, of numbers read from
    tensors."""
    val = node.meta["val"]
    dtype = dtype_of(val)
    if dtype is None or may_be_empty(x.shape) or any(t.dtype not in INDEX_TYPES for t in dim_of.values()):
        return None

    def body(scope: Scope, index: Indices) -> Value:
        numbers: dict[int, Value] = {}
        for dim, tensor in dim_of.items():
            number = scope.b.cast(scope.read(tensor, index_of(tensor, index)), "i64")
            numbers[dim] = scope.checked(number, x.shape[dim])
        return scope.pick(x, shape_index(index), numbers)

    return lx.compute(val.shape, dtype, body, [x, *dim_of.values()], val.stride(), streaming=False)


@lowering("aten.embedding.default")
def embedding(
    lx: Lowering, node: Any, weight: Tensor, indices: Tensor, padding_idx: int = -1, *flags: Any, **named: Any
) -> Any:
    rank = len(indices.shape)
    return _gather(lx, node, weight, {0: indices}, lambda _, index: index[:rank], lambda index: (ZERO, index[rank]))


@lowering("aten.index_select.default")
def index_select(lx: Lowering, node: Any, x: Tensor, dim: int, indices: Tensor) -> Any:
    if not x.shape or len(indices.shape) != 1:
        return None
    dim %= len(x.shape)
    return _gather(
        lx,
        node,
        x,
        {dim: indices},
        lambda _, index: (index[dim],),
        lambda index: (*index[:dim], ZERO, *index[dim + 1 :]),
    )


@lowering("aten.gather.default")
def gather(lx: Lowering, node: Any, x: Tensor, dim: int, indices: Tensor, sparse_grad: bool = False) -> Any:
    if not x.shape or len(indices.shape) != len(x.shape):
        return None
    dim %= len(x.shape)
    return _gather(
        lx,
        node,
        x,
        {dim: indices},
        lambda _, index: index,
        lambda index: (*index[:dim], ZERO, *index[dim + 1 :]),
    )


@lowering("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index_tensor(lx: Lowering, node: Any, x: Tensor, indices: list[Any]) -> Any:
    """Advanced indexing with integers: the broadcast index dims stand first, or in place of adjacent
    indexed dims."""
    listed = {d: t for d, t in enumerate(indices) if t is not None}
    if not listed or any(not isinstance(t, Tensor) or t.dtype not in INDEX_TYPES for t in listed.values()):
        return None
    dims = sorted(listed)
    shape = broadcast_shapes([t.shape for t in listed.values()])
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    start = dims[0] if adjacent else 0

    def index_of(tensor: Tensor, index: Indices) -> Indices:
        return broadcast_index(tensor.shape, index[start : start + len(shape)])

    def shape_index(index: Indices) -> Indices:
        rest = iter((*index[:start], *index[start + len(shape) :]))
        return tuple(ZERO if d in listed else next(rest) for d in range(len(x.shape)))

    return _gather(lx, node, x, listed, index_of, shape_index)


def inside(scope: Scope, position: Index, first: int, end: int, step: int) -> Value:
    """True where a position lies in range(first, end, step)."""
    b = scope.b
    within = b.op("ge", b.position(position), b.integer(first))
    within = b.op("and", within, b.op("lt", b.position(position), b.integer(end)))
    if step != 1:
        within = b.op("and", within, b.op("eq", b.position((position - first) % step), b.const(0, "i64")))
    return within


def _scatter_part(
    lx: Lowering, node: Any, x: Tensor, part: Tensor, dim: int, span: tuple[int, int, int], keep: bool
) -> Any:
    val = node.meta["val"]
    dtype = dtype_of(val)
    if dtype is None:
        return None
    first, end, step = span

    def body(scope: Scope, index: Indices) -> Value:
        b = scope.b
        here = inside(scope, index[dim], first, end, step)
        place = ((index[dim] - first) // step,) if keep else ()
        source = (*index[:dim], *place, *index[dim + 1 :])
        new = b.cast(scope.read(part, source, here), compute_type(dtype))
        return b.op("where", here, new, scope.read(x, index))

    return lx.compute(val.shape, dtype, body, [x, part], val.stride())


@lowering("aten.slice_scatter.default")
def slice_scatter(
    lx: Lowering,
    node: Any,
    x: Tensor,
    part: Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Any:
    dim %= len(x.shape)
    size = x.shape[dim]
    if any(isinstance(number, Index) for number in (size, start, end)):  # then the bounds are resolved (`aot/places.py`)
        return _scatter_part(lx, node, x, part, dim, (start, end, step), True)
    first = min(max((start or 0) + (size if (start or 0) < 0 else 0), 0), size)
    last = size if end is None else min(max(end + (size if end < 0 else 0), first), size)
    return _scatter_part(lx, node, x, part, dim, (first, last, step), True)


@lowering("aten.select_scatter.default")
def select_scatter(lx: Lowering, node: Any, x: Tensor, part: Tensor, dim: int, position: int) -> Any:
    dim %= len(x.shape)
    resolved = isinstance(position, Index) or isinstance(x.shape[dim], Index)  # `aot/places.py`
    place = position if resolved or position >= 0 else position + x.shape[dim]
    return _scatter_part(lx, node, x, part, dim, (place, place + 1, 1), False)
