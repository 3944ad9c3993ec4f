"""Where parts of tensors with symbolic sizes lie, as numbers that hold at all sizes.

    slice(x[s0], 0, -2)                           ->   slice(x, 0, s0 - 2, s0, 1)
    slice_scatter(x[s0], part, 0, s0 // 2)        ->   slice_scatter(x, part, 0, s0 // 2, s0, 1)
    select_scatter(x[s0, 4], part, 0, -1)         ->   select_scatter(x, part, 0, s0 - 1)

Whether a bound counts from the end, or lies beyond it, is a question that only the shape engine can answer: the code
generator takes bounds as they are where one of the numbers is symbolic.
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.rules.view import bounds
from dyncomp.shape.layout import late
from dyncomp.shape.symbolic import is_symbolic, select

aten = torch.ops.aten
_SLICES = {aten.slice.Tensor: 1, aten.slice_scatter.default: 2}
_ROWS = {aten.select.int: 1, aten.select_scatter.default: 2}


def placed(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of any operation; those of slices and rows with bounds from 0 to the size of the dimension."""
    if op in _SLICES:
        tensors, where = args[: _SLICES[op]], args[_SLICES[op] :]
        defaults: list[Any] = [0, None, None, 1]
        dim, start, end, step = [*where, *defaults[len(where) :]]
        size = args[0].meta.shape[dim]
        if any(map(is_symbolic, (size, start, end))):
            first, last = bounds(start, end, size)
            return (*tensors, dim, first, last, step)
    elif op in _ROWS:
        tensors, (dim, index) = args[: _ROWS[op]], args[_ROWS[op] :]
        size = args[0].meta.shape[dim]
        if late(index):
            return (*tensors, dim, select(index < 0, size + index, index))
        if is_symbolic(size) or is_symbolic(index):
            return (*tensors, dim, size + index if index < 0 else index)
    return args
