"""Evenly spaced numbers, windows of signals, and the places of triangles: what is made of plain counts.

    linspace(0, 1, s0)      (s0,)                    tril_indices(s0, s0)      (2, s0*(s0 + 1)//2)
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.promotion import FLOATS
from dyncomp.fake.registry import register, rule
from dyncomp.fake.rules.copy import target_device
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import contiguous_strides, must_hold
from dyncomp.shape.symbolic import select

_CPU = torch.device("cpu")


def _row(count: Any, dtype: Any, layout: Any, device: Any) -> TensorMeta | None:
    dtype = dtype or torch.get_default_dtype()
    if layout not in (None, torch.strided) or dtype not in FLOATS or not must_hold(count >= 0):
        return None
    return TensorMeta((count,), (1,), dtype, target_device(device, _CPU))


@rule("linspace linspace.Tensor_Tensor linspace.Tensor_Scalar linspace.Scalar_Tensor")
def _linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> TensorMeta | None:
    return None if _refused(start) or _refused(end) else _row(steps, dtype, layout, device)


@rule("logspace logspace.Tensor_Tensor logspace.Tensor_Scalar logspace.Scalar_Tensor")
def _logspace(start: Any, end: Any, steps: int, base: float = 10.0, **options: Any) -> TensorMeta | None:
    return _linspace(start, end, steps, **options)


def _refused(end: Any) -> bool:
    """True for what makes complex numbers, or is no single number."""
    return end.ndim > 0 or end.dtype.is_complex if isinstance(end, TensorMeta) else isinstance(end, complex)


def _window(
    window_length: int,
    *settings: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    **more: Any,
) -> TensorMeta | None:
    return _row(window_length, dtype, layout, device)


register(
    "hann_window hann_window.periodic blackman_window blackman_window.periodic bartlett_window bartlett_window.periodic "
    "hamming_window hamming_window.periodic hamming_window.periodic_alpha hamming_window.periodic_alpha_beta "
    "kaiser_window kaiser_window.periodic kaiser_window.beta",
    _window,
)


@rule("fft_fftfreq")
def _fftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> TensorMeta | None:
    return _row(n, dtype, layout, device)


@rule("fft_rfftfreq")
def _rfftfreq(n: int, d: float = 1.0, **options: Any) -> TensorMeta | None:
    return _fftfreq(n // 2 + 1, d, **options) if must_hold(n >= 0) else None


@rule("tril_indices")
def _tril_indices(row: int, col: int, offset: int = 0, **options: Any) -> TensorMeta | None:
    return _places(row, col, lambda: _tril_size(row, col, offset), **options)


@rule("triu_indices")
def _triu_indices(row: int, col: int, offset: int = 0, **options: Any) -> TensorMeta | None:
    return _places(row, col, lambda: row * col - _tril_size(row, col, offset - 1), **options)


def _places(
    row: int,
    col: int,
    count: Any,
    *,
    dtype: Any = torch.int64,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> TensorMeta | None:
    if layout not in (None, torch.strided) or not must_hold(row >= 0) or not must_hold(col >= 0):
        return None
    shape = (2, count())
    return TensorMeta(shape, contiguous_strides(shape), dtype or torch.int64, target_device(device, _CPU))


def _tril_size(row: int, col: int, offset: int) -> int:
    """Elements on and below a diagonal: row i has min(col, i + offset + 1) of them, at least none."""
    least, most = torch.sym_min, torch.sym_max
    first = most(0, -offset)  # the first row that has any
    last = most(first, least(row, col - offset))  # from here on rows are full
    short = last - first
    # The short rows have first + offset + 1, ..., last + offset of them.
    slope = short * (first + last + 2 * offset + 1) // 2
    return select(first >= row, 0, slope + most(0, row - last) * col)  # type: ignore[no-any-return]
