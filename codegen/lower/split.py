"""Cuts a long reduction with few results into two, so that there is work for all threads (and shorter sums).

sum of 1,048,576 elements  ->  16 sums of 65,536 each, then the sum of 16
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dyncomp.codegen.lower.tensor import Shape

LONG = 1 << 16  # elements below which one thread is as quick
MOST_PARTS = 64
LANES = 64  # columns that one unit reduces at least


def parts_of(shape: Shape, dims: Sequence[int]) -> tuple[int, int] | None:
    """(dim, parts): the reduced dim to cut, and into how many parts; None where it does not pay."""
    if not all(isinstance(size, int) for size in shape):
        return None  # how many parts there are must not depend on the call
    wanted = 2 * torch.get_num_threads()
    if math.prod(shape) < LONG or 0 in shape or wanted < 4 or _units(shape, dims) >= wanted:
        return None
    for dim in dims:
        for parts in range(min(MOST_PARTS, shape[dim]), wanted - 1, -1):
            if shape[dim] % parts == 0:
                return dim, parts
    return None


def _units(shape: Shape, dims: Sequence[int]) -> int:
    """Independent pieces of work that the reduction has as it is: rows, or blocks of columns."""
    inner = math.prod(shape[max(dims) + 1 :])
    kept = math.prod(size for d, size in enumerate(shape) if d not in dims)
    return kept // inner * max(inner // LANES, 1)
