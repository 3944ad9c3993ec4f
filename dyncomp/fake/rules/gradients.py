"""Gradient formulas of activations, losses and norms: over operands that are row-major and agree, as nearly always.

    aten.gelu_backward(grad, x), both f32[s0, 64] over strides (64, 1)   ->   f32[s0, 64] over strides (64, 1)

Other operands are left to the meta kernels, which for symbolic sizes are slow: each runs a decomposition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.promotion import FLOATS
from dyncomp.fake.registry import register, rule
from dyncomp.fake.rules.view import wrap_dim
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import contiguous_strides, elementwise_strides
from dyncomp.shape.symbolic import number_key

_INDICES = (torch.int32, torch.int64)


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """The same numbers whatever the sizes are; asks no question."""
    return len(a) == len(b) and all(x is y or number_key(x) == number_key(y) for x, y in zip(a, b, strict=True))


def _is_row_major(x: TensorMeta) -> bool:
    return _equal(x.strides, contiguous_strides(x.shape))


def _agree(*tensors: Any) -> bool:
    """Row-major tensors of one shape, float type and device."""
    first = tensors[0]
    return all(
        type(t) is TensorMeta
        and t.dtype is first.dtype
        and t.dtype in FLOATS
        and t.device == first.device
        and _equal(t.shape, first.shape)
        and _is_row_major(t)
        for t in tensors
    )


def _row_major(shape: Sequence[int], like: TensorMeta) -> TensorMeta:
    return TensorMeta(tuple(shape), contiguous_strides(shape), like.dtype, like.device)


def _of_two(grad: Any, x: Any, *args: Any, **kwargs: Any) -> TensorMeta | None:
    """An activation's: of its gradient and what came in or out."""
    return _row_major(x.shape, x) if _agree(grad, x) else None


register(
    "gelu_backward silu_backward tanh_backward sigmoid_backward threshold_backward hardtanh_backward mish_backward "
    "leaky_relu_backward hardswish_backward hardsigmoid_backward softplus_backward",
    _of_two,
)


@rule("hardshrink_backward softshrink_backward")
def _shrunk(grad: TensorMeta, x: TensorMeta, lambd: float) -> TensorMeta | None:
    if x.dtype not in FLOATS or x.dtype is not grad.dtype or x.device != grad.device or not _equal(grad.shape, x.shape):
        return None
    return TensorMeta(x.shape, elementwise_strides(x.shape, [(grad.shape, grad.strides), (x.shape, x.strides)]), x.dtype, x.device)


@rule("native_dropout_backward")
def _dropout(grad: TensorMeta, mask: TensorMeta, scale: float) -> TensorMeta | None:
    alike = _agree(grad) and mask.dtype is torch.bool and mask.device == grad.device
    return _row_major(grad.shape, grad) if alike and _equal(mask.shape, grad.shape) and _is_row_major(mask) else None


@rule("_softmax_backward_data _log_softmax_backward_data")
def _softmax(grad: TensorMeta, output: TensorMeta, dim: int, input_dtype: torch.dtype) -> TensorMeta | None:
    alike = _agree(grad, output) and input_dtype is grad.dtype
    return _row_major(grad.shape, grad) if alike and wrap_dim(dim, max(grad.ndim, 1)) is not None else None


@rule("native_layer_norm_backward")
def _layer_norm(
    grad: TensorMeta,
    x: TensorMeta,
    normalized: Sequence[int],
    mean: TensorMeta,
    rstd: TensorMeta,
    weight: Any,
    bias: Any,
    output_mask: Sequence[bool],
) -> tuple[TensorMeta, ...] | None:
    if x.device.type != "cpu" or not all(output_mask) or not _agree(grad, x) or not _agree(weight, bias):
        return None
    if weight.dtype is not x.dtype or weight.device != x.device or not _equal(weight.shape, normalized):
        return None
    outer = x.ndim - len(normalized)
    if outer < 0 or not _equal(x.shape[outer:], normalized):
        return None
    return tuple([_row_major(t.shape, t) for t in (x, weight, bias)])


@rule("native_group_norm_backward")
def _group_norm(
    grad: TensorMeta, x: TensorMeta, mean: TensorMeta, rstd: TensorMeta, weight: Any, n: int, c: int, hw: int, group: int,
    output_mask: Sequence[bool],
) -> tuple[TensorMeta | None, ...] | None:  # fmt: skip
    if x.device.type != "cpu" or not _agree(grad, x) or not _agree(mean, rstd) or weight is None and any(output_mask[1:]):
        return None
    if weight is not None and not (_agree(weight) and weight.dtype is x.dtype and weight.device == x.device):
        return None
    return tuple([_row_major(t.shape, t) if asked else None for t, asked in zip((x, weight, weight), output_mask, strict=True)])


@rule("mse_loss_backward smooth_l1_loss_backward huber_loss_backward")
def _loss(grad: TensorMeta, x: TensorMeta, target: TensorMeta, reduction: int, *args: Any) -> TensorMeta | None:
    """Eager fills row-major zeros of the input's shape, whatever the layouts are."""
    if not (x.dtype is target.dtype is grad.dtype) or x.dtype not in FLOATS or not (x.device == target.device == grad.device):
        return None
    if not _equal(x.shape, target.shape) or not (_equal(grad.shape, x.shape) or reduction != 0 and grad.shape == ()):
        return None
    return _row_major(x.shape, x)


@rule("multi_margin_loss_backward multilabel_margin_loss_backward")
def _margin_loss(grad: TensorMeta, x: TensorMeta, target: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta | None:
    """Eager fills row-major zeros of the input's shape, whatever the layouts are."""
    return _row_major(x.shape, x) if x.dtype in FLOATS and x.dtype is grad.dtype and x.device == grad.device == target.device else None


@rule("nll_loss_backward")
def _nll_loss(
    grad: TensorMeta,
    x: TensorMeta,
    target: TensorMeta,
    weight: Any,
    reduction: int,
    ignore_index: int,
    total_weight: TensorMeta,
) -> TensorMeta | None:
    alike = _agree(x) and _agree(grad) and grad.dtype is x.dtype and grad.device == x.device == target.device
    if not alike or x.ndim != 2 or target.dtype is not torch.int64 or total_weight.shape != ():
        return None
    if not _equal(target.shape, x.shape[:1]) or not _equal(grad.shape, target.shape if reduction == 0 else ()):
        return None
    if weight is not None and not (_agree(weight) and _equal(weight.shape, x.shape[1:])):
        return None
    return _row_major(x.shape, x)


@rule("embedding_dense_backward")
def _embedding(
    grad: TensorMeta, indices: TensorMeta, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> TensorMeta | None:
    alike = _agree(grad) and indices.dtype in _INDICES and indices.device == grad.device
    if not alike or not grad.ndim or not _equal(grad.shape[:-1], indices.shape):
        return None
    return _row_major((num_weights, grad.shape[-1]), grad)
