"""Places temporary buffers in one arena: buffers that live at different times share memory.

Best fit by size: the largest buffers first, each at the lowest offset where no buffer that lives at the
same time stands.
"""

from __future__ import annotations

import dataclasses
from typing import Any

ALIGNMENT = 64


@dataclasses.dataclass
class Lifetime:
    """A buffer of `size` bytes in use from step `first` to step `last`, both included. `room`: the bytes that it needs
    in one call, where that is symbolic."""

    size: int
    first: int
    last: int
    offset: int = -1
    room: Any = None


def aligned(size: Any) -> Any:
    """The size rounded up, so that the next buffer is aligned too; symbolic ones as well."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def place(lifetimes: list[Lifetime]) -> int:
    """Sets the offsets; returns the size of the arena."""
    placed: list[Lifetime] = []
    end = 0
    for life in sorted(lifetimes, key=lambda x: (-x.size, x.first)):
        size = -(-life.size // ALIGNMENT) * ALIGNMENT
        rivals = sorted((p for p in placed if p.first <= life.last and life.first <= p.last), key=lambda p: p.offset)
        best, gap, cursor = -1, 0, 0
        for rival in rivals:
            room = rival.offset - cursor
            if room >= size and (best < 0 or room < gap):
                best, gap = cursor, room
            cursor = max(cursor, rival.offset + -(-rival.size // ALIGNMENT) * ALIGNMENT)
        life.offset = cursor if best < 0 else best
        end = max(end, life.offset + size)
        placed.append(life)
    return end


def shelves(lifetimes: list[Lifetime]) -> list[list[Lifetime]]:
    """Groups of lifetimes that never meet, for sizes that the call brings: each group shares one place that is as large
    as the largest of them turns out. The sizes here are what they were while tracing; they choose the groups alone."""
    groups: list[list[Lifetime]] = []
    for life in sorted(lifetimes, key=lambda x: (-x.size, x.first)):
        for group in groups:
            if all(other.last < life.first or life.last < other.first for other in group):
                group.append(life)
                break
        else:
            groups.append([life])
    return groups
