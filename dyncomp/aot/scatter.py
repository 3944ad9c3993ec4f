"""Write-back through views: the new value of a base, given the new value of one of its views.

    base, view = base.select(0, 1), new value v of the view   ->   select_scatter(base, v, 0, 1)
    base, view = base.permute(2, 0, 1), v                     ->   v.permute(1, 2, 0)

Each rule gets (emit, base node, new view node, the view's arguments after the base, index among several
results) and returns the node of the new base.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.aot.tape import Node

aten = torch.ops.aten
Emit = Callable[..., Node]
Rule = Callable[..., Node]


def _identity(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return new


def _reshape_back(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return reshape(emit, new, base.meta.shape)


def _same_again(op: torch._ops.OpOverload) -> Rule:
    """For views that undo themselves with the same arguments."""

    def rule(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
        return emit(op, (new, *args))

    return rule


def _permute_back(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    order = [dim % len(args[0]) for dim in args[0]]
    inverse = [order.index(dim) for dim in range(len(order))]
    return emit(aten.permute.default, (new, inverse))


def _expand_back(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    if new.meta.shape[len(new.meta.shape) - len(base.meta.shape) :] != base.meta.shape or any(
        size != 1 for size in new.meta.shape[: len(new.meta.shape) - len(base.meta.shape)]
    ):
        raise Unsupported("an in-place write to an expanded tensor")
    return reshape(emit, new, base.meta.shape)


def _slice(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return emit(aten.slice_scatter.default, (base, new, *args))


def _select(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return emit(aten.select_scatter.default, (base, new, *args))


def _diagonal(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return emit(aten.diagonal_scatter.default, (base, new, *args))


def _as_strided(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return emit(aten.as_strided_scatter.default, (base, new, *args))


def _unbind(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return emit(aten.select_scatter.default, (base, new, args[0] if args else 0, index))


def _split(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    dim = args[1] if len(args) > 1 else 0
    sizes = args[0]
    assert index is not None
    start = sum(sizes[:index]) if isinstance(sizes, (list, tuple)) else sizes * index
    return emit(aten.slice_scatter.default, (base, new, dim, start, start + new.meta.shape[dim]))


def _dtype_back(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return emit(aten.view.dtype, (new, base.meta.dtype))


def _real_back(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return emit(aten.view_as_complex.default, (new,))


def _complex_back(emit: Emit, base: Node, new: Node, args: tuple[Any, ...], index: int | None) -> Node:
    return emit(aten.view_as_real.default, (new,))


def reshape(emit: Emit, node: Node, shape: Any) -> Node:
    """`node` in another shape: a view where its memory allows, else a copy."""
    if node.meta.shape == tuple(shape):
        return node
    try:
        return emit(aten.view.default, (node, list(shape)))
    except RuntimeError:
        dense = emit(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
        return emit(aten.view.default, (dense, list(shape)))


_RULES: dict[Any, Rule] = {
    aten.detach.default: _identity,
    aten.alias.default: _identity,
    aten.lift_fresh.default: _identity,
    aten.view.default: _reshape_back,
    aten._reshape_alias.default: _reshape_back,
    aten.unsqueeze.default: _reshape_back,
    aten.squeeze.default: _reshape_back,
    aten.squeeze.dim: _reshape_back,
    aten.squeeze.dims: _reshape_back,
    aten.expand.default: _expand_back,
    aten.t.default: _same_again(aten.t.default),
    aten.transpose.int: _same_again(aten.transpose.int),
    aten.permute.default: _permute_back,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.diagonal.default: _diagonal,
    aten.as_strided.default: _as_strided,
    aten.unbind.int: _unbind,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.view.dtype: _dtype_back,
    aten.view_as_real.default: _real_back,
    aten.view_as_complex.default: _complex_back,
}


def scatter(
    emit: Emit, op: torch._ops.OpOverload, base: Node, new: Node, args: tuple[Any, ...], index: int | None
) -> Node:
    """The base's new value after its view by `op` became `new`."""
    rule = _RULES.get(op)
    if rule is None:
        raise Unsupported(f"an in-place write through the view {op}")
    return rule(emit, base, new, args, index)
