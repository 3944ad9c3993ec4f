"""Batch norm in training: statistics of the batch, the normalised result, new running statistics, and the backward.

    mean, var over all dims but the channels (two passes), in f32 or f64
    y  = x * a + c                    a = weight / sqrt(var + eps), c = bias - mean * a: two numbers a channel
    dx = rstd * weight * (dy - sum(dy) / n - (x - mean) * rstd^2 * sum(dy * (x - mean)) / n)

as ATen's CPU kernels have it. They sum in f64; so does this file where a channel has few values, since with two or four
of them dx is nearly all cancellation, and sums in lanes of f32 elsewhere. Half types are left to ATen, whose
kernels for them round at other places.
"""

from __future__ import annotations

from typing import Any

from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.lower.builder import Lowering, dtype_of
from dyncomp.codegen.lower.reductions import count_of, moments
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Shape, Tensor, may_be_empty

LEAST_VALUES = 2  # a channel; below, eager has words of its own
FEW_VALUES = 1 << 12  # a channel; up to here sums are taken in f64


def _flat_shape(x: Tensor) -> Shape:
    """[N, C, all else]: inner loops as long as they can be."""
    inner = 1
    for size in x.shape[2:]:
        inner *= size
    return (*x.shape[:2], inner)


def _sum_type(count: int) -> str | None:
    return "f64" if count <= FEW_VALUES else None


def _supported(x: Tensor, others: list[Any]) -> bool:
    given = [t for t in others if t is not None]
    plain = x.dtype in ("f32", "f64") and all(t.dtype == x.dtype for t in given)
    return plain and len(x.shape) >= 2 and not may_be_empty(x.shape)


@lowering("aten._native_batch_norm_legit_functional.default")
def functional(
    lx: Lowering, node: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    """(y, mean, rstd, new running mean, new running variance)."""
    if not training or not _supported(x, [weight, bias, mean, var]):
        return None
    out, mean_val, rstd_val, *_ = node.meta["val"]
    found = _forward(lx, x, weight, bias, eps, out, (mean_val, rstd_val))
    if found is None:
        return None
    y, average, rstd, squares, count = found
    channels, kind = (x.shape[1],), x.dtype
    share = float(momentum)

    def moved(b: Builder, old: Value, new: Value) -> Value:
        return b.op("add", b.op("mul", b.const(share, kind), new), b.op("mul", b.const(1 - share, kind), old))

    def spread(b: Builder, old: Value, s: Value) -> Value:
        return moved(b, old, b.cast(b.op("div", s, b.const(float(count - 1), s.dtype)), kind))

    flat = lx.reshape(average, channels), lx.reshape(squares, channels)
    return (
        y, _as(lx, average, mean_val), _as(lx, rstd, rstd_val),
        lx.elementwise(moved, [mean, flat[0]], kind, shape=channels),
        lx.elementwise(spread, [var, flat[1]], kind, shape=channels),
    )  # fmt: skip


@lowering("aten._native_batch_norm_legit.no_stats")
def no_stats(
    lx: Lowering, node: Any, x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    """(y, mean, rstd)."""
    if not training or not _supported(x, [weight, bias]):
        return None
    out, mean_val, rstd_val = node.meta["val"]
    found = _forward(lx, x, weight, bias, eps, out, (mean_val, rstd_val))
    return found and (found[0], _as(lx, found[1], mean_val), _as(lx, found[2], rstd_val))


def _forward(
    lx: Lowering, x: Tensor, weight: Any, bias: Any, eps: float, out: Any, vals: tuple[Any, Any]
) -> tuple[Tensor, Tensor, Tensor, Tensor, int] | None:
    """(y, mean, rstd, sum of squared distances from the mean, values a channel), the middle ones as [1, C, 1]."""
    flat, kind = lx.reshape(x, _flat_shape(x)), x.dtype
    count = count_of(flat, (0, 2))
    if count < LEAST_VALUES or any(dtype_of(val) != kind for val in (out, *vals)):
        return None
    wide = _sum_type(count) or kind
    average, _, squares = moments(lx, flat, (0, 2), wide)
    average = lx.convert(average, kind)

    def inverse(b: Builder, s: Value) -> Value:
        spread = b.op("add", b.op("div", s, b.const(float(count), wide)), b.const(float(eps), wide))
        return b.op("div", b.const(1.0, wide), b.op("sqrt", spread))

    rstd = lx.elementwise(inverse, [squares], kind, shape=squares.shape)
    column = (1, x.shape[1], 1)
    given = [lx.reshape(t, column) for t in (weight, bias) if t is not None]

    def normal(b: Builder, v: Value, m: Value, r: Value, *rest: Value) -> Value:
        values = iter(rest)
        gain = r if weight is None else b.op("mul", r, next(values))
        shift = b.op("neg", b.op("mul", m, gain))
        if bias is not None:
            shift = b.op("sub", next(values), b.op("mul", m, gain))
        return b.op("add", b.op("mul", v, gain), shift)

    y = lx.elementwise(normal, [flat, average, rstd, *given], kind, shape=flat.shape, strides=_flat_strides(out))
    whole = lx.reshape(y, tuple(out.shape), tuple(out.stride()))
    return whole, average, rstd, squares, count


def _flat_strides(val: Any) -> Shape:
    """Strides of [N, C, all else] in memory laid out as `val`: row-major or channels-last."""
    strides = tuple(val.stride())
    return (*strides[:2], strides[-1] if len(strides) > 2 else 1)


def _as(lx: Lowering, kept: Tensor, val: Any) -> Tensor:
    source = lx.reshape(kept, tuple(val.shape))
    return lx.elementwise(lambda b, v: v, [source], source.dtype, shape=val.shape, strides=val.stride())


@lowering("aten.native_batch_norm_backward.default")
def backward(
    lx: Lowering, node: Any, grad: Tensor, x: Tensor, weight: Any, running_mean: Any, running_var: Any,
    mean: Any, rstd: Any, training: bool, eps: float, mask: list[bool],
) -> Any:  # fmt: skip
    """(dx, dweight, dbias) as far as `mask` asks for them."""
    if not training or not _supported(x, [grad, weight, mean, rstd]) or grad.shape != x.shape:
        return None
    if mean is None or rstd is None or mean.shape != (x.shape[1],):
        return None
    vals, kind = node.meta["val"], x.dtype
    if any(v is not None and dtype_of(v) != kind for v in vals):
        return None
    flat, flow = (lx.reshape(t, _flat_shape(x)) for t in (x, grad))
    column = (1, x.shape[1], 1)
    middle, scale = lx.reshape(mean, column), lx.reshape(rstd, column)
    count = float(count_of(flat, (0, 2)))
    wide = _sum_type(int(count)) or kind
    product = lx.elementwise(
        lambda b, g, v, m: b.op("mul", b.op("sub", v, m), g),
        [flow, flat, middle], wide, compute=wide, shape=flat.shape,
    )  # fmt: skip
    total = lx.reduce("sum", lx.convert(flow, wide), (0, 2), True, wide)
    along = lx.reduce("sum", product, (0, 2), True, wide)
    results: list[Any] = [None, None, None]
    if mask[0]:
        given = [] if weight is None else [lx.reshape(weight, column)]

        def finish(b: Builder, g: Value, v: Value, m: Value, r: Value, t: Value, a: Value, *w: Value) -> Value:
            n, s = b.const(count, wide), b.cast(r, wide)
            slope = b.cast(b.op("mul", b.op("mul", b.op("div", a, n), s), s), kind)
            middle_flow = b.cast(b.op("div", t, n), kind)
            rest = b.op("sub", b.op("sub", g, middle_flow), b.op("mul", b.op("sub", v, m), slope))
            return b.op("mul", rest, b.op("mul", r, w[0]) if w else r)

        operands = [flow, flat, middle, scale, total, along, *given]
        dx = lx.elementwise(finish, operands, kind, shape=flat.shape, strides=_flat_strides(vals[0]))
        results[0] = lx.reshape(dx, tuple(vals[0].shape), tuple(vals[0].stride()))
    if mask[1]:
        scaled = lx.elementwise(lambda b, a, r: b.op("mul", a, b.cast(r, wide)), [along, scale], kind, shape=column)
        results[1] = _as(lx, scaled, vals[1])
    if mask[2]:
        results[2] = _as(lx, lx.convert(total, kind), vals[2])
    return tuple(results)
