"""Conversions and copies. A conversion to a half type rounds where the program asks for it, although
values stay in f32 in the kernel."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.codegen.ir.types import FROM_TORCH
from dyncomp.codegen.lower.builder import Lowering, dtype_of
from dyncomp.codegen.lower.pointwise import result
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.rounding import cast_to
from dyncomp.codegen.lower.tensor import Tensor


def _convert(lx: Lowering, node: Any, x: Tensor) -> Any:
    target = dtype_of(node.meta["val"])
    if target is None or node.meta["val"].device.type != "cpu":
        return None
    return result(lx, node, lambda b, v: cast_to(b, v, x.dtype, target), [x], None)


@lowering("aten._to_copy.default")
def to_copy(lx: Lowering, node: Any, x: Tensor, **options: Any) -> Any:
    return _convert(lx, node, x)


@lowering("aten.clone.default", "aten.lift_fresh_copy.default")
def clone(lx: Lowering, node: Any, x: Tensor, memory_format: Any = None) -> Any:
    return _convert(lx, node, x)


@lowering("aten.contiguous.default")
def contiguous(lx: Lowering, node: Any, x: Tensor, memory_format: Any = None) -> Any:
    return _convert(lx, node, x)


@lowering("prims.convert_element_type.default")
def convert_element_type(lx: Lowering, node: Any, x: Tensor, dtype: torch.dtype) -> Any:
    return _convert(lx, node, x) if dtype in FROM_TORCH else None


@lowering("aten.copy.default")
def copy(lx: Lowering, node: Any, target: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    """`target` gives shape and type alone."""
    dtype = dtype_of(node.meta["val"])
    if dtype is None:
        return None
    return result(lx, node, lambda b, v: cast_to(b, v, source.dtype, dtype), [source], None)
