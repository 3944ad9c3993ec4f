"""Puts units (kernels and ATen calls) in an order that respects what they need, else near program order."""

from __future__ import annotations

import heapq

from dyncomp.codegen.schedule.group import Grouping
from dyncomp.errors import InternalError


def order_units(grouping: Grouping, positions: list[int]) -> list[int]:
    """Unit numbers in execution order. `positions`: place of each unit in program order, which breaks
    ties."""
    count = len(grouping.units)
    readers: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for number, needs in enumerate(grouping.dependencies):
        missing[number] = needs.bit_count()
        while needs:
            low = needs & -needs
            readers[low.bit_length() - 1].append(number)
            needs ^= low
    ready = [(positions[n], n) for n in range(count) if not missing[n]]
    heapq.heapify(ready)
    out: list[int] = []
    while ready:
        _, number = heapq.heappop(ready)
        out.append(number)
        for reader in readers[number]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (positions[reader], reader))
    if len(out) != count:
        raise InternalError("kernels depend on each other in a circle")
    return out
