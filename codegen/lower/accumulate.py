"""Sums at places that come from data, added in place to memory that nobody else reads.

    zeros; index_put(zeros, [i], g, accumulate)   ->  zeros; index_put_(zeros, [i], g, accumulate)
    embedding_dense_backward(g, i, n, ...)        ->  zeros(n, width); index_add_(zeros, 0, i, g)
    mm(a, b) + embedding_dense_backward(g, i)     ->  m = mm(a, b); index_add_(m, 0, i, g)

ATen's functional forms copy the tensor that they add to, and `embedding_dense_backward` fills memory of its own: for the
weight of an embedding that is more traffic than all else. The last form is the gradient of a weight that an embedding and
a matrix product share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from dyncomp.codegen.ir.index import Index, IndexLike
from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.real import Real
from dyncomp.codegen.ir.types import compute_type
from dyncomp.codegen.lower.builder import Lowering, dtype_of, number
from dyncomp.codegen.lower.tensor import Pointwise, Storage, Tensor, contiguous_strides

aten = torch.ops.aten
ValOf = Callable[[fx.Node], Any]  # the metadata of a node, its numbers as the code generator has them

# Functional operation -> its in-place form: the first argument is the tensor that is written.
TWINS = {
    "aten.index_put.default": "aten::index_put_",
    "aten._unsafe_index_put.default": "aten::index_put_",
    "aten.index_add.default": "aten::index_add_",
    "aten.scatter_add.default": "aten::scatter_add_",
    "aten.index_copy.default": "aten::index_copy_",
    "aten.scatter.src": "aten::scatter_",
    "aten.scatter.value": "aten::scatter_",
}
OVERLOADS = {"aten.scatter.src": "src", "aten.scatter.value": "value"}


@dataclasses.dataclass(frozen=True)
class Call:
    """An ATen call to make in place of a node's; the first argument is written and comes back as the result."""

    name: str
    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Rows:
    """The gradient of an embedding's weight that waits for the sum it goes into."""

    index: Tensor
    rows: Tensor


def in_place_call(
    lx: Lowering, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any], val_of: ValOf
) -> Call | Rows | None:
    """What to do for a node in place of its own call; None: nothing better. Makes the tensors that the call reads."""
    name = str(node.target)
    if name in TWINS:
        if any(isinstance(arg, Index | Real) for arg in (*args, *kwargs.values())):  # which overload takes it?
            return None
        base = _own_memory(lx, node, args[0])
        return base and Call(TWINS[name], OVERLOADS.get(name, ""), (base, *args[1:]), dict(kwargs))
    if name == "aten.embedding_dense_backward.default":
        return _embedding(lx, node, val_of, *args)
    if name == "aten.add.Tensor":
        return _shared_weight(args, node)
    return None


def _own_memory(lx: Lowering, reader: fx.Node, tensor: Any) -> Tensor | None:
    """The first argument, where only this place of the reader sees its memory: a value of the graph that no other node reads,
    made by that node itself, and no view. A fill is made once more where others read it, too."""
    node = reader.args[0]
    if not isinstance(node, fx.Node) or not tensor.shape:
        return None
    row_major = tensor.strides == contiguous_strides(tensor.shape)
    if isinstance(tensor, Pointwise) and row_major and not tensor.sources:
        return lx.compute(tensor.shape, tensor.dtype, tensor.body, (), tensor.strides)
    if len(node.users) != 1 or tensor.name != node.name or node in _nodes(reader.args[1:], reader.kwargs):
        return None
    return tensor if isinstance(tensor, Pointwise) and row_major or _is_product(tensor) else None


def _nodes(*structure: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(structure, found.append)
    return found


def _is_product(tensor: Any) -> bool:
    """The row-major result of a matrix product, which is never an alias."""
    if not isinstance(tensor, Storage) or tensor.origin[0] != "call":
        return False
    known = tensor.origin[1].name in ("aten::mm", "aten::addmm", "mkldnn::_linear_pointwise")
    return known and tensor.strides == contiguous_strides(tensor.shape)


def _embedding(
    lx: Lowering, node: fx.Node, val_of: ValOf, grad: Tensor, index: Tensor, count: IndexLike, padding: int, by_frequency: bool
) -> Call | Rows | None:
    """ATen adds the rows in this order, too; the row of `padding` stays 0."""
    val = val_of(node)
    dtype = dtype_of(val)
    if by_frequency or dtype not in ("f32", "f64") or grad.dtype != dtype or index.dtype not in ("i64", "i32"):
        return None
    if any(isinstance(size, int) and size == 0 for size in (count, *grad.shape)):
        return None
    width = grad.shape[-1]
    places = _rows_of(lx, index, (index.numel,))
    rows = _rows_of(lx, grad, (index.numel, width))
    if padding >= 0:
        rows = _without_padding(lx, rows, places, padding)
    if _goes_into_a_product(node, val_of):
        return Rows(places, rows)
    kind = compute_type(dtype)
    zeros = lx.compute(val.shape, dtype, lambda scope, at: number(scope.b, 0, kind), [], val.stride())
    return Call("aten::index_add_", "", (zeros, 0, places, rows), {})


def _rows_of(lx: Lowering, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same elements in another shape, in memory of its own where a view cannot show them."""
    if tensor.strides == contiguous_strides(tensor.shape):
        return lx.reshape(tensor, shape, contiguous_strides(shape), getattr(tensor, "offset", 0))
    flat = lx.reshape(tensor, shape)
    return lx.elementwise(lambda b, v: v, [flat], tensor.dtype, shape=shape)


def _without_padding(lx: Lowering, rows: Tensor, places: Tensor, padding: int) -> Tensor:
    def keep(b: Builder, value: Value, place: Value) -> Value:
        return b.op("where", b.op("eq", place, b.const(padding, place.dtype)), number(b, 0, value.dtype), value)

    return lx.elementwise(keep, [rows, lx.reshape(places, (places.shape[0], 1))], rows.dtype, shape=rows.shape)


def _goes_into_a_product(node: fx.Node, val_of: ValOf) -> bool:
    """True if the one reader adds this gradient to a matrix product that comes earlier and that it alone reads."""
    if len(node.users) != 1:
        return False
    (reader,) = node.users
    if str(reader.target) != "aten.add.Tensor" or reader.kwargs or len(reader.args) != 2:
        return False
    other = reader.args[0] if reader.args[1] is node else reader.args[1]
    if not isinstance(other, fx.Node) or other is node or len(other.users) != 1:
        return False
    if other.target is not aten.mm.default:
        return False
    ours, theirs = val_of(node), val_of(other)
    same = (theirs.dtype, theirs.shape, theirs.stride()) == (ours.dtype, ours.shape, ours.stride())
    return same and _comes_before(other, node)


def _comes_before(first: fx.Node, second: fx.Node) -> bool:
    node = second
    while node.op != "root":
        if node is first:
            return True
        node = node.prev
    return False


def _shared_weight(args: Sequence[Any], node: fx.Node) -> Call | None:
    waiting = [arg for arg in args if isinstance(arg, Rows)]
    if not waiting:
        return None
    (product,) = [arg for arg in args if not isinstance(arg, Rows)]
    return Call("aten::index_add_", "", (product, 0, waiting[0].index, waiting[0].rows), {})
