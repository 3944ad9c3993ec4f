"""Ops that move elements: cat, stack, pad, flip, roll, repeat. Each element is read from one place, under
a guard where it may not exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyncomp.codegen.ir.index import Index, as_index
from dyncomp.codegen.ir.nodes import Value
from dyncomp.codegen.ir.proofs import nonnegative
from dyncomp.codegen.ir.types import INTS, compute_type
from dyncomp.codegen.lower.builder import Lowering, dtype_of, number
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Indices, Scope, Tensor

MOST_PARTS = 4  # beyond that a chain of selections costs more than ATen's copies


def _select_part(lx: Lowering, node: Any, parts: Sequence[Tensor], dim: int, sizes: Sequence[int], keep: bool) -> Any:
    """parts joined along `dim`; `keep`: the parts have that dim themselves."""
    val = node.meta["val"]
    dtype = dtype_of(val)
    if dtype is None or not 1 <= len(parts) <= MOST_PARTS:
        return None
    kind = compute_type(dtype)

    def body(scope: Scope, index: Indices) -> Value:
        b = scope.b
        out: Value | None = None
        total = end = sum(sizes)
        for part, size in zip(reversed(parts), reversed(sizes), strict=True):
            start = end - size
            here = b.op("ge", b.position(index[dim]), b.integer(start))
            if end is not total:
                here = b.op("and", here, b.op("lt", b.position(index[dim]), b.integer(end)))
            place = (index[dim] - start,) if keep else ()
            value = b.cast(scope.read(part, (*index[:dim], *place, *index[dim + 1 :]), here), kind)
            out = value if out is None else b.op("where", here, value, out)
            end = start
        assert out is not None
        return out

    return lx.compute(val.shape, dtype, body, parts, val.stride())


@lowering("aten.cat.default", "aten.concat.default")
def cat(lx: Lowering, node: Any, parts: list[Tensor], dim: int = 0) -> Any:
    shape = node.meta["val"].shape
    if not len(shape):
        return None
    dim %= len(shape)
    full = [p for p in parts if p.shape != (0,) and 0 not in p.shape]
    return _select_part(lx, node, full, dim, [p.shape[dim] for p in full], True)


@lowering("aten.stack.default")
def stack(lx: Lowering, node: Any, parts: list[Tensor], dim: int = 0) -> Any:
    rank = len(node.meta["val"].shape)
    return _select_part(lx, node, parts, dim % rank, [1] * len(parts), False)


@lowering("aten.constant_pad_nd.default")
def constant_pad(lx: Lowering, node: Any, x: Tensor, pads: list[int], value: Any = 0) -> Any:
    rank = len(x.shape)
    kind = compute_type(x.dtype)
    if kind in INTS and isinstance(value, float) and not value.is_integer():
        return None
    before = {rank - 1 - i: pads[2 * i] for i in range(len(pads) // 2)}
    val = node.meta["val"]

    def body(scope: Scope, index: Indices) -> Value:
        b = scope.b
        inside: Value | None = None
        source = tuple(i - before.get(d, 0) for d, i in enumerate(index))
        for d, i in enumerate(source):
            for needed, test, bound in (
                (not nonnegative(-as_index(before.get(d, 0))), "ge", 0),
                (not nonnegative(as_index(x.shape[d]) - val.shape[d] + before.get(d, 0)), "lt", x.shape[d]),
            ):
                if needed:
                    check = b.op(test, b.position(i), b.integer(bound))
                    inside = check if inside is None else b.op("and", inside, check)
        read = scope.read(x, source, inside)
        return read if inside is None else b.op("where", inside, read, number(b, value, kind))

    return lx.compute(val.shape, x.dtype, body, [x], val.stride())


def _remap(lx: Lowering, node: Any, x: Tensor, to_source: Any) -> Any:
    """A fresh tensor whose elements come from other places of x."""
    val = node.meta["val"]
    return lx.compute(val.shape, x.dtype, lambda scope, index: scope.read(x, to_source(index)), [x], val.stride())


@lowering("aten.flip.default")
def flip(lx: Lowering, node: Any, x: Tensor, dims: list[int]) -> Any:
    rank = len(x.shape)
    turned = {d % max(rank, 1) for d in dims}
    return _remap(
        lx,
        node,
        x,
        lambda index: tuple(x.shape[d] - 1 - i if d in turned else i for d, i in enumerate(index)),
    )


@lowering("aten.roll.default")
def roll(lx: Lowering, node: Any, x: Tensor, shifts: list[int], dims: list[int] = ()) -> Any:  # type: ignore[assignment]
    if not dims or 0 in x.shape:
        return None
    moved: dict[int, int] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        moved[dim % len(x.shape)] = moved.get(dim % len(x.shape), 0) + shift

    def place(d: int, i: Index) -> Index:
        return (i + (-moved[d]) % x.shape[d]) % x.shape[d] if d in moved else i

    return _remap(lx, node, x, lambda index: tuple(place(d, i) for d, i in enumerate(index)))


@lowering("aten.repeat.default")
def repeat(lx: Lowering, node: Any, x: Tensor, repeats: list[int]) -> Any:
    if 0 in x.shape or 0 in repeats:
        return None
    rank = len(x.shape)
    return _remap(
        lx,
        node,
        x,
        lambda index: tuple(i % n for i, n in zip(index[len(index) - rank :], x.shape, strict=True)),
    )


@lowering("aten.repeat_interleave.self_int")
def repeat_interleave(lx: Lowering, node: Any, x: Tensor, count: int, dim: Any = None, **options: Any) -> Any:
    if dim is None or count < 1 or not x.shape:
        return None
    dim %= len(x.shape)
    return _remap(lx, node, x, lambda index: (*index[:dim], index[dim] // count, *index[dim + 1 :]))
