"""Reading at places from data, and writing along a diagonal."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.composites.registry import form
from dyncomp.shape.layout import broadcast


@form("take_along_dim")
def _take_along_dim(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> Any:
    if dim is None or x.dim() != indices.dim() or x.dim() == 0 or indices.dtype is not torch.int64:
        return NotImplemented
    if not -x.dim() <= dim < x.dim():
        return NotImplemented
    dim %= x.dim()
    places = [indices.shape[dim] if i == dim else n for i, n in enumerate(x.shape)]
    values = [x.shape[dim] if i == dim else n for i, n in enumerate(indices.shape)]
    wide, whole = broadcast((tuple(places), tuple(indices.shape))), broadcast((tuple(values), tuple(x.shape)))
    if wide is None or whole is None:
        return NotImplemented
    spread = indices.expand(wide)
    data = x.expand(whole)
    return torch.gather(data, dim, spread.remainder(x.shape[dim]))


@form("fill_diagonal_")
def _fill_diagonal(x: torch.Tensor, value: Any, wrap: bool = False) -> Any:
    """Of more dimensions they are all equal, or eager raises: the diagonal of diagonals has the same elements."""
    if x.dim() < 2 or x.dim() > 2 and any(n != x.shape[0] for n in x.shape[1:]):
        return NotImplemented
    if wrap and x.dim() == 2 and x.shape[0] > x.shape[1] + 1:
        return NotImplemented
    diagonal = x
    while diagonal.dim() > 1:
        diagonal = diagonal.diagonal(0, 0, -1)
    diagonal.fill_(value)
    return x
