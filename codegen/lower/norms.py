"""Normalisations: layer norm, group norm, batch norm with given statistics, RMS norm. Two passes over a
row: mean, then variance."""

from __future__ import annotations

import math
from typing import Any

from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.types import FLOATS, compute_type
from dyncomp.codegen.lower.builder import Lowering, dtype_of, number
from dyncomp.codegen.lower.reductions import count_of, moments
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Shape, Tensor, may_be_empty


def _rstd(lx: Lowering, squares: Tensor, count: int, eps: float, kind: str) -> Tensor:
    """1 / sqrt(variance + eps), dims kept."""

    def compute(b: Builder, s: Value) -> Value:
        spread = b.op("add", b.op("div", s, number(b, count, kind)), number(b, eps, kind))
        return b.op("div", b.const(1.0, kind), b.op("sqrt", spread))

    return lx.elementwise(compute, [squares], kind, shape=squares.shape)


def _affine(b: Builder, value: Value, scale: Value | None, shift: Value | None) -> Value:
    if scale is not None:
        value = b.op("mul", value, b.cast(scale, value.dtype))
    return value if shift is None else b.op("add", value, b.cast(shift, value.dtype))


def _normalised(
    lx: Lowering,
    centred: Tensor,
    rstd: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    out: tuple[str, Shape, Shape],
) -> Tensor:
    dtype, shape, strides = out
    extras = [t for t in (scale, shift) if t is not None]

    def compute(b: Builder, d: Value, r: Value, *rest: Value) -> Value:
        values = iter(rest)
        gain = next(values) if scale is not None else None
        return _affine(b, b.op("mul", d, r), gain, next(values) if shift is not None else None)

    return lx.elementwise(compute, [centred, rstd, *extras], dtype, shape=shape, strides=strides)


def _statistic(lx: Lowering, kept: Tensor, val: Any) -> Tensor:
    """Mean or rstd as the op returns it beside the result."""
    source = lx.reshape(kept, val.shape) if kept.shape != tuple(val.shape) else kept
    dtype = dtype_of(val)
    assert dtype is not None
    return lx.elementwise(lambda b, v: v, [source], dtype, shape=val.shape, strides=val.stride())


@lowering("aten.native_layer_norm.default")
def layer_norm(lx: Lowering, node: Any, x: Tensor, normalized: list[int], weight: Any, bias: Any, eps: float) -> Any:
    out, mean_val, rstd_val = node.meta["val"]
    dtype = dtype_of(out)
    if dtype is None or compute_type(dtype) not in FLOATS or may_be_empty(x.shape):
        return None
    rank = len(x.shape)
    dims = tuple(range(rank - len(normalized), rank))
    kind = compute_type(dtype)
    average, centred, squares = moments(lx, x, dims, kind)
    rstd = _rstd(lx, squares, count_of(x, dims), eps, kind)
    y = _normalised(lx, centred, rstd, weight, bias, (dtype, tuple(out.shape), tuple(out.stride())))
    return y, _statistic(lx, average, mean_val), _statistic(lx, rstd, rstd_val)


@lowering("aten.native_group_norm.default")
def group_norm(
    lx: Lowering,
    node: Any,
    x: Tensor,
    weight: Any,
    bias: Any,
    batch: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
) -> Any:
    out, mean_val, rstd_val = node.meta["val"]
    dtype = dtype_of(out)
    if dtype is None or compute_type(dtype) not in FLOATS or may_be_empty(x.shape):
        return None
    each = channels // groups
    split = (batch, groups, each, *x.shape[2:])
    dims = tuple(range(2, len(split)))
    kind = compute_type(dtype)
    average, centred, squares = moments(lx, lx.reshape(x, split), dims, kind)
    rstd = _rstd(lx, squares, count_of(lx.reshape(x, split), dims), eps, kind)
    per_channel = (groups, each) + (1,) * (len(x.shape) - 2)
    scale, shift = (None if t is None else lx.reshape(t, per_channel) for t in (weight, bias))
    steps = tuple(out.stride())
    layout = (steps[0], steps[1] * each, *steps[1:])
    y = _normalised(lx, centred, rstd, scale, shift, (dtype, split, layout))
    whole = lx.reshape(y, tuple(out.shape), steps)
    return whole, _statistic(lx, average, mean_val), _statistic(lx, rstd, rstd_val)


def _batch_norm_inference(
    lx: Lowering, out: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, eps: float
) -> Tensor | None:
    """x * a + c with a = weight / sqrt(var + eps) and c = bias - mean * a a channel: two small tensors
    computed once."""
    dtype = dtype_of(out)
    if dtype is None or compute_type(dtype) not in FLOATS:
        return None
    kind = compute_type(dtype)
    channels = (x.shape[1],)
    gain_inputs = [var] if weight is None else [var, weight]

    def gain(b: Builder, v: Value, *w: Value) -> Value:
        root = b.op("sqrt", b.op("add", v, number(b, eps, kind)))
        inverse = b.op("div", b.const(1.0, kind), root)
        return b.op("mul", inverse, w[0]) if w else inverse

    scale = lx.elementwise(gain, gain_inputs, kind, compute=kind, shape=channels)
    shift_inputs = [mean, scale] if bias is None else [mean, scale, bias]

    def offset(b: Builder, m: Value, a: Value, *c: Value) -> Value:
        product = b.op("mul", m, a)
        return b.op("sub", c[0], product) if c else b.op("neg", product)

    shift = lx.elementwise(offset, shift_inputs, kind, compute=kind, shape=channels)
    per_channel = (channels[0],) + (1,) * (len(x.shape) - 2)
    return lx.elementwise(
        lambda b, v, a, c: b.op("add", b.op("mul", v, a), c),
        [x, lx.reshape(scale, per_channel), lx.reshape(shift, per_channel)],
        dtype,
        compute=kind,
        shape=out.shape,
        strides=out.stride(),
    )


def _empty_statistics(lx: Lowering, vals: Any) -> list[Tensor] | None:
    """The statistics that inference does not compute come back empty."""
    if any(math.prod(v.shape) for v in vals):
        return None
    return [lx.compute(v.shape, dtype_of(v) or "f32", lambda s, i: s.b.const(0.0, "f32"), []) for v in vals]


@lowering("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    lx: Lowering,
    node: Any,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> Any:
    out, *rest = node.meta["val"]
    extras = _empty_statistics(lx, rest)
    y = _batch_norm_inference(lx, out, x, weight, bias, mean, var, eps)
    return None if y is None or extras is None else (y, *extras)


@lowering("aten.native_batch_norm.default")
def batch_norm(
    lx: Lowering,
    node: Any,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if training or mean is None or var is None:
        return None
    return batch_norm_no_training(lx, node, x, weight, bias, mean, var, momentum, eps)


@lowering("aten.batch_norm.default")
def batch_norm_composite(
    lx: Lowering,
    node: Any,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> Any:
    if training or mean is None or var is None:
        return None
    return _batch_norm_inference(lx, node.meta["val"], x, weight, bias, mean, var, eps)


@lowering("aten.layer_norm.default")
def layer_norm_composite(
    lx: Lowering,
    node: Any,
    x: Tensor,
    normalized: list[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:
    out = node.meta["val"]
    dtype = dtype_of(out)
    if dtype is None or compute_type(dtype) not in FLOATS or may_be_empty(x.shape):
        return None
    rank = len(x.shape)
    dims = tuple(range(rank - len(normalized), rank))
    kind = compute_type(dtype)
    _, centred, squares = moments(lx, x, dims, kind)
    rstd = _rstd(lx, squares, count_of(x, dims), eps, kind)
    return _normalised(lx, centred, rstd, weight, bias, (dtype, tuple(out.shape), tuple(out.stride())))


@lowering("aten._fused_rms_norm.default", "aten.rms_norm.default")
def rms_norm(lx: Lowering, node: Any, x: Tensor, normalized: list[int], weight: Any = None, eps: Any = None) -> Any:
    vals = node.meta["val"]
    out = vals[0] if isinstance(vals, (tuple, list)) else vals
    dtype = dtype_of(out)
    if dtype is None or compute_type(dtype) not in FLOATS or may_be_empty(x.shape) or eps is None:
        return None
    kind = compute_type(dtype)
    rank = len(x.shape)
    dims = tuple(range(rank - len(normalized), rank))
    wide = lx.convert(x, kind)
    squares = lx.elementwise(lambda b, v: b.op("mul", v, v), [wide], kind, shape=x.shape)
    rstd = _rstd(lx, lx.reduce("sum", squares, dims, True, kind), count_of(x, dims), eps, kind)
    y = _normalised(lx, wide, rstd, weight, None, (dtype, tuple(out.shape), tuple(out.stride())))
    return (y, _statistic(lx, rstd, vals[1])) if isinstance(vals, (tuple, list)) else y
