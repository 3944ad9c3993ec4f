"""Softmax and normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.promotion import FLOATS
from dyncomp.fake.registry import layout, rule
from dyncomp.fake.rules.view import wrap_dim
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import (
    channels_last_strides,
    contiguous_strides,
    has_channels_last_order,
    is_channels_last,
    is_contiguous,
    suggested_strides,
)


@rule("_softmax _log_softmax")
def _softmax(x: TensorMeta, dim: int, half_to_float: bool) -> TensorMeta | None:
    if x.dtype not in FLOATS or half_to_float or wrap_dim(dim, max(x.ndim, 1)) is None:
        return None
    return TensorMeta(x.shape, contiguous_strides(x.shape), x.dtype, x.device)


@rule("native_layer_norm")
def _layer_norm(
    x: TensorMeta, normalized: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[TensorMeta, ...] | None:
    outer = x.ndim - len(normalized)
    given = [p for p in (weight, bias) if p is not None]
    if not normalized or outer < 0 or x.shape[outer:] != tuple(normalized) or any(p.shape != tuple(normalized) for p in given):
        return None
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return None
    stats_shape = x.shape[:outer] + (1,) * len(normalized)
    stats = TensorMeta(stats_shape, contiguous_strides(stats_shape), _stats_dtype(x, given), x.device)
    return (TensorMeta(x.shape, contiguous_strides(x.shape), x.dtype, x.device), stats, stats)


def _stats_dtype(x: TensorMeta, parameters: Sequence[TensorMeta]) -> torch.dtype:
    """The CPU kernels keep statistics in float32 when reduced floats meet float32 parameters."""
    return torch.float32 if any(p.dtype is torch.float32 for p in parameters) else x.dtype


def _batch_norm(x: TensorMeta, parameters: Sequence[Any], training: bool) -> tuple[TensorMeta, ...] | None:
    if x.device.type != "cpu" or x.dtype not in FLOATS or x.ndim < 2:
        return None
    given = [p for p in parameters if p is not None]
    if any(p.shape != (x.shape[1],) or p.dtype not in (x.dtype, torch.float32) for p in given):
        return None
    stats = TensorMeta((x.shape[1],) if training else (0,), (1,), _stats_dtype(x, given), x.device)
    strides = _batch_norm_strides(x, all(is_contiguous(p.shape, p.strides) for p in given))
    return (TensorMeta(x.shape, strides, x.dtype, x.device), stats, stats)


def _batch_norm_strides(x: TensorMeta, others_fit: bool) -> tuple[int, ...]:
    """What is row-major and channels last at once comes out row-major, if nothing else keeps the kernel for whole memory away."""
    if not has_channels_last_order(x.shape, x.strides):
        return contiguous_strides(x.shape)
    row_major = others_fit and is_contiguous(x.shape, x.strides)
    return contiguous_strides(x.shape) if row_major else channels_last_strides(x.shape)


@layout("native_batch_norm_backward")
def _batch_norm_backward(result: Any, grad: TensorMeta, x: TensorMeta, *rest: Any) -> Any:
    if result[0] is None or x.device.type != "cpu":
        return result
    fits = is_contiguous(grad.shape, grad.strides) or is_channels_last(grad.shape, grad.strides)
    fits = fits and has_channels_last_order(grad.shape, grad.strides) == has_channels_last_order(x.shape, x.strides)
    gradient = TensorMeta(x.shape, _batch_norm_strides(x, fits), result[0].dtype, result[0].device)
    return type(result)((gradient, *result[1:]))


@rule("native_batch_norm _native_batch_norm_legit")
def _native_batch_norm(
    x: TensorMeta, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[TensorMeta, ...] | None:
    return _batch_norm(x, (weight, bias, mean, var), training)


@rule("_native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(
    x: TensorMeta, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[TensorMeta, ...] | None:
    return _batch_norm(x, (weight, bias), training)


@rule("_native_batch_norm_legit_no_training")
def _batch_norm_eval(
    x: TensorMeta, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[TensorMeta, ...] | None:
    return _batch_norm(x, (weight, bias, mean, var), False)


@rule("_native_batch_norm_legit_functional")
def _batch_norm_functional(
    x: TensorMeta, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[TensorMeta, ...] | None:
    results = _batch_norm(x, (weight, bias, mean, var), training)
    if results is None:
        return None
    return (*results, *[TensorMeta(s.shape, s.strides, s.dtype, s.device) for s in (mean, var)])


@rule("native_group_norm")
def _group_norm(
    x: TensorMeta, weight: Any, bias: Any, batch: int, channels: int, inner: int, groups: int, eps: float
) -> tuple[TensorMeta, ...] | None:
    given = [p for p in (weight, bias) if p is not None]
    if x.device.type != "cpu" or x.dtype not in FLOATS or x.ndim < 2 or x.shape[:2] != (batch, channels):
        return None
    if groups <= 0 or channels % groups or any(p.shape != (channels,) for p in given) or 0 in x.shape:
        return None
    stats = TensorMeta((batch, groups), (groups, 1), _stats_dtype(x, given), x.device)
    return (
        TensorMeta(x.shape, suggested_strides(x.shape, x.shape, x.strides), x.dtype, x.device),
        stats,
        stats,
    )


@rule("_safe_softmax")
def _safe_softmax(x: TensorMeta, dim: int, dtype: Any = None) -> TensorMeta | None:
    return _softmax(x, dim, False) if dtype in (None, x.dtype) else None


@rule("nll_loss_forward")
def _nll_loss(
    x: TensorMeta, target: TensorMeta, weight: Any, reduction: int, ignore_index: int
) -> tuple[TensorMeta, ...] | None:
    if x.ndim != 2 or target.shape != x.shape[:1] or target.dtype is not torch.int64 or x.dtype not in FLOATS:
        return None
    shape = target.shape if reduction == 0 else ()
    total = TensorMeta((), (), x.dtype, x.device)
    return (TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device), total)
