"""Backward of slice and select: a gradient stands where the part was, zeros elsewhere.

    slice_backward(g, [4, 8], 1, 2, 6, 1)   ->   value(i, j) = 2 <= j < 6 ? g[i, j - 2] : 0

Sums of them, as for the parts of one projection, become one loop.
"""

from __future__ import annotations

from typing import Any

from dyncomp.codegen.ir.nodes import Value
from dyncomp.codegen.ir.types import compute_type
from dyncomp.codegen.lower.builder import Lowering, dtype_of, number
from dyncomp.codegen.lower.indexing import inside
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Indices, Scope, Tensor, may_be_empty


def _among_zeros(lx: Lowering, node: Any, part: Tensor, dim: int, span: tuple[int, int, int], keep: bool) -> Any:
    """`part` at the places `range(*span)` of `dim`; `keep`: the part has that dim itself."""
    val = node.meta["val"]
    dtype = dtype_of(val)
    if dtype is None or part.dtype != dtype or may_be_empty(part.shape) or may_be_empty(val.shape):
        return None
    first, end, step = span
    whole = (first, end, step) == (0, val.shape[dim], 1)

    def body(scope: Scope, index: Indices) -> Value:
        b = scope.b
        if whole and keep:
            return scope.read(part, index)
        here = inside(scope, index[dim], first, end, step)
        place = ((index[dim] - first) // step,) if keep else ()
        value = scope.read(part, (*index[:dim], *place, *index[dim + 1 :]), here)
        return b.op("where", here, value, number(b, 0, compute_type(dtype)))

    return lx.compute(val.shape, dtype, body, [part], val.stride())


@lowering("aten.slice_backward.default")
def slice_(lx: Lowering, node: Any, part: Tensor, sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    val = node.meta["val"]
    dim %= max(len(val.shape), 1)
    size = val.shape[dim]
    if not all(isinstance(v, int) for v in (start, end, step, size)):
        return None
    first = min(max(start + (size if start < 0 else 0), 0), size)
    last = min(max(end + (size if end < 0 else 0), first), size)
    return _among_zeros(lx, node, part, dim, (first, last, step), True)


@lowering("aten.select_backward.default")
def select(lx: Lowering, node: Any, part: Tensor, sizes: Any, dim: int, position: int) -> Any:
    val = node.meta["val"]
    dim %= len(val.shape)
    size = val.shape[dim]
    if not (isinstance(position, int) and isinstance(size, int)):
        return None
    place = position % size
    return _among_zeros(lx, node, part, dim, (place, place + 1, 1), False)
