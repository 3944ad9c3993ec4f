"""What dyncomp did so far in this process: the numbers behind `dyncomp.stats()`."""

from __future__ import annotations

import collections
import dataclasses
import threading

from dyncomp.errors import BreakRecord


@dataclasses.dataclass
class Stats:
    """A snapshot. `fallbacks` counts by name every time something ran as plain Python or plain ATen instead of compiled code."""

    frames: int = 0
    graphs: int = 0
    graph_breaks: int = 0
    recompiles: int = 0
    skipped: int = 0
    kernels: int = 0
    kernel_cache_hits: int = 0
    compile_seconds: float = 0.0
    break_reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    fallbacks: dict[str, int] = dataclasses.field(default_factory=dict)


_lock = threading.Lock()
_numbers: collections.Counter[str] = collections.Counter()
_fallbacks: collections.Counter[str] = collections.Counter()
_reasons: collections.Counter[str] = collections.Counter()
_breaks: collections.deque[BreakRecord] = collections.deque(maxlen=1000)


def add(name: str, amount: float = 1) -> None:
    with _lock:
        _numbers[name] += amount  # type: ignore[assignment]


def add_fallback(name: str) -> None:
    """Counts one thing that ran as plain Python or plain ATen instead of compiled code."""
    with _lock:
        _fallbacks[name] += 1


def add_break(record: BreakRecord) -> None:
    with _lock:
        _numbers["graph_breaks"] += 1
        _reasons[record.reason] += 1
        _breaks.append(record)


def breaks() -> list[BreakRecord]:
    with _lock:
        return list(_breaks)


def stats() -> Stats:
    """A copy of the counters now."""
    fields = {f.name for f in dataclasses.fields(Stats)}
    with _lock:
        numbers = {k: v for k, v in _numbers.items() if k in fields}
        reasons, fallbacks = dict(_reasons), dict(_fallbacks)
    return Stats(**numbers, break_reasons=reasons, fallbacks=fallbacks)  # its frame may be compiled, which counts


def clear() -> None:
    with _lock:
        _numbers.clear()
        _fallbacks.clear()
        _reasons.clear()
        _breaks.clear()
