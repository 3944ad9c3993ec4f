"""What lowerings build with: pointwise, reduce and view tensors, broadcasting, type promotion, values of
Python numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from dyncomp.codegen.ir.index import ZERO, Index, Undecided, var
from dyncomp.codegen.ir.nodes import ACC_OPS, Builder, Value
from dyncomp.codegen.ir.proofs import quotient
from dyncomp.codegen.ir.real import Real
from dyncomp.codegen.ir.types import FLOATS, FROM_TORCH, TO_TORCH, compute_type
from dyncomp.codegen.lower.rounding import cast_to
from dyncomp.codegen.lower.split import parts_of
from dyncomp.codegen.lower.tensor import (
    Body,
    Indices,
    Pointwise,
    Reduce,
    Scope,
    Shape,
    Tensor,
    View,
    contiguous_strides,
)

# The operation on two results of a reduction that gives the result of all their elements.
COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}

Number: TypeAlias = bool | int | float  # or an `Index` of sizes, or a `Real`
Operand: TypeAlias = Tensor | Number
Elementwise = Callable[..., Value]


class Lowering:
    """Makes the tensors of one node: gives them the node's name and a key made of its op, its plain
    arguments and a running number."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._name = ""
        self._key: tuple[Any, ...] = ()
        self._count = 0

    def begin(self, name: str, key: tuple[Any, ...]) -> None:
        """All tensors from now on belong to this node."""
        self._name, self._key, self._count = name, key, 0

    def _keep(self, tensor: Any) -> Any:
        tensor.name = self._name
        tensor.key = (*self._key, self._count, tensor.shape, tensor.dtype)
        self._count += 1
        self.tensors.append(tensor)
        return tensor

    def compute(
        self,
        shape: Sequence[int],
        dtype: str,
        body: Body,
        sources: Sequence[Tensor],
        strides: Sequence[int] | None = None,
        streaming: bool = True,
    ) -> Pointwise:
        """A tensor whose elements `body(scope, index)` computes, in the compute type of `dtype`."""
        shape = tuple(shape)
        layout = contiguous_strides(shape) if strides is None else tuple(strides)
        return self._keep(Pointwise(shape, dtype, layout, body=body, sources=tuple(sources), streaming=streaming))

    def elementwise(
        self,
        function: Elementwise,
        operands: Sequence[Operand],
        dtype: str,
        *,
        compute: str | None = None,
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        precise: Sequence[int] = (),
    ) -> Pointwise:
        """`function(b, *values)` on broadcast operands, each first converted to type `compute` (None: left
        as it is). Scalar operands at the positions `precise` are not rounded to a half type."""
        sources = [o for o in operands if isinstance(o, Tensor)]
        out = tuple(shape) if shape is not None else broadcast_shapes([s.shape for s in sources])
        work = compute and compute_type(compute)

        def body(scope: Scope, index: Indices) -> Value:
            b = scope.b
            values = []
            for position, operand in enumerate(operands):
                if isinstance(operand, Tensor):
                    value, source = scope.read(operand, broadcast_index(operand.shape, index)), operand.dtype
                else:
                    value, source = number(b, operand, work or _number_type(operand)), "f64"
                if compute is not None:
                    whole = position in precise and not (isinstance(operand, Tensor) and operand.shape)
                    value = cast_to(b, value, source, compute_type(compute) if whole else compute)
                values.append(value)
            return b.cast(function(b, *values), compute_type(dtype))

        return self.compute(out, dtype, body, sources, strides)

    def reduce(
        self,
        op: str,
        source: Tensor,
        dims: Sequence[int],
        keepdim: bool,
        dtype: str,
        *,
        part: str = "value",
        strides: Sequence[int] | None = None,
    ) -> Tensor:
        """Accumulates in the source's compute type; `dtype` is the type of the result in memory."""
        dims = tuple(sorted(d % max(len(source.shape), 1) for d in dims))
        shape = tuple(1 if d in dims else size for d, size in enumerate(source.shape) if keepdim or d not in dims)
        layout = contiguous_strides(shape) if strides is None else tuple(strides)
        if any(source.shape[d] == 0 for d in dims) and ACC_OPS[op] not in ("lowest", "highest"):
            # Nothing is read: a loop without rounds must not carry loads that its kernel may make in front of it.
            kind = compute_type(dtype)
            return self.compute(shape, dtype, lambda scope, index: scope.b.const(_empty(op, kind), kind), [], layout)
        if all(source.shape[d] == 1 for d in dims):
            return self._single(source, dims, keepdim, dtype, part, shape, layout)
        cut = None if op.startswith("arg") else parts_of(source.shape, dims)
        if cut is not None and not isinstance(source.shape[cut[0]], int):
            return self._with_rest(op, source, dims, keepdim, dtype, layout, *cut)
        if cut is not None:
            source = self._partial(op, source, dims, *cut)
        return self._keep(
            Reduce(
                shape,
                dtype,
                layout,
                op=op,
                source=source,
                dims=dims,
                keepdim=keepdim,
                part=part,
                acc_dtype=compute_type(source.dtype),
            )
        )

    def _partial(self, op: str, source: Tensor, dims: Shape, dim: int, parts: int) -> Tensor:
        """Reduces in `parts` pieces along `dim`: that dim keeps `parts` elements, others 1."""
        old = source.shape
        pieces = self.reshape(source, (*old[:dim], parts, old[dim] // parts, *old[dim + 1 :]))
        inner = [d + (d >= dim) for d in dims]
        first = self.reduce(op, pieces, inner, True, compute_type(source.dtype))
        return self.reshape(first, (*first.shape[: dim + 1], *first.shape[dim + 2 :]))

    def _with_rest(
        self, op: str, source: Tensor, dims: Shape, keepdim: bool, dtype: str, layout: Shape, dim: int, parts: int
    ) -> Tensor:
        """A reduction along a symbolic dim in `parts` equal pieces and what is left. Pieces may be empty, which changes nothing."""
        old = source.shape
        each, rest = old[dim] // parts, old[dim] % parts
        pieces = self.view(
            source,
            (*old[:dim], parts, each, *old[dim + 1 :]),
            lambda index: (*index[:dim], index[dim] * each + index[dim + 1], *index[dim + 2 :]),
        )
        last = self.view(
            source,
            (*old[:dim], rest, *old[dim + 1 :]),
            lambda index: (*index[:dim], index[dim] + each * parts, *index[dim + 1 :]),
        )
        kind = compute_type(source.dtype)
        first = self.reduce(op, pieces, [d + (d >= dim) for d in dims], True, kind)
        first = self.reshape(first, (*first.shape[: dim + 1], *first.shape[dim + 2 :]))
        both = [self.reduce(op, part, dims, keepdim, kind) for part in (first, last)]
        return self.elementwise(
            lambda b, x, y: b.op(COMBINE[op], x, y), both, dtype, shape=both[0].shape, strides=layout
        )

    def _single(
        self, source: Tensor, dims: Shape, keepdim: bool, dtype: str, part: str, shape: Shape, strides: Shape
    ) -> Pointwise:
        """A reduction over dims of size 1: the element itself, or position 0."""

        def body(scope: Scope, index: Indices) -> Value:
            if part == "position":
                return scope.b.const(0, "i64")
            rest = iter(index)
            full = tuple(ZERO if d in dims and not keepdim else next(rest) for d in range(len(source.shape)))
            return scope.b.cast(scope.read(source, full), compute_type(dtype))

        return self.compute(shape, dtype, body, [source], strides)

    def view(
        self,
        source: Tensor,
        shape: Sequence[int],
        to_source: Callable[[Indices], Indices],
        strides: Sequence[int] = (),
        offset: int = 0,
    ) -> View:
        """The source under another index. Without strides it is for reading alone."""
        return self._keep(
            View(tuple(shape), source.dtype, tuple(strides), source=source, to_source=to_source, offset=offset)
        )

    def reshape(self, source: Tensor, shape: Sequence[int], strides: Sequence[int] = (), offset: int = 0) -> Tensor:
        """Row-major regrouping of the dims."""
        shape, old = tuple(shape), source.shape
        return self.view(source, shape, lambda index: regroup(index, shape, old), strides, offset)

    def expand(self, source: Tensor, shape: Sequence[int]) -> Tensor:
        old = source.shape
        return self.view(source, shape, lambda index: broadcast_index(old, index))

    def convert(self, source: Tensor, dtype: str) -> Tensor:
        """The same numbers in another type (not rounded to a half type: they stay as precise as they are)."""
        if source.dtype == dtype:
            return source
        return self.elementwise(lambda b, v: v, [source], dtype, compute=dtype)


def dtype_of(val: Any) -> str | None:
    """IR type of a fake tensor; None where there is none (complex, quantised, other)."""
    return FROM_TORCH.get(val.dtype)


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    out: list[int] = []
    for position in range(max((len(s) for s in shapes), default=0)):
        sizes = {s[len(s) - 1 - position] for s in shapes if position < len(s)} - {1}
        if len(sizes) > 1:
            raise ValueError(f"shapes do not broadcast: {shapes}")
        out.append(sizes.pop() if sizes else 1)
    return tuple(reversed(out))


def broadcast_index(shape: Shape, index: Indices) -> Indices:
    """The index into an operand of this shape, for an index of the broadcast result."""
    tail = index[len(index) - len(shape) :]
    return tuple(ZERO if size == 1 else i for size, i in zip(shape, tail, strict=True))


def linear(index: Indices, shape: Shape) -> Index:
    """Row-major position."""
    total, step = ZERO, 1
    for i, size in zip(reversed(index), reversed(shape), strict=True):
        total, step = total + i * step, step * size
    return total


def unravel(position: Index, shape: Shape) -> Indices:
    """The index at a row-major position, which lies within the shape."""
    out: list[Index] = []
    step = math.prod(shape)
    if step == 0:
        return tuple(ZERO for _ in shape)
    outermost = True
    for size in shape:
        step //= size
        if size == 1:
            out.append(ZERO)
            continue
        # the outermost dim needs no remainder, whatever the ranges of the variables say (guarded reads)
        out.append(position // step if outermost else (position // step) % size)
        outermost = False
    return tuple(out)


def regroup(index: Indices, shape: Shape, old: Shape) -> Indices:
    """Index into shape `old` of the element at the same row-major position as `index` in `shape`.

    Dims are matched in blocks of equal products, so that a dim that stays itself keeps its plain variable.
    """
    out: list[Index] = []
    i = j = 0
    if 0 in old:
        return tuple(ZERO for _ in old)
    while i < len(shape) or j < len(old):
        start_i, start_j = i, j
        left = right = 1
        if i < len(shape):
            left, i = shape[i], i + 1
        if j < len(old):
            right, j = old[j], j + 1
        while left != right:
            if i == len(shape) and j == len(old):  # equal for sizes of calls, but not by their formulas
                return unravel(linear(index, shape), old)
            if _extend_left(left, right, i < len(shape), j < len(old)):
                left, i = left * shape[i], i + 1
            else:
                right, j = right * old[j], j + 1
        out.extend(unravel(linear(index[start_i:i], shape[start_i:i]), old[start_j:j]))
    return tuple(out)


def _extend_left(left: int, right: int, more_left: bool, more_right: bool) -> bool:
    """Which of two products to multiply on: the smaller one; of symbolic ones the one that divides the other."""
    if not (more_left and more_right):
        return more_left
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    return quotient(left, right) is None


def _number_type(value: Number) -> str:
    return "bool" if isinstance(value, bool) else "i64" if isinstance(value, (int, Index)) else "f64"


def number(b: Builder, value: Number, dtype: str) -> Value:
    """A Python number as a constant of a compute type, converted as ATen converts a scalar argument."""
    if isinstance(value, Real):
        if dtype not in FLOATS:
            raise Undecided(f"{value} as {dtype}")
        return b.cast(b.op("float_of_bits", b.integer(value.index)), dtype)
    if isinstance(value, Index):
        return b.cast(b.integer(value), dtype)
    if dtype == "bool":
        return b.const(bool(value), dtype)
    if dtype in FLOATS:
        return b.const(float(value), dtype)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} as an integer")
    return b.const(wrap_int(int(value), dtype), dtype)


def wrap_int(value: int, dtype: str) -> int:
    bits = {"i8": 8, "u8": 8, "i16": 16, "i32": 32, "i64": 64}[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype != "u8" and value >> (bits - 1) else value


def promote(operands: Sequence[Any], default: torch.dtype | None = None) -> str | None:
    """Common type of tensors and numbers as ATen finds it: tensors with dims first, then 0-d ones, then
    Python numbers, each later kind only where its category (bool, int, float) is higher."""
    kinds: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Tensor):
            rank, dtype = (0 if operand.shape else 1), TO_TORCH[operand.dtype]
        elif isinstance(operand, (bool, int, float, Index, Real)):
            rank, dtype = 2, number_dtype(operand, default)
        else:
            continue
        held = kinds[rank]
        kinds[rank] = dtype if held is None else torch.promote_types(held, dtype)
    result: torch.dtype | None = None
    for dtype in kinds:
        if dtype is None:
            continue
        if result is None or _category(dtype) > _category(result):
            result = dtype
    return None if result is None else FROM_TORCH.get(result)


def number_dtype(value: Number, default: torch.dtype | None = None) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    return torch.int64 if isinstance(value, (int, Index)) else (default or torch.get_default_dtype())


def _category(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1


def vars_of(shape: Shape, prefix: str) -> Indices:
    """One fresh variable a dim."""
    return tuple(var(f"{prefix}{d}", size) for d, size in enumerate(shape))


def _empty(op: str, dtype: str) -> bool | int | float:
    """What a reduction of nothing gives."""
    neutral = ACC_OPS[op]
    return bool(neutral) if dtype == "bool" else float(neutral) if dtype in FLOATS else int(neutral)
