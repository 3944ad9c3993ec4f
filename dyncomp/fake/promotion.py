"""Type promotion of eager, over `TensorMeta`s and Python numbers.

Tensors with dimensions outrank zero-dimensional ones, which outrank Python numbers, unless the lower one is
of a higher category (bool < integer < float < complex).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from dyncomp.fake.tensor import TensorMeta

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
BOOLS = frozenset({torch.bool})
FLOATS_INTEGERS = FLOATS | INTEGERS
INTEGERS_BOOLS = INTEGERS | BOOLS
REALS = FLOATS | INTEGERS | BOOLS

_memo: dict[tuple[Any, ...], torch.dtype] = {}
_COMPLEX = {torch.float16: torch.complex32, torch.float32: torch.complex64, torch.float64: torch.complex128}


def result_dtype(operands: Sequence[Any]) -> torch.dtype:
    """The common dtype of tensors and Python numbers: `torch.result_type` for any number of them."""
    key = (torch.get_default_dtype(), *[_rank_key(operand) for operand in operands])
    dtype = _memo.get(key)
    if dtype is None:
        dtype = _memo[key] = _result_dtype(key[1:])
    return dtype


def _rank_key(operand: Any) -> Any:
    if type(operand) is TensorMeta:
        return (operand.dtype, not operand.shape)
    return type(operand)


def _result_dtype(keys: Iterable[Any]) -> torch.dtype:
    sized = scalar = number = None
    for key in keys:
        if isinstance(key, type):
            number = _promote(number, number_dtype(key))
        elif key[1]:
            scalar = _promote(scalar, key[0])
        else:
            sized = _promote(sized, key[0])
    result = _combine(sized, _combine(scalar, number))
    assert result is not None
    return result


def number_dtype(kind: type) -> torch.dtype:
    default = torch.get_default_dtype()
    if issubclass(kind, bool):
        return torch.bool
    if issubclass(kind, complex):
        return _COMPLEX.get(default, torch.complex64)
    return torch.int64 if issubclass(kind, int | torch.SymInt) else default


def _promote(a: torch.dtype | None, b: torch.dtype) -> torch.dtype:
    return b if a is None else torch.promote_types(a, b)


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return _COMPLEX.get(higher, torch.complex64) if lower.is_complex else higher
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def to_float(dtype: torch.dtype) -> torch.dtype:
    """Integers and bool become the default float."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()
