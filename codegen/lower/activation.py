"""Activation functions, each with the formula that ATen's CPU kernel uses. NaN passes through all of them."""

from __future__ import annotations

import functools
import math
from typing import Any

from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.types import FLOATS, compute_type
from dyncomp.codegen.lower.builder import Lowering, number
from dyncomp.codegen.lower.pointwise import result
from dyncomp.codegen.lower.registry import Lower, lowering


def clamp_low(b: Builder, value: Value, low: float) -> Value:
    """max(value, low) that keeps NaN and the sign of zero."""
    bound = b.const(low, value.dtype)
    return b.op("where", b.op("lt", value, bound), bound, value)


def clamp_high(b: Builder, value: Value, high: float) -> Value:
    bound = b.const(high, value.dtype)
    return b.op("where", b.op("gt", value, bound), bound, value)


def _sigmoid(b: Builder, v: Value) -> Value:
    return b.op("sigmoid", v)


def on_floats(lower: Lower) -> Lower:
    """Integers are left to ATen, which refuses them."""

    @functools.wraps(lower)
    def checked(lx: Lowering, node: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        return lower(lx, node, x, *args, **kwargs) if compute_type(x.dtype) in FLOATS else None

    return checked


@lowering("aten.relu.default")
def relu(lx: Lowering, node: Any, x: Any) -> Any:
    zero = 0.0 if compute_type(x.dtype) in FLOATS else 0
    return None if x.dtype == "bool" else result(lx, node, lambda b, v: clamp_low(b, v, zero), [x], x.dtype)


@lowering("aten.gelu.default")
@on_floats
def gelu(lx: Lowering, node: Any, x: Any, approximate: str = "none") -> Any:
    def exact(b: Builder, v: Value) -> Value:
        cdf = b.op("add", b.const(1.0, v.dtype), b.op("erf", b.op("mul", v, b.const(math.sqrt(0.5), v.dtype))))
        return b.op("mul", b.op("mul", v, b.const(0.5, v.dtype)), cdf)

    def by_tanh(b: Builder, v: Value) -> Value:
        cube = b.op("mul", b.op("mul", v, v), v)
        poly = b.op("add", v, b.op("mul", b.const(0.044715, v.dtype), cube))
        inner = b.op("mul", b.const(math.sqrt(2.0 / math.pi), v.dtype), poly)
        half = b.op("mul", b.const(0.5, v.dtype), v)
        return b.op("mul", half, b.op("add", b.const(1.0, v.dtype), b.op("tanh", inner)))

    return result(lx, node, by_tanh if approximate == "tanh" else exact, [x], x.dtype)


@lowering("aten.silu.default")
@on_floats
def silu(lx: Lowering, node: Any, x: Any) -> Any:
    return result(lx, node, lambda b, v: b.op("mul", v, _sigmoid(b, v)), [x], x.dtype)


@lowering("aten.mish.default")
@on_floats
def mish(lx: Lowering, node: Any, x: Any) -> Any:
    return result(lx, node, lambda b, v: b.op("mul", v, b.op("tanh", b.op("log1p", b.op("exp", v)))), [x], x.dtype)


@lowering("aten.hardtanh.default")
@on_floats
def hardtanh(lx: Lowering, node: Any, x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    return result(lx, node, lambda b, v: clamp_high(b, clamp_low(b, v, min_val), max_val), [x], x.dtype)


@lowering("aten.hardsigmoid.default")
@on_floats
def hardsigmoid(lx: Lowering, node: Any, x: Any) -> Any:
    return result(lx, node, lambda b, v: b.op("div", _relu6_shifted(b, v), b.const(6.0, v.dtype)), [x], x.dtype)


@lowering("aten.hardswish.default")
@on_floats
def hardswish(lx: Lowering, node: Any, x: Any) -> Any:
    def compute(b: Builder, v: Value) -> Value:
        return b.op("div", b.op("mul", v, _relu6_shifted(b, v)), b.const(6.0, v.dtype))

    return result(lx, node, compute, [x], x.dtype)


def _relu6_shifted(b: Builder, v: Value) -> Value:
    return clamp_high(b, clamp_low(b, b.op("add", v, b.const(3.0, v.dtype)), 0.0), 6.0)


@lowering("aten.leaky_relu.default")
@on_floats
def leaky_relu(lx: Lowering, node: Any, x: Any, negative_slope: float = 0.01) -> Any:
    def compute(b: Builder, v: Value) -> Value:
        scaled = b.op("mul", v, number(b, negative_slope, v.dtype))
        return b.op("where", b.op("gt", v, b.const(0.0, v.dtype)), v, scaled)

    return result(lx, node, compute, [x], x.dtype)


@lowering("aten.elu.default")
@on_floats
def elu(lx: Lowering, node: Any, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    def compute(b: Builder, v: Value) -> Value:
        def c(value: float) -> Value:
            return number(b, value, v.dtype)

        factor = alpha if scale == 1 else alpha * scale
        negative = b.op("mul", b.op("expm1", b.op("mul", v, c(input_scale))), c(factor))
        return b.op("where", b.op("lt", v, c(0.0)), negative, b.op("mul", v, c(scale)))

    return result(lx, node, compute, [x], x.dtype)


@lowering("aten.softplus.default")
@on_floats
def softplus(lx: Lowering, node: Any, x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    def compute(b: Builder, v: Value) -> Value:
        scaled = b.op("mul", v, number(b, beta, v.dtype))
        soft = b.op("div", b.op("log1p", b.op("exp", scaled)), number(b, beta, v.dtype))
        return b.op("where", b.op("gt", scaled, number(b, threshold, v.dtype)), v, soft)

    return result(lx, node, compute, [x], x.dtype)


@lowering("aten.threshold.default")
@on_floats
def threshold(lx: Lowering, node: Any, x: Any, limit: float, value: float) -> Any:
    def compute(b: Builder, v: Value) -> Value:
        return b.op("where", b.op("le", v, number(b, limit, v.dtype)), number(b, value, v.dtype), v)

    return result(lx, node, compute, [x], x.dtype)
