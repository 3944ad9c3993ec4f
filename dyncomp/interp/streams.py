"""The state of `random.Random` objects, kept before a run that may have to begin again.

`getstate()` makes 625 Python ints, which takes longer than many a graph runs; the generator's own words are copied as they lie in
memory (read only, and only where a trial at import finds them as `getstate()` tells them), and put back by `setstate()`.
"""

from __future__ import annotations

import ctypes
import random
import struct
from typing import Any

_WORDS = 624
_HEAD: int = object.__basicsize__  # type: ignore[attr-defined]  # what every object begins with
_BODY = struct.Struct(f"i{_WORDS}I")  # where the next word is taken from, the words
Kept = tuple[Any, Any, Any]


def _copied(stream: random.Random) -> bytes:
    return ctypes.string_at(id(stream) + _HEAD, _BODY.size)


def _listed(words: bytes, gauss_next: float | None) -> tuple[Any, ...]:
    """As `getstate()` gives it."""
    index, *state = _BODY.unpack(words)
    return random.Random.VERSION, (*state, index), gauss_next


def _is_as_expected() -> bool:
    if _HEAD + _BODY.size > random.Random.__basicsize__:  # type: ignore[attr-defined]
        return False
    stream = random.Random(1)
    for draws in (0, 1, 700):
        for _ in range(draws):
            stream.random()
        if _listed(_copied(stream), stream.gauss_next) != stream.getstate():  # type: ignore[attr-defined]
            return False
    return True


_COPIES = _is_as_expected()


def keep(stream: Any) -> Kept:
    """What `put_back` takes, of a stream of Python's or of NumPy's."""
    if not isinstance(stream, random.Random):
        return stream, stream.get_state(), None
    return stream, _copied(stream) if _COPIES else stream.getstate(), stream.gauss_next if _COPIES else None  # type: ignore[attr-defined]


def put_back(kept: Kept) -> None:
    stream, state, gauss_next = kept
    if not isinstance(stream, random.Random):
        stream.set_state(state)
        return
    stream.setstate(_listed(state, gauss_next) if isinstance(state, bytes) else state)
