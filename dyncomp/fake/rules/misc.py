"""Operations whose meta kernel describes another device's layout than the CPU kernel gives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.errors import NoShapeRule, OtherLayout
from dyncomp.fake.registry import register, rule
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import broadcast, contiguous_strides, same_shape


@rule("nonzero_static")
def _nonzero_static(x: TensorMeta, *, size: int, fill_value: int = -1) -> TensorMeta | None:
    if x.device.type != "cpu" or size < 0:
        return None
    shape = (size, x.ndim)
    return TensorMeta(shape, contiguous_strides(shape), torch.int64, x.device)


@rule("normal.Tensor_Tensor")
def _normal(mean: TensorMeta, std: TensorMeta, *, generator: Any = None) -> TensorMeta | None:
    shape = broadcast([mean.shape, std.shape])
    if shape is None or mean.dtype != std.dtype:
        return None
    return TensorMeta(shape, contiguous_strides(shape), mean.dtype, mean.device)


@rule("_sample_dirichlet _standard_gamma_grad _dirichlet_grad binomial")
def _like_the_first(x: TensorMeta, *rest: Any, generator: Any = None) -> TensorMeta | None:
    """Samplers of torch.distributions, and their gradients, that have no meta kernel: row-major, whatever their arguments are."""
    others = [other for other in rest if isinstance(other, TensorMeta)]
    if x.device.type != "cpu" or not all(same_shape(other.shape, x.shape) and other.dtype == x.dtype for other in others):
        return None
    return TensorMeta(x.shape, contiguous_strides(x.shape), x.dtype, x.device)


@rule("nll_loss2d_forward")
def _nll_loss2d(
    x: TensorMeta, target: TensorMeta, weight: Any, reduction: int, ignore_index: int
) -> tuple[TensorMeta, ...] | None:
    if x.ndim != 4 or target.shape != (x.shape[0], *x.shape[2:]) or target.dtype is not torch.int64:
        return None
    shape = target.shape if reduction == 0 else ()
    total = TensorMeta((), (), x.dtype, x.device)
    return (TensorMeta(shape, contiguous_strides(shape), x.dtype, x.device), total)


def _plain(x: TensorMeta) -> bool:
    """Row-major, dimensions of size 1 included."""
    return same_shape(x.strides, contiguous_strides(x.shape))


def _real_transform(x: TensorMeta, dims: Sequence[int], *rest: Any) -> None:
    """Only the plain case of a transform along the innermost dimension is laid out as the meta kernel
    says.
    """
    if len(dims) != 1 or dims[0] not in (-1, x.ndim - 1) or not _plain(x):
        raise NoShapeRule("aten._fft", "the memory layout of this transform is not known")


def _complex_transform(x: TensorMeta, dims: Sequence[int], *rest: Any) -> None:
    """Dimensions are sorted by their strides: of equal ones the meta kernel does not know eager's order."""
    if any(same_shape((a,), (b,)) for a, b in itertools.combinations(x.strides, 2)):
        raise NoShapeRule("aten._fft", "the memory layout of this transform is not known")


register("_fft_r2c _fft_c2r", _real_transform)
register("_fft_c2c", _complex_transform)


def _refuse(names: str, reason: str) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NoShapeRule(names, reason)

    register(names, refuse)


# Lazy views: their bits are not among the metadata that a fake carries.
_refuse("_conj _neg_view", "lazy conjugates and negatives are not tracked")
_refuse("resize resize_as", "it replaces the memory of a tensor")
for _name in (
    "_linalg_svd",
    "linalg_eig",
    "_linalg_eigvals",
    "max_unpool2d",
    "_batch_norm_with_update",
    "_embedding_bag",  # the sizes of its helper results depend on the path that the kernel takes
    "_embedding_bag_forward_only",
):
    _refuse(_name, "the memory layout of its result is not known")


def _makes_another_layout(name: str) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OtherLayout(f"aten.{name}", "the result is no strided tensor")

    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        if not overload.endswith("out"):
            register(f"{name}.{overload}", refuse)


for _name in """
    to_sparse to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc
    _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc
    sparse_coo_tensor sparse_compressed_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor
    _sparse_coo_tensor_unsafe _sparse_compressed_tensor_unsafe _sparse_csr_tensor_unsafe _sparse_csc_tensor_unsafe
    _sparse_bsr_tensor_unsafe _sparse_bsc_tensor_unsafe _sparse_coo_tensor_with_dims
    _sparse_coo_tensor_with_dims_and_tensors _sparse_compressed_tensor_with_dims sparse_mask to_mkldnn
""".split():
    _makes_another_layout(_name)
