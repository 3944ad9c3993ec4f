"""A convolution whose kernel has one element is a matrix product over the channels.

    convolution(x[N, C, H, W], w[D, C, 1, 1])  ->  y = mm(rows(x), w.t())            rows(x)[n * h * w, c]: a copy
                                                   out[n, d, h, w] = y[n * h * w, d]
    convolution_backward(g, x, w)              ->  mm(rows(g), w), mm(rows(g).t(), rows(x)), sum(rows(g), 0)

oneDNN, which eager calls, copies the weights into blocks first, each time: with few places and many channels (the deep end
of a ResNet) that takes several times as long as the product. The result is a sum of the same terms in another order. Where
there are many places, the copies of the rows would cost more than they save.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch import fx

from dyncomp.codegen.ir.index import ZERO, hint
from dyncomp.codegen.ir.nodes import Value
from dyncomp.codegen.lower.builder import Lowering, regroup
from dyncomp.codegen.lower.tensor import Indices, Scope, Shape, Storage, Tensor, View

# Nanoseconds, measured: they choose the faster of two right forms.
PER_WEIGHT = 2.5  # oneDNN's copy of the weights
PER_PRODUCT = 0.003  # what a convolution takes longer for a multiplication
PER_COPY = 1.2  # an element of rows

Product = Callable[[Tensor, Tensor], Storage]  # emits mm of two matrices


@dataclasses.dataclass(frozen=True)
class _Shapes:
    """x: [batch, inner, *image]; w: [outer, inner, 1, ...]; result: [batch, outer, *places], every `steps`-th place of x."""

    batch: int
    inner: int
    outer: int
    image: Shape
    places: Shape
    steps: Shape

    @property
    def rows(self) -> int:
        return self.batch * prod(self.places)


def convolution(lx: Lowering, node: fx.Node, args: Sequence[Any], product: Product) -> Tensor | None:
    """The result of `aten.convolution`, or None where ATen does it better."""
    x, weight, bias, *options = args
    shapes = _shapes(node.args[0], x, weight, options)
    if shapes is None:
        return None
    y = product(_rows(lx, x, shapes.inner, shapes), _transposed(lx, _matrix(lx, weight)))
    val = node.meta["val"]

    def body(scope: Scope, index: Indices) -> Value:
        value = scope.read(y, _row_of(index, shapes, shapes.places))
        return value if bias is None else scope.b.op("add", value, scope.read(bias, (index[1],)))

    return lx.compute(val.shape, "f32", body, [y] if bias is None else [y, bias], val.stride())


def convolution_backward(
    lx: Lowering, node: fx.Node, args: Sequence[Any], product: Product
) -> tuple[Tensor | None, ...] | None:
    """The gradients of `aten.convolution_backward` that are asked for, or None where ATen does it better."""
    grad, x, weight, _, *options, mask = args
    shapes = _shapes(node.args[1], x, weight, options)
    if shapes is None or grad.dtype != "f32":
        return None
    rows = _rows(
        lx, grad, shapes.outer, dataclasses.replace(shapes, image=shapes.places, steps=(1,) * len(shapes.steps))
    )
    vals = node.meta["val"]
    found: list[Tensor | None] = [None, None, None]
    if mask[0]:
        found[0] = _spread(lx, product(rows, _matrix(lx, weight)), vals[0], shapes)
    if mask[1]:
        d = product(_transposed(lx, rows), _rows(lx, x, shapes.inner, shapes))
        found[1] = _kernel_of(lx, d, vals[1])
    if mask[2]:
        found[2] = lx.reduce("sum", grad, (0, *range(2, len(grad.shape))), False, "f32")
    return tuple(found)


def _shapes(node: Any, x: Tensor, weight: Tensor, options: Sequence[Any]) -> _Shapes | None:
    stride, padding, _, transposed, _, groups = options
    dims = len(weight.shape) - 2
    if transposed or groups != 1 or dims < 1 or len(x.shape) != dims + 2 or prod(weight.shape[2:]) != 1:
        return None
    if any(padding) or x.dtype != "f32" or weight.dtype != "f32" or 0 in x.shape or 0 in weight.shape:
        return None
    outer, inner = weight.shape[:2]
    if weight.strides[:2] != (inner, 1) or isinstance(weight, View):
        return None
    steps, image = tuple(stride) * (dims if len(stride) == 1 else 1), x.shape[2:]
    if any(size % step for size, step in zip(image, steps, strict=True)):
        return None
    places = tuple([size // step for size, step in zip(image, steps, strict=True)])
    shapes = _Shapes(x.shape[0], inner, outer, image, places, steps)
    rows = hint(shapes.rows)
    saved = hint(inner * outer) * (PER_WEIGHT + PER_PRODUCT * rows)
    return shapes if saved > PER_COPY * rows * hint(inner + outer) else None


def _matrix(lx: Lowering, weight: Tensor) -> Tensor:
    zeros = (ZERO,) * (len(weight.shape) - 2)
    offset = getattr(weight, "offset", 0)
    return lx.view(weight, weight.shape[:2], lambda index: (*index, *zeros), weight.strides[:2], offset)


def _kernel_of(lx: Lowering, matrix: Tensor, val: Any) -> Tensor:
    """The matrix [outer, inner] as a kernel with one element."""
    if tuple(val.stride()[:2]) == matrix.strides:
        return lx.view(matrix, val.shape, lambda index: index[:2], val.stride())
    return lx.compute(val.shape, "f32", lambda scope, index: scope.read(matrix, index[:2]), [matrix], val.stride())


def _transposed(lx: Lowering, matrix: Tensor) -> Tensor:
    return lx.view(
        matrix, matrix.shape[::-1], lambda index: index[::-1], matrix.strides[::-1], getattr(matrix, "offset", 0)
    )


def _rows(lx: Lowering, x: Tensor, channels: int, shapes: _Shapes) -> Tensor:
    """[rows, channels], of every `steps`-th place of x [batch, channels, *image]."""

    def body(scope: Scope, index: Indices) -> Value:
        n, *places, c = regroup(index, (shapes.rows, channels), (shapes.batch, *shapes.places, channels))
        return scope.read(x, (n, c, *(i * step for i, step in zip(places, shapes.steps, strict=True))))

    return lx.compute((shapes.rows, channels), "f32", body, [x])


def _row_of(index: Indices, shapes: _Shapes, places: Shape) -> Indices:
    """The index into rows for one into [batch, channels, *places]."""
    n, c, *rest = index
    (row,) = regroup((n, *rest), (shapes.batch, *places), (shapes.rows,))
    return row, c


def _spread(lx: Lowering, rows: Storage, val: Any, shapes: _Shapes) -> Tensor:
    """The gradient of x: rows at the places that were read, zero between them."""

    def body(scope: Scope, index: Indices) -> Value:
        b = scope.b
        n, c, *image = index
        places = [i // step if step != 1 else i for i, step in zip(image, shapes.steps, strict=True)]
        read: Value | None = None
        for i, step in zip(image, shapes.steps, strict=True):
            if step != 1:
                here = b.op("eq", b.position(i % step), b.integer(0))
                read = here if read is None else b.op("and", read, here)
        value = scope.read(rows, _row_of((n, c, *places), shapes, shapes.places), read)
        return value if read is None else b.op("where", read, value, b.const(0.0, "f32"))

    return lx.compute(val.shape, "f32", body, [rows], val.stride())
