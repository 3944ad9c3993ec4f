"""Backward formulas of activations, softmax, layer norm and group norm, as ATen's CPU kernels compute them.

In half types ATen computes in f32 and rounds the result, as `result` does.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.types import FLOATS, HALVES, compute_type
from dyncomp.codegen.lower.builder import Lowering, dtype_of, number
from dyncomp.codegen.lower.pointwise import result
from dyncomp.codegen.lower.reductions import count_of, dims_of
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Tensor, contiguous_strides, may_be_empty


def _floats(*tensors: Any) -> bool:
    return all(isinstance(t, Tensor) and compute_type(t.dtype) in FLOATS for t in tensors)


def _one_minus(b: Builder, v: Value) -> Value:
    return b.op("sub", b.const(1.0, v.dtype), v)


# ---- activations


@lowering("aten.threshold_backward.default")
def threshold(lx: Lowering, node: Any, grad: Tensor, x: Tensor, bound: float) -> Any:
    if not _floats(grad, x):
        return None

    def compute(b: Builder, g: Value, v: Value) -> Value:
        return b.op("where", b.op("le", v, b.const(float(bound), v.dtype)), b.const(0.0, g.dtype), g)

    return result(lx, node, compute, [grad, x], dtype_of(node.meta["val"]))


@lowering("aten.tanh_backward.default")
def tanh(lx: Lowering, node: Any, grad: Tensor, y: Tensor) -> Any:
    if not _floats(grad, y):
        return None
    formula = lambda b, g, v: b.op("mul", g, _one_minus(b, b.op("mul", v, v)))  # noqa: E731
    return result(lx, node, formula, [grad, y], dtype_of(node.meta["val"]))


@lowering("aten.sigmoid_backward.default")
def sigmoid(lx: Lowering, node: Any, grad: Tensor, y: Tensor) -> Any:
    if not _floats(grad, y):
        return None
    formula = lambda b, g, v: b.op("mul", b.op("mul", g, _one_minus(b, v)), v)  # noqa: E731
    return result(lx, node, formula, [grad, y], dtype_of(node.meta["val"]))


@lowering("aten.silu_backward.default")
def silu(lx: Lowering, node: Any, grad: Tensor, x: Tensor) -> Any:
    if not _floats(grad, x):
        return None

    def compute(b: Builder, g: Value, v: Value) -> Value:
        s = b.op("sigmoid", v)
        slope = b.op("add", b.const(1.0, v.dtype), b.op("mul", v, _one_minus(b, s)))
        return b.op("mul", b.op("mul", g, s), slope)

    return result(lx, node, compute, [grad, x], dtype_of(node.meta["val"]))


@lowering("aten.gelu_backward.default")
def gelu(lx: Lowering, node: Any, grad: Tensor, x: Tensor, approximate: str = "none") -> Any:
    if not _floats(grad, x):
        return None
    formula = _gelu_by_tanh if approximate == "tanh" else _gelu_exact
    return result(lx, node, formula, [grad, x], dtype_of(node.meta["val"]))


def _gelu_exact(b: Builder, g: Value, v: Value) -> Value:
    def const(number: float) -> Value:
        return b.const(number, v.dtype)

    cdf = b.op("mul", const(0.5), b.op("add", const(1.0), b.op("erf", b.op("mul", v, const(math.sqrt(0.5))))))
    bell = b.op("exp", b.op("mul", const(-0.5), b.op("mul", v, v)))
    density = b.op("mul", const(1 / math.sqrt(2 * math.pi)), bell)
    return b.op("mul", g, b.op("add", cdf, b.op("mul", v, density)))


def _gelu_by_tanh(b: Builder, g: Value, v: Value) -> Value:
    def const(number: float) -> Value:
        return b.const(number, v.dtype)

    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    square = b.op("mul", v, v)
    inner = b.op("mul", const(beta), b.op("add", v, b.op("mul", const(kappa), b.op("mul", square, v))))
    t = b.op("tanh", inner)
    left = b.op("mul", const(0.5), b.op("add", const(1.0), t))
    slope = b.op("mul", const(beta), b.op("add", const(1.0), b.op("mul", const(3 * kappa), square)))
    right = b.op("mul", b.op("mul", b.op("mul", const(0.5), v), _one_minus(b, b.op("mul", t, t))), slope)
    return b.op("mul", g, b.op("add", left, right))


@lowering("aten.hardtanh_backward.default")
def hardtanh(lx: Lowering, node: Any, grad: Tensor, x: Tensor, low: float, high: float) -> Any:
    if not _floats(grad, x):
        return None

    def compute(b: Builder, g: Value, v: Value) -> Value:
        outside = b.op("or", b.op("le", v, b.const(float(low), v.dtype)), b.op("ge", v, b.const(float(high), v.dtype)))
        return b.op("where", outside, b.const(0.0, g.dtype), g)

    return result(lx, node, compute, [grad, x], dtype_of(node.meta["val"]))


@lowering("aten.leaky_relu_backward.default")
def leaky_relu(lx: Lowering, node: Any, grad: Tensor, x: Tensor, slope: float, is_result: bool) -> Any:
    if not _floats(grad, x):
        return None

    def compute(b: Builder, g: Value, v: Value) -> Value:
        positive = b.op("gt", v, b.const(0.0, v.dtype))
        return b.op("where", positive, g, b.op("mul", g, b.const(float(slope), g.dtype)))

    return result(lx, node, compute, [grad, x], dtype_of(node.meta["val"]))


# ---- over a dimension


@lowering("aten._softmax_backward_data.default")
def softmax(lx: Lowering, node: Any, grad: Tensor, y: Tensor, dim: int, input_dtype: Any) -> Any:
    val = node.meta["val"]
    out = dtype_of(val)
    if not _floats(grad, y) or out is None or grad.dtype in HALVES or y.dtype in HALVES or 0 in y.shape:
        return None
    kind = compute_type(out)
    product = lx.elementwise(lambda b, g, v: b.op("mul", g, v), [grad, y], kind, compute=kind, shape=y.shape)
    total = lx.reduce("sum", product, dims_of(y, dim), True, kind)
    return lx.elementwise(
        lambda b, g, v, s: b.op("mul", b.op("sub", g, s), v),
        [grad, y, total], out, compute=kind, shape=val.shape, strides=val.stride(),
    )  # fmt: skip


@lowering("aten._log_softmax_backward_data.default")
def log_softmax(lx: Lowering, node: Any, grad: Tensor, y: Tensor, dim: int, input_dtype: Any) -> Any:
    val = node.meta["val"]
    out = dtype_of(val)
    if not _floats(grad, y) or out is None or grad.dtype in HALVES or y.dtype in HALVES or 0 in y.shape:
        return None
    kind = compute_type(out)
    total = lx.reduce("sum", lx.convert(grad, kind), dims_of(y, dim), True, kind)
    return lx.elementwise(
        lambda b, g, v, s: b.op("sub", g, b.op("mul", b.op("exp", v), s)),
        [grad, y, total], out, compute=kind, shape=val.shape, strides=val.stride(),
    )  # fmt: skip


@lowering("aten.native_layer_norm_backward.default")
def layer_norm(
    lx: Lowering, node: Any, grad: Tensor, x: Tensor, normalized: list[int], mean: Tensor, rstd: Tensor,
    weight: Any, bias: Any, mask: list[bool],
) -> Any:  # fmt: skip
    """dx = rstd * (h - mean(h) - n * mean(h * n)) with h = grad * weight and n = (x - mean) * rstd."""
    vals = node.meta["val"]
    given = [t for t in (grad, x, mean, rstd, weight) if t is not None]
    if not _floats(*given) or any(t.dtype in HALVES for t in given) or 0 in x.shape:
        return None
    rank, kind = len(x.shape), compute_type(x.dtype)
    rows = tuple(range(rank - len(normalized)))
    inner = tuple(range(len(rows), rank))
    normal = lx.elementwise(
        lambda b, v, m, s: b.op("mul", b.op("sub", v, m), s), [x, mean, rstd], kind, compute=kind, shape=x.shape
    )
    weighted = lx.elementwise(lambda b, g, n: b.op("mul", g, n), [grad, normal], kind, compute=kind, shape=x.shape)
    results: list[Any] = [None, None, None]
    if mask[0]:
        results[0] = _layer_norm_input(lx, vals[0], grad, normal, weighted, rstd, weight, inner)
    for position, source in ((1, weighted), (2, lx.convert(grad, kind))):
        if mask[position]:
            val = vals[position]
            total = lx.reduce("sum", source, rows, False, kind) if rows else source
            results[position] = lx.elementwise(
                lambda b, v: v, [total], dtype_of(val) or kind, shape=val.shape, strides=val.stride()
            )
    return tuple(results)


def _layer_norm_input(
    lx: Lowering, val: Any, grad: Tensor, normal: Tensor, weighted: Tensor, rstd: Tensor, weight: Any,
    inner: tuple[int, ...],
) -> Tensor:  # fmt: skip
    kind = compute_type(normal.dtype)
    count = count_of(normal, inner)

    def scaled(source: Tensor) -> Tensor:
        if weight is None:
            return lx.convert(source, kind)
        return lx.elementwise(
            lambda b, g, w: b.op("mul", g, w), [source, weight], kind, compute=kind, shape=normal.shape
        )

    flow = scaled(grad)
    plain = lx.reduce("sum", flow, inner, True, kind)
    along = lx.reduce("sum", scaled(weighted), inner, True, kind)

    def finish(b: Builder, h: Value, n: Value, s: Value, p: Value, a: Value) -> Value:
        size = number(b, count, kind)
        drift = b.op("add", b.op("div", p, size), b.op("mul", n, b.op("div", a, size)))
        return b.op("mul", s, b.op("sub", h, drift))

    operands = [flow, normal, rstd, plain, along]
    return lx.elementwise(finish, operands, dtype_of(val) or kind, compute=kind, shape=val.shape, strides=val.stride())


@lowering("aten.native_group_norm_backward.default")
def group_norm(
    lx: Lowering, node: Any, grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Any, batch: int,
    channels: int, inner: int, groups: int, mask: list[bool],
) -> Any:  # fmt: skip
    """As layer norm over the channels of a group and all positions; `mean` and `rstd` are [N, groups]."""
    vals = node.meta["val"]
    given = [t for t in (grad, x, mean, rstd, weight) if t is not None]
    if not _floats(*given) or len({t.dtype for t in given}) > 1 or x.dtype in HALVES or may_be_empty(x.shape):
        return None
    kind, each = compute_type(x.dtype), channels // groups
    split = (batch, groups, each, inner)
    row = (batch, groups, 1, 1)
    flow, data = lx.reshape(grad, split), lx.reshape(x, split)
    middle, scale = lx.reshape(mean, row), lx.reshape(rstd, row)
    normal = lx.elementwise(
        lambda b, v, m, s: b.op("mul", b.op("sub", v, m), s), [data, middle, scale], kind, shape=split
    )
    weighted = lx.elementwise(lambda b, g, n: b.op("mul", g, n), [flow, normal], kind, shape=split)
    results: list[Any] = [None, None, None]
    if mask[0]:
        gain = None if weight is None else lx.reshape(weight, (groups, each, 1))
        dense = _FlatVal(split, contiguous_strides(split), vals[0].dtype)
        dx = _layer_norm_input(lx, dense, flow, normal, weighted, scale, gain, (2, 3))
        whole = lx.reshape(dx, tuple(x.shape), contiguous_strides(tuple(x.shape)))
        if tuple(vals[0].stride()) != whole.strides:
            whole = lx.elementwise(lambda b, v: v, [whole], kind, shape=x.shape, strides=vals[0].stride())
        results[0] = whole
    for position, source in ((1, weighted), (2, flow)):
        if mask[position]:
            val = vals[position]
            total = lx.reshape(lx.reduce("sum", source, (0, 3), False, kind), (channels,))
            results[position] = lx.elementwise(lambda b, v: v, [total], kind, shape=val.shape, strides=val.stride())
    return tuple(results)


@dataclasses.dataclass(frozen=True)
class _FlatVal:
    """Metadata of a result in another shape than its node has."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def stride(self) -> tuple[int, ...]:
        return self.strides
