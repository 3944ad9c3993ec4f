"""Backward formulas of the less common activations, as ATen's CPU kernels compute them. See `gradients` for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.types import FLOATS, HALVES, compute_type
from dyncomp.codegen.lower.builder import Lowering, broadcast_shapes, dtype_of
from dyncomp.codegen.lower.pointwise import result
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Tensor

Formula = Callable[[Builder, Value, Value], Value]


def _backward(lx: Lowering, node: Any, formula: Formula, grad: Tensor, x: Tensor) -> Any:
    """`formula(b, gradient, element)`, both of one float type, at every place."""
    if compute_type(grad.dtype) not in FLOATS or grad.dtype != x.dtype:
        return None
    return result(lx, node, formula, [grad, x], dtype_of(node.meta["val"]))


def _c(b: Builder, number: float, like: Value) -> Value:
    return b.const(float(number), like.dtype)


@lowering("aten.elu_backward.default")
def elu(
    lx: Lowering, node: Any, grad: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Any:
    """Also of selu and celu. From the result y: y + alpha * scale is alpha * scale * exp(x * input_scale)."""
    negative = float(alpha) * float(scale)

    def compute(b: Builder, g: Value, v: Value) -> Value:
        below = b.op("mul", g, _c(b, input_scale, v))
        if is_result:
            below = b.op("mul", below, b.op("add", v, _c(b, negative, v)))
        else:
            power = b.op("exp", b.op("mul", v, _c(b, input_scale, v)))
            below = b.op("mul", b.op("mul", below, _c(b, negative, v)), power)
        return b.op("where", b.op("gt", v, _c(b, 0.0, v)), b.op("mul", g, _c(b, scale, v)), below)

    return _backward(lx, node, compute, grad, x)


@lowering("aten.softplus_backward.default")
def softplus(lx: Lowering, node: Any, grad: Tensor, x: Tensor, beta: float, threshold: float) -> Any:
    def compute(b: Builder, g: Value, v: Value) -> Value:
        scaled = b.op("mul", v, _c(b, beta, v))
        z = b.op("exp", scaled)
        bent = b.op("div", b.op("mul", g, z), b.op("add", z, _c(b, 1.0, v)))
        return b.op("where", b.op("gt", scaled, _c(b, threshold, v)), g, bent)

    return _backward(lx, node, compute, grad, x)


@lowering("aten.hardswish_backward.default")
def hardswish(lx: Lowering, node: Any, grad: Tensor, x: Tensor) -> Any:
    def compute(b: Builder, g: Value, v: Value) -> Value:
        middle = b.op("mul", g, b.op("add", b.op("div", v, _c(b, 3.0, v)), _c(b, 0.5, v)))
        upper = b.op("where", b.op("ge", v, _c(b, 3.0, v)), g, middle)
        return b.op("where", b.op("le", v, _c(b, -3.0, v)), _c(b, 0.0, v), upper)

    return _backward(lx, node, compute, grad, x)


@lowering("aten.hardsigmoid_backward.default")
def hardsigmoid(lx: Lowering, node: Any, grad: Tensor, x: Tensor) -> Any:
    def compute(b: Builder, g: Value, v: Value) -> Value:
        inside = b.op("and", b.op("gt", v, _c(b, -3.0, v)), b.op("lt", v, _c(b, 3.0, v)))
        return b.op("where", inside, b.op("mul", g, _c(b, 1 / 6, v)), _c(b, 0.0, v))

    return _backward(lx, node, compute, grad, x)


@lowering("aten.softshrink_backward.default", "aten.hardshrink_backward.default")
def shrink(lx: Lowering, node: Any, grad: Tensor, x: Tensor, bound: float) -> Any:
    def compute(b: Builder, g: Value, v: Value) -> Value:  # NaN counts as inside, as in ATen's vector code
        outside = b.op("or", b.op("lt", v, _c(b, -float(bound), v)), b.op("gt", v, _c(b, bound, v)))
        return b.op("where", outside, g, _c(b, 0.0, v))

    return _backward(lx, node, compute, grad, x)


@lowering("aten.mish_backward.default")
def mish(lx: Lowering, node: Any, grad: Tensor, x: Tensor) -> Any:
    def compute(b: Builder, g: Value, v: Value) -> Value:
        t = b.op("tanh", b.op("log1p", b.op("exp", v)))
        slope = b.op("mul", b.op("mul", v, b.op("sigmoid", v)), b.op("sub", _c(b, 1.0, v), b.op("mul", t, t)))
        return b.op("mul", g, b.op("add", t, slope))

    return _backward(lx, node, compute, grad, x)


@lowering("aten.log_sigmoid_backward.default")
def log_sigmoid(lx: Lowering, node: Any, grad: Tensor, x: Tensor, buffer: Tensor) -> Any:
    """`buffer` holds exp(-|x|)."""
    if compute_type(grad.dtype) not in FLOATS or grad.dtype != x.dtype or buffer.shape != x.shape:
        return None

    def compute(b: Builder, g: Value, v: Value, z: Value) -> Value:
        below = b.op("lt", v, _c(b, 0.0, v))
        sign = b.op("where", below, _c(b, 1.0, v), _c(b, -1.0, v))
        most = b.op("where", below, _c(b, 1.0, v), _c(b, 0.0, v))
        part = b.op("div", z, b.op("add", _c(b, 1.0, v), z))
        return b.op("mul", b.op("sub", most, b.op("mul", sign, part)), g)

    return result(lx, node, compute, [grad, x, buffer], dtype_of(node.meta["val"]))


@lowering("aten._prelu_kernel_backward.default")
def prelu(lx: Lowering, node: Any, grad: Tensor, x: Tensor, weight: Tensor) -> Any:
    """Gradients of x and, not yet summed, of the weight."""
    vals = node.meta["val"]
    dtype = dtype_of(vals[0])
    if dtype is None or compute_type(dtype) not in FLOATS or dtype in HALVES:
        return None
    if broadcast_shapes([grad.shape, x.shape, weight.shape]) != x.shape:
        return None

    def of_x(b: Builder, g: Value, v: Value, w: Value) -> Value:
        return b.op("where", b.op("gt", v, _c(b, 0.0, v)), g, b.op("mul", w, g))

    def of_weight(b: Builder, g: Value, v: Value) -> Value:
        return b.op("where", b.op("gt", v, _c(b, 0.0, v)), _c(b, 0.0, v), b.op("mul", v, g))

    first, second = vals
    return (
        lx.elementwise(of_x, [grad, x, weight], dtype, compute=dtype, shape=first.shape, strides=first.stride()),
        lx.elementwise(of_weight, [grad, x], dtype, compute=dtype, shape=second.shape, strides=second.stride()),
    )
