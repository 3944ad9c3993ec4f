"""Cuts a long reduction with few results into two, so that there is work for all threads (and shorter sums).

sum of 1,048,576 elements  ->  16 sums of 65,536 each, then the sum of 16
sum of s0 elements         ->  16 sums of s0//16 each, then the sum of 16, plus the sum of the last s0%16

Symbolic sizes are judged by what they were while tracing; the result is right for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dyncomp.codegen.ir.index import hint
from dyncomp.codegen.lower.tensor import Shape

LONG = 1 << 16  # elements below which one thread is as quick
MOST_PARTS = 64
LANES = 64  # columns that one unit reduces at least
REST = 32  # how many times as much as the rest each symbolic size was, at least, if more than the fewest parts are made


def parts_of(shape: Shape, dims: Sequence[int]) -> tuple[int, int] | None:
    """(dim, parts): the reduced dim to cut, and into how many parts; None where it does not pay. Parts of a symbolic dim
    leave a rest."""
    seen = [hint(size) for size in shape]
    wanted = 2 * torch.get_num_threads()
    if math.prod(seen) < LONG or 0 in seen or wanted < 4 or _units(seen, dims) >= wanted:
        return None
    for dim in dims:
        if not isinstance(shape[dim], int):
            if seen[dim] >= 2 * wanted:
                return dim, max(wanted, min(MOST_PARTS, seen[dim] // REST))
            continue
        for parts in range(min(MOST_PARTS, shape[dim]), wanted - 1, -1):
            if shape[dim] % parts == 0:
                return dim, parts
    return None


def _units(shape: Sequence[int], dims: Sequence[int]) -> int:
    """Independent pieces of work that the reduction has as it is: rows, or blocks of columns."""
    inner = math.prod(shape[max(dims) + 1 :])
    kept = math.prod(size for d, size in enumerate(shape) if d not in dims)
    return kept // inner * max(inner // LANES, 1)
