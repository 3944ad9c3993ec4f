"""Tensors made from numbers: full, zeros, ones, arange, eye and their `_like` forms. They cost nothing
inside a kernel."""

from __future__ import annotations

from typing import Any

from dyncomp.codegen.ir.index import Index
from dyncomp.codegen.ir.nodes import Value
from dyncomp.codegen.ir.real import Real
from dyncomp.codegen.ir.types import FLOATS, compute_type
from dyncomp.codegen.lower.builder import Lowering, dtype_of, number
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Indices, Scope


def _filled(lx: Lowering, node: Any, value: Any) -> Any:
    val = node.meta["val"]
    dtype = dtype_of(val)
    if dtype is None or val.device.type != "cpu" or isinstance(value, complex):
        return None
    kind = compute_type(dtype)
    if isinstance(value, Real) and kind not in FLOATS:
        return None
    if isinstance(value, Index) and kind not in FLOATS and kind != "i64":
        return None
    if kind not in FLOATS and isinstance(value, float) and not value.is_integer():
        return None
    return lx.compute(val.shape, dtype, lambda scope, index: number(scope.b, value, kind), [], val.stride())


@lowering("aten.full.default")
def full(lx: Lowering, node: Any, size: Any, value: Any, **options: Any) -> Any:
    return _filled(lx, node, value)


@lowering("aten.full_like.default", "aten.fill.Scalar")
def full_like(lx: Lowering, node: Any, x: Any, value: Any, **options: Any) -> Any:
    return _filled(lx, node, value)


@lowering("aten.new_full.default")
def new_full(lx: Lowering, node: Any, x: Any, size: Any, value: Any, **options: Any) -> Any:
    return _filled(lx, node, value)


@lowering("aten.scalar_tensor.default")
def scalar_tensor(lx: Lowering, node: Any, value: Any, **options: Any) -> Any:
    return _filled(lx, node, value)


@lowering("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default")
def zeros(lx: Lowering, node: Any, *args: Any, **options: Any) -> Any:
    return _filled(lx, node, 0)


@lowering("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(lx: Lowering, node: Any, *args: Any, **options: Any) -> Any:
    return _filled(lx, node, 1)


@lowering("aten.arange.start_step", "aten.arange.start", "aten.arange.default")
def arange(lx: Lowering, node: Any, *bounds: Any, **options: Any) -> Any:
    """Integers alone: float steps accumulate in their own way in ATen."""
    val = node.meta["val"]
    dtype = dtype_of(val)
    start = bounds[0] if len(bounds) > 1 else 0
    step = bounds[2] if len(bounds) > 2 else options.get("step", 1)
    if dtype is None or val.device.type != "cpu" or not all(isinstance(v, (int, Index)) for v in (*bounds, step)):
        return None

    def body(scope: Scope, index: Indices) -> Value:
        return scope.b.cast(scope.b.position(index[0] * step + start), compute_type(dtype))

    return lx.compute(val.shape, dtype, body, [], val.stride())


@lowering("aten.eye.default", "aten.eye.m")
def eye(lx: Lowering, node: Any, *sizes: int, **options: Any) -> Any:
    val = node.meta["val"]
    dtype = dtype_of(val)
    if dtype is None or val.device.type != "cpu":
        return None

    def body(scope: Scope, index: Indices) -> Value:
        b = scope.b
        return b.cast(b.op("eq", b.position(index[0] - index[1]), b.const(0, "i64")), compute_type(dtype))

    return lx.compute(val.shape, dtype, body, [], val.stride())
