"""Places temporary buffers in one arena: buffers that live at different times share memory.

Best fit by size: the largest buffers first, each at the lowest offset where no buffer that lives at the
same time stands.
"""

from __future__ import annotations

import dataclasses

ALIGNMENT = 64


@dataclasses.dataclass
class Lifetime:
    """A buffer of `size` bytes in use from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int
    offset: int = -1


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
