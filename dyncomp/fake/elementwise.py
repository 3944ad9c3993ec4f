"""The result of elementwise operations: broadcast shape, strides as eager's iterator chooses them, device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import Ints, broadcast, elementwise_strides, preserved_strides, same_shape


def elementwise(
    tensors: Sequence[TensorMeta],
    dtype: torch.dtype,
    with_number: bool = False,
    computed_in: torch.dtype | None = None,
) -> TensorMeta | None:
    """Metadata of the result; None where eager may refuse, so that the meta kernel raises its error.

    `with_number`: a Python number is one of the iterator's operands. It counts as a zero-dimensional tensor,
    which takes eager off its fast path for operands of one shape. `computed_in`: the common dtype; eager copies
    a CPU operand of another dtype first, and the copy of an expanded tensor has strides of its own.
    """
    first = tensors[0]
    shape = first.shape
    for other in tensors[1:]:
        if not same_shape(other.shape, shape):
            common = broadcast([t.shape for t in tensors])
            if common is None:
                raise RuntimeError(size_mismatch([t.shape for t in tensors]))
            shape = common
            break
    device = common_device(tensors)
    if device is None:
        return None
    operands = [(t.shape, _operand_strides(t, computed_in)) for t in tensors]
    if with_number and shape:
        operands.append(((), ()))
    return TensorMeta(shape, elementwise_strides(shape, operands), dtype, device)


def laid_out(
    result: TensorMeta, tensors: Sequence[TensorMeta], with_number: bool = False, common: torch.dtype | None = None
) -> TensorMeta:
    """`result` with the strides of eager's iterator over these operands. `common`: the dtype that they are computed in,
    where it is not the result's.
    """
    operands = [(t.shape, _operand_strides(t, common or result.dtype)) for t in tensors]
    if with_number and result.shape:
        operands.append(((), ()))
    return TensorMeta(result.shape, elementwise_strides(result.shape, operands), result.dtype, result.device)


def _operand_strides(operand: TensorMeta, computed_in: torch.dtype | None) -> Ints:
    if computed_in is None or operand.dtype == computed_in or operand.device.type != "cpu":
        return operand.strides
    return preserved_strides(operand.shape, operand.strides)


def common_device(tensors: Sequence[TensorMeta]) -> torch.device | None:
    """Zero-dimensional CPU tensors may join any device; otherwise all must agree."""
    device = tensors[0].device
    for other in tensors[1:]:
        if other.device != device:
            movable = [t for t in tensors if t.shape or t.device.type != "cpu"]
            devices = {t.device for t in movable}
            return movable[0].device if len(devices) == 1 else None
    return device


def size_mismatch(shapes: Sequence[Ints]) -> str:
    """Eager's words for shapes that do not broadcast."""
    merged: Ints = ()
    for shape in shapes:
        common = broadcast([merged, shape])
        if common is None:
            return _pair_mismatch(merged, shape)
        merged = common
    return f"shapes {list(shapes)} cannot be broadcast together"


def _pair_mismatch(a: Ints, b: Ints) -> str:
    for back in range(1, min(len(a), len(b)) + 1):
        if a[-back] != b[-back] and a[-back] != 1 and b[-back] != 1:
            dim: Any = max(len(a), len(b)) - back
            return (
                f"The size of tensor a ({a[-back]}) must match the size of tensor b ({b[-back]}) "
                f"at non-singleton dimension {dim}"
            )
    return f"shapes {a} and {b} cannot be broadcast together"
