"""`torch.gradient`: central differences inside, one-sided ones at both ends of each dimension.

    gradient(x[s0])   ->   cat([x[1:2] - x[0:1], (x[2:] - x[:-2]) / 2, x[-1:] - x[-2:-1]])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.composites.registry import form

aten = torch.ops.aten


@form("gradient.scalarint")
def _scalarint(x: torch.Tensor, *, spacing: Any = None, dim: int | None = None, edge_order: int = 1) -> Any:
    dims = range(x.dim()) if dim is None else [dim]
    return _by_steps(x, [1.0 if spacing is None else spacing] * len(dims), dims, edge_order)


@form("gradient.scalararray")
def _scalararray(x: torch.Tensor, *, spacing: Any, dim: Sequence[int], edge_order: int = 1) -> Any:
    return _by_steps(x, [spacing] * len(dim), dim, edge_order)


@form("gradient.array")
def _array(x: torch.Tensor, *, dim: Sequence[int], edge_order: int = 1) -> Any:
    return _by_steps(x, [1.0] * len(dim), dim, edge_order)


@form("gradient.scalarrayint")
def _scalarrayint(x: torch.Tensor, *, spacing: Sequence[Any], dim: int | None = None, edge_order: int = 1) -> Any:
    return _by_steps(x, spacing, range(x.dim()) if dim is None else [dim], edge_order)


@form("gradient.scalarrayarray")
def _scalarrayarray(x: torch.Tensor, *, spacing: Sequence[Any], dim: Sequence[int], edge_order: int = 1) -> Any:
    return _by_steps(x, spacing, dim, edge_order)


@form("gradient.tensorarrayint")
def _tensorarrayint(
    x: torch.Tensor, *, spacing: Sequence[torch.Tensor], dim: int | None = None, edge_order: int = 1
) -> Any:
    return _by_places(x, spacing, range(x.dim()) if dim is None else [dim], edge_order)


@form("gradient.tensorarray")
def _tensorarray(x: torch.Tensor, *, spacing: Sequence[torch.Tensor], dim: Sequence[int], edge_order: int = 1) -> Any:
    return _by_places(x, spacing, dim, edge_order)


def _valid(x: torch.Tensor, spacing: Sequence[Any], dims: Sequence[int], edge_order: int) -> bool:
    if x.dim() == 0 or edge_order not in (1, 2) or len(spacing) != len(dims):
        return False
    if not all(-x.dim() <= dim < x.dim() for dim in dims) or len({dim % x.dim() for dim in dims}) != len(dims):
        return False
    return all(x.shape[dim] >= edge_order + 1 for dim in dims)


def _part(x: torch.Tensor, dim: int, start: int, end: int | None = None) -> torch.Tensor:
    return aten.slice.Tensor(x, dim, start, end)  # type: ignore[no-any-return]


def _by_steps(x: torch.Tensor, steps: Sequence[Any], dims: Sequence[int], edge_order: int) -> Any:
    if not _valid(x, steps, dims, edge_order):
        return NotImplemented
    results = []
    for dim, step in zip((dim % x.dim() for dim in dims), steps, strict=True):
        middle = aten.div.Scalar(_part(x, dim, 2) - _part(x, dim, 0, -2), step)
        if edge_order == 1:
            first = _part(x, dim, 1, 2) - _part(x, dim, 0, 1)
            last = _part(x, dim, -1) - _part(x, dim, -2, -1)
        else:
            scaled = aten.mul.Scalar
            first = scaled(_part(x, dim, 0, 1), -1.5) + scaled(_part(x, dim, 1, 2), 2) - scaled(_part(x, dim, 2, 3), 0.5)
            last = scaled(_part(x, dim, -3, -2), 0.5) - scaled(_part(x, dim, -2, -1), 2) + scaled(_part(x, dim, -1), 1.5)
        ends = [aten.div.Scalar(end, step) for end in (first, last)]
        results.append(torch.cat([ends[0], aten.div.Scalar(middle, 2), ends[1]], dim))
    return results


def _by_places(x: torch.Tensor, places: Sequence[torch.Tensor], dims: Sequence[int], edge_order: int) -> Any:
    if not _valid(x, places, dims, edge_order):
        return NotImplemented
    if any(p.dim() != 1 or p.shape[0] != x.shape[dim] for p, dim in zip(places, dims, strict=True)):
        return NotImplemented
    results = []
    for dim, place in zip((dim % x.dim() for dim in dims), places, strict=True):
        step = torch.diff(place, 1, 0)
        before, after = _part(step, 0, 0, -1), _part(step, 0, 1)
        shape = [-1 if i == dim else 1 for i in range(x.dim())]
        both = before + after
        a = (-after / (before * both)).reshape(shape)
        b = ((after - before) / (before * after)).reshape(shape)
        c = (before / (after * both)).reshape(shape)
        middle = a * _part(x, dim, 0, -2) + b * _part(x, dim, 1, -1) + c * _part(x, dim, 2)
        if edge_order == 1:
            first = (_part(x, dim, 1, 2) - _part(x, dim, 0, 1)) / step[0]
            last = (_part(x, dim, -1) - _part(x, dim, -2, -1)) / step[-1]
        else:
            first, last = _start(x, dim, step), _end(x, dim, step)
        results.append(torch.cat([first, middle, last], dim))
    return results


def _start(x: torch.Tensor, dim: int, step: torch.Tensor) -> torch.Tensor:
    d, e = step[0], step[1]
    a = -(aten.mul.Scalar(d, 2.0) + e) / (d * (d + e))
    b = (d + e) / (d * e)
    c = (-d) / (e * (d + e))
    return a * _part(x, dim, 0, 1) + b * _part(x, dim, 1, 2) + c * _part(x, dim, 2, 3)


def _end(x: torch.Tensor, dim: int, step: torch.Tensor) -> torch.Tensor:
    d, e = step[-1], step[-2]
    a = d / (e * (d + e))
    b = -(d + e) / (d * e)
    c = (aten.mul.Scalar(d, 2) + e) / (d * (d + e))
    return a * _part(x, dim, -3, -2) + b * _part(x, dim, -2, -1) + c * _part(x, dim, -1)
