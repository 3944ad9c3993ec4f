"""Elementwise operations, as tables: how the dtype follows, which dtypes the rule answers for.

A dtype outside of a rule's domain (complex numbers always) is left to the meta kernel, which also knows what
eager refuses.
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.elementwise import elementwise, laid_out
from dyncomp.fake.promotion import (
    BOOLS,
    FLOATS,
    FLOATS_INTEGERS,
    INTEGERS_BOOLS,
    REALS,
    result_dtype,
    to_float,
)
from dyncomp.fake.registry import register, register_layout, rule
from dyncomp.fake.rules.like import preserved
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import broadcast, contiguous_strides, is_contiguous, preserved_strides, same_shape

_NUMBERS = frozenset({int, float, bool, torch.SymInt, torch.SymFloat})


def _unary(names: str, domain: frozenset[torch.dtype], dtype_of: Any) -> None:
    def shape(x: Any, *args: Any, **kwargs: Any) -> TensorMeta | None:
        if type(x) is not TensorMeta or x.dtype not in domain:
            return None
        dtype = dtype_of(x.dtype)
        return elementwise((x,), dtype, computed_in=x.dtype if dtype is torch.bool else dtype)

    register(names, shape, elementwise=True)
    register_layout(names, unary_layout)


def unary_layout(result: TensorMeta, x: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta:
    """Of one operand that is computed in the result's dtype, unless the result is a truth or drops an imaginary part."""
    return laid_out(result, (x,), common=x.dtype if x.dtype.is_complex or result.dtype is torch.bool else None)


def _allocated(names: str, domain: frozenset[torch.dtype], dtype_of: Any) -> None:
    """Not the iterator's layout: eager allocates the result as `empty_like` does, then fills it."""

    def shape(x: Any, *args: Any, **kwargs: Any) -> TensorMeta | None:
        if type(x) is not TensorMeta or x.dtype not in domain:
            return None
        return preserved(x, dtype_of(x.dtype))

    register(names, shape, elementwise=True)
    register_layout(names, lambda result, x, *args, **kwargs: preserved(x, result.dtype))


def _binary(names: str, domain: frozenset[torch.dtype], dtype_of: Any, turned: bool = False) -> None:
    """`turned`: eager computes with the second operand first."""

    def shape(x: Any, y: Any, alpha: Any = 1) -> TensorMeta | None:
        if turned:
            x, y = y, x
        tensors = [t for t in (x, y) if type(t) is TensorMeta]
        if len(tensors) < 2 and type(x if type(y) is TensorMeta else y) not in _NUMBERS:
            return None
        if any(t.dtype not in domain for t in tensors):
            return None
        common = result_dtype((x, y))
        if common not in domain or (type(alpha) is float and common not in FLOATS) or type(alpha) is bool:
            return None
        dtype = dtype_of(common)
        computed_in = common if dtype is torch.bool else dtype
        return elementwise(tensors, dtype, with_number=len(tensors) < 2, computed_in=computed_in)

    register(names, shape, elementwise=True)
    register_layout(names, _turned_layout if turned else binary_layout)


def _turned_layout(result: TensorMeta, x: Any, y: Any, *args: Any, **kwargs: Any) -> TensorMeta:
    return binary_layout(result, y, x)


def binary_layout(result: TensorMeta, x: Any, y: Any, *args: Any, **kwargs: Any) -> TensorMeta:
    """Of two operands that are computed in their common dtype, one of them perhaps a number."""
    tensors = [t for t in (x, y) if type(t) is TensorMeta]
    common = result_dtype((x, y)) if result.dtype is torch.bool else None
    return laid_out(result, tensors, with_number=len(tensors) < 2, common=common)


def _same(dtype: torch.dtype) -> torch.dtype:
    return dtype


def _bool(dtype: torch.dtype) -> torch.dtype:
    return torch.bool


_unary(
    "acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh exp exp2 expm1 log log2 log10 log1p sqrt "
    "rsqrt erf erfc erfinv sigmoid reciprocal lgamma digamma",
    REALS,
    to_float,
)
_unary("neg relu floor ceil trunc round threshold", FLOATS_INTEGERS, _same)
_unary("abs sign sgn", FLOATS_INTEGERS, _same)
_allocated("nan_to_num", FLOATS_INTEGERS, _same)
_allocated("hardtanh", FLOATS_INTEGERS - {torch.uint8}, _same)
_allocated("deg2rad rad2deg", REALS, to_float)
_unary("silu gelu mish hardswish hardsigmoid leaky_relu elu softplus frac", FLOATS, _same)
_unary("bitwise_not", INTEGERS_BOOLS, _same)
_unary("logical_not", REALS, _bool)
_unary("isnan", REALS, _bool)

_binary("add.Tensor add.Scalar mul.Tensor mul.Scalar maximum minimum fmax fmin", REALS, _same)
_binary("sub.Tensor sub.Scalar", FLOATS_INTEGERS, _same)
_binary("rsub.Tensor rsub.Scalar", FLOATS_INTEGERS, _same, turned=True)
_binary("remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar floor_divide", FLOATS_INTEGERS, _same)
_binary("xlogy.Tensor", FLOATS, _same)
_binary("div.Tensor div.Scalar true_divide.Tensor atan2", REALS, to_float)
_binary("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", INTEGERS_BOOLS, _same)
_binary("bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar", INTEGERS_BOOLS, _same)
_binary("logical_and logical_or logical_xor", REALS, _bool)
_binary(
    "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor eq.Scalar ne.Scalar lt.Scalar le.Scalar "
    "gt.Scalar ge.Scalar",
    REALS,
    _bool,
)
_binary("pow.Tensor_Tensor hypot logaddexp logaddexp2 nextafter", FLOATS, _same)
_binary("copysign.Tensor copysign.Scalar", FLOATS, _same)


@rule("isinf")
def _isinf(x: TensorMeta) -> TensorMeta | None:
    if x.dtype in FLOATS:  # abs(x) == inf
        size = elementwise((x,), x.dtype)
        return size and elementwise((size,), torch.bool, with_number=True)
    return None if x.dtype.is_complex else preserved(x, torch.bool)


@rule("pow.Scalar")
def _pow_of_number(base: Any, exponent: TensorMeta) -> TensorMeta | None:
    if exponent.dtype not in FLOATS or type(base) not in _NUMBERS or base == 1:
        return None
    # Not the iterator's layout: eager asks for a row-major result here.
    strides = contiguous_strides(exponent.shape)
    return TensorMeta(exponent.shape, strides, result_dtype((base, exponent)), exponent.device)


@rule("div.Tensor_mode div.Scalar_mode")
def _divide(x: Any, y: Any, *, rounding_mode: str | None) -> TensorMeta | None:
    tensors = [t for t in (x, y) if type(t) is TensorMeta]
    if len(tensors) < 2 and type(x if type(y) is TensorMeta else y) not in _NUMBERS:
        return None
    if any(t.dtype not in FLOATS_INTEGERS for t in tensors):
        return None
    common = result_dtype((x, y))
    dtype = to_float(common) if rounding_mode is None else common
    return elementwise(tensors, dtype, with_number=len(tensors) < 2)


@rule("pow.Tensor_Scalar")
def _pow(x: TensorMeta, exponent: Any) -> TensorMeta | None:
    if x.dtype not in FLOATS_INTEGERS or type(exponent) not in _NUMBERS:
        return None
    if x.dtype not in FLOATS and (type(exponent) is not float and exponent < 0 or type(exponent) is bool):
        return None
    dtype = result_dtype((x, exponent))
    return elementwise((x,), dtype, computed_in=dtype)


@rule("clamp clamp_min clamp_max")
def _clamp(x: TensorMeta, *bounds: Any, **named: Any) -> TensorMeta | None:
    limits = [b for b in (*bounds, *named.values()) if b is not None]
    if x.dtype not in FLOATS_INTEGERS or any(type(b) not in _NUMBERS for b in limits) or not limits:
        return None
    dtype = result_dtype((x, *limits))
    return elementwise((x,), dtype, computed_in=dtype)


@rule("clamp.Tensor clamp_min.Tensor clamp_max.Tensor")
def _clamp_by_tensors(x: TensorMeta, *bounds: Any, **named: Any) -> TensorMeta | None:
    tensors = [t for t in (x, *bounds, *named.values()) if t is not None]
    if any(t.dtype not in FLOATS_INTEGERS for t in tensors) or len(tensors) < 2:
        return None
    dtype = result_dtype(tensors)
    return elementwise(tensors, dtype, computed_in=dtype)


@rule("where.self")
def _where(condition: TensorMeta, x: TensorMeta, y: TensorMeta) -> TensorMeta | None:
    if condition.dtype not in BOOLS or x.dtype not in REALS or y.dtype not in REALS:
        return None
    return elementwise((condition, x, y), result_dtype((x, y)))


@rule("addcmul addcdiv")
def _add_product(x: TensorMeta, a: TensorMeta, b: TensorMeta, *, value: Any = 1) -> TensorMeta | None:
    if any(t.dtype not in FLOATS for t in (x, a, b)):
        return None
    return elementwise((x, a, b), result_dtype((x, a, b)))


@rule("lerp.Scalar lerp.Tensor")
def _lerp(x: TensorMeta, end: TensorMeta, weight: Any) -> TensorMeta | None:
    tensors = [t for t in (x, end, weight) if type(t) is TensorMeta]
    if any(t.dtype != x.dtype or t.dtype not in FLOATS for t in tensors):
        return None
    return elementwise(tensors, x.dtype)


@rule("log_sigmoid_forward")
def _log_sigmoid(x: TensorMeta) -> tuple[TensorMeta, TensorMeta] | None:
    if x.dtype not in FLOATS or x.device.type != "cpu":
        return None
    result = TensorMeta(x.shape, contiguous_strides(x.shape), x.dtype, x.device)
    return result, result


@rule("masked_fill.Scalar masked_fill.Tensor")
def _masked_fill(x: TensorMeta, mask: TensorMeta, value: Any) -> TensorMeta | None:
    shape = broadcast([x.shape, mask.shape])
    if shape is None or mask.dtype not in BOOLS or x.dtype not in FLOATS or mask.device != x.device:
        return None
    if type(value) is complex or type(value) is TensorMeta and (value.shape or value.dtype not in REALS):
        return None
    return TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device)


@rule("smooth_l1_loss")
def _smooth_l1_loss(x: TensorMeta, target: TensorMeta, reduction: int = 1, beta: float = 1.0) -> TensorMeta | None:
    if reduction != 0 or x.dtype not in FLOATS or x.dtype != target.dtype or not same_shape(x.shape, target.shape):
        return None
    if not all(is_contiguous(m.shape, m.strides) for m in (x, target)):
        return None
    return TensorMeta(x.shape, contiguous_strides(x.shape), x.dtype, x.device)


@rule("huber_loss")
def _huber_loss(x: TensorMeta, target: TensorMeta, reduction: int = 1, delta: float = 1.0) -> TensorMeta | None:
    if reduction != 0 or x.dtype not in FLOATS or x.dtype != target.dtype or not same_shape(x.shape, target.shape):
        return None
    return TensorMeta(x.shape, preserved_strides(x.shape, x.strides), x.dtype, x.device)
