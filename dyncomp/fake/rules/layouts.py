"""Layouts of results whose shape, dtype and errors torch's meta kernel tells, but not how eager lays them out.

    aten.gcd(x, y), both (1, 10, 5) over strides (7, 1, 10)   ->   strides (7, 1, 10); the meta kernel says (10, 1, 10)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyncomp.fake.elementwise import laid_out
from dyncomp.fake.registry import layout, register_layout
from dyncomp.fake.rules.like import preserved, row_major
from dyncomp.fake.rules.pointwise import binary_layout, unary_layout
from dyncomp.fake.rules.view import wrap_dim
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import suggested_strides


def _iterated(result: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta:
    """Eager's elementwise iterator over the tensors, in their order."""
    tensors = [value for value in (*args, *kwargs.values()) if type(value) is TensorMeta]
    return laid_out(result, tensors)


def _uncast(result: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta:
    """The same of operands that are not converted to the result's dtype."""
    tensors = [value for value in (*args, *kwargs.values()) if type(value) is TensorMeta]
    return laid_out(result, tensors, common=tensors[0].dtype)


def _like_first(result: Any, x: TensorMeta, *args: Any, **kwargs: Any) -> Any:
    """Eager fills what `empty_like` gives for the first argument."""
    if type(result) is tuple:
        return tuple([preserved(x, item.dtype) for item in result])
    return preserved(x, result.dtype)


def _filled(result: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta:
    """Eager fills fresh memory in row-major order."""
    return row_major(result)


register_layout(
    "polygamma hardshrink softshrink clamp.Tensor clamp_min.Tensor clamp_max.Tensor", _iterated, elementwise=True
)
register_layout("complex polar signbit", _uncast, elementwise=True)
register_layout("angle logit isneginf isposinf", unary_layout, elementwise=True)
register_layout(
    "bitwise_left_shift.Tensor bitwise_right_shift.Tensor gcd lcm heaviside igamma igammac special_xlog1py "
    "special_zeta",
    binary_layout,
    elementwise=True,
)
_POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h "
    "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t "
    "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
)
register_layout(" ".join([f"special_{name}" for name in _POLYNOMIALS.split()]), binary_layout, elementwise=True)
register_layout("_prelu_kernel frexp.Tensor", _like_first, elementwise=True)
register_layout("randint_like randint_like.low_dtype index_put fill.Scalar fill.Tensor log_sigmoid_backward", _like_first)
register_layout(
    "masked_fill.Scalar masked_fill.Tensor diag_embed renorm grid_sampler_2d grid_sampler_3d "
    "isin.Tensor_Tensor isin.Tensor_Scalar im2col col2im "
    "normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor "
    "glu_backward _softmax_backward_data _log_softmax_backward_data index_add index_copy",
    _filled,
)


def _result_first(result: Any, grad: TensorMeta, x: TensorMeta, *args: Any, **kwargs: Any) -> Any:
    """Eager's iterator comes to what went in before it comes to the gradient."""
    operands = (x, *[value for value in args if type(value) is TensorMeta], grad)
    return tuple([laid_out(one, operands) for one in result]) if type(result) is tuple else laid_out(result, operands)


register_layout(
    "gelu_backward silu_backward tanh_backward sigmoid_backward mish_backward hardtanh_backward hardswish_backward "
    "hardsigmoid_backward softplus_backward elu_backward logit_backward",
    _iterated,
)
register_layout("threshold_backward leaky_relu_backward _prelu_kernel_backward", _result_first)


@layout("native_layer_norm_backward")
def _of_layers(result: Any, *args: Any, **kwargs: Any) -> Any:
    return result if result[0] is None else type(result)((row_major(result[0]), *result[1:]))


@layout("reflection_pad2d_backward replication_pad2d_backward")
def _of_padded_images(result: TensorMeta, grad: TensorMeta, x: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta:
    return TensorMeta(result.shape, suggested_strides(result.shape, x.shape, x.strides), result.dtype, result.device)


@layout("rrelu_with_noise_backward")
def _leaking_backward(
    result: TensorMeta, grad: TensorMeta, x: TensorMeta, noise: TensorMeta, lower: float, upper: float, training: bool, *args: Any
) -> TensorMeta:
    return laid_out(result, (noise, grad) if training and upper - lower > 1e-6 else (x, grad))


def _losses_of_elements(result: TensorMeta, x: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta:
    """One loss an element; a mean or a sum has no layout."""
    return preserved(x) if result.shape == x.shape else result


def _losses_of_logits(result: TensorMeta, x: TensorMeta, target: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta:
    """Eager computes in place in `1 - target`, so its dtype is the result's; not so the meta kernel of torch 2.11."""
    if result.shape == target.shape:
        return preserved(target)
    return TensorMeta(result.shape, result.strides, target.dtype, result.device)


def _iterated_losses(
    result: TensorMeta, x: TensorMeta, target: TensorMeta, reduction: int = 1, *args: Any, **kwargs: Any
) -> TensorMeta:
    return laid_out(result, (x, target)) if reduction == 0 else result


@layout("binary_cross_entropy_backward")
def _of_entropies(result: TensorMeta, grad: TensorMeta, x: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta:
    return preserved(x)


register_layout("mse_loss smooth_l1_loss", _iterated_losses, elementwise=True)
register_layout("binary_cross_entropy", _losses_of_elements, elementwise=True)
register_layout("binary_cross_entropy_with_logits", _losses_of_logits, elementwise=True)


@layout("glu")
def _gated(result: TensorMeta, x: TensorMeta, dim: int = -1) -> TensorMeta:
    half = TensorMeta(result.shape, x.strides, x.dtype, x.device)
    return laid_out(result, (half, half))


@layout("native_dropout_backward")
def _masked_and_scaled(result: TensorMeta, grad: TensorMeta, mask: TensorMeta, scale: float) -> TensorMeta:
    masked = laid_out(result, (grad, mask))
    return laid_out(result, (masked,), with_number=True)


def _scaled_by_power(result: TensorMeta, x: TensorMeta, exponent: TensorMeta) -> TensorMeta:
    return laid_out(result, (x, row_major(exponent)))


register_layout("ldexp.Tensor", _scaled_by_power, elementwise=True)


@layout("linalg_matrix_exp")
def _matrix_exponential(result: TensorMeta, x: TensorMeta) -> TensorMeta:
    """Of 1 x 1 matrices eager takes the exponential of the elements."""
    return laid_out(result, (x,)) if x.shape[-1] == 1 else result


@layout("rot90")
def _turned(result: TensorMeta, x: TensorMeta, k: int = 1, dims: Sequence[int] = (0, 1)) -> TensorMeta:
    """Eager flips, and swaps two dimensions of what that gives."""
    if k % 4 == 0:
        return row_major(x)
    flipped = preserved(x)
    if k % 4 == 2:
        return flipped
    order = list(range(x.ndim))
    a, b = (wrap_dim(dim, x.ndim) for dim in dims)
    assert a is not None and b is not None
    order[a], order[b] = b, a
    return TensorMeta(result.shape, tuple([flipped.strides[d] for d in order]), x.dtype, x.device)
