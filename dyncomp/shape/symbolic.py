"""Helpers for code that handles plain and symbolic numbers alike.

    number_key(torch.SymInt of s0 + 1)  ->  the expression, which hashes;  number_key(5)  ->  5

The engine itself needs sympy, which takes a third of a second to load. Programs without symbolic sizes never do, so
code outside this package reaches the engine through `new_env`, `guard_program` and `value_program` here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dyncomp.shape.int_program import Program

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def new_env(**options: Any) -> ShapeEnv:
    return importlib.import_module("dyncomp.shape.env").ShapeEnv(**options)  # type: ignore[no-any-return]


def guard_program(env: ShapeEnv) -> Program | None:
    """All that a later call's numbers must fulfil to use what was traced; None if nothing."""
    return importlib.import_module("dyncomp.shape.program").guard_program(env)  # type: ignore[no-any-return]


def value_program(env: ShapeEnv, numbers: Sequence[Any]) -> Program:
    """Computes numbers (plain or symbolic, of this env) from the numbers of a call."""
    exprs = [env.expr_of(number) for number in numbers]
    return importlib.import_module("dyncomp.shape.program").value_program(env, exprs)  # type: ignore[no-any-return]


def is_symbolic(value: Any) -> bool:
    return isinstance(value, SYMBOLIC)


def number_key(value: Any) -> Hashable:
    """Equal for equal numbers; torch's symbolic numbers have no hash of their own."""
    return value.node.expr if isinstance(value, SYMBOLIC) else value  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """The number itself where the facts have pinned it."""
    if not isinstance(value, torch.SymInt):
        return value
    known = value.node.maybe_as_int()
    return value if known is None else known


def env_of(values: Iterable[Any]) -> ShapeEnv | None:
    """The env of the first symbolic number among these."""
    return next((value.node.shape_env for value in values if isinstance(value, SYMBOLIC)), None)


def layout_of(
    env: ShapeEnv,
    sizes: Sequence[int],
    strides: Sequence[int],
    size_at: Callable[[int], Any],
    stride_origin: Callable[[int], Hashable],
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Sizes and strides of an outside tensor. `size_at(dim)` gives the size, symbolic or plain.

    A stride is written with the sizes inside it where it fits (`stride(0) == size(1) * stride(1)`, which is then
    guarded), so that contiguous stays contiguous at all sizes; else it is the plain number, in the tensor's spec.
    """
    shape = tuple([size_at(dim) for dim in range(len(sizes))])
    steps: dict[int, Any] = {}
    # Innermost first; among equal strides (dimensions of size 1) the one further back.
    for dim in sorted(range(len(sizes)), key=lambda d: (strides[d], -d)):
        steps[dim] = strides[dim]
        if strides[dim] <= 1:
            continue
        for inner, step in list(steps.items())[:-1][::-1]:
            if sizes[inner] * strides[inner] == strides[dim] and is_symbolic(product := shape[inner] * step):
                steps[dim] = product
                env.require_equal(stride_origin(dim), product)
                break
    return shape, tuple([steps[dim] for dim in range(len(sizes))])
