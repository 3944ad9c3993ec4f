"""What users said about single dimensions of tensors: `api` writes, tracing asks."""

from __future__ import annotations

import dataclasses
from typing import Any

_ATTRIBUTE = "_dyncomp_size_marks"


@dataclasses.dataclass(frozen=True)
class SizeMark:
    """`kind` is dynamic, static or unbacked; `low` and `high` (inclusive) belong to dynamic, None where open."""

    kind: str
    low: int | None = None
    high: int | None = None


def mark(tensor: Any, dim: int, size_mark: SizeMark) -> None:
    """Kept on the tensor object itself, so that it lives and dies with it."""
    marks = tensor.__dict__.setdefault(_ATTRIBUTE, {})
    marks[dim] = size_mark


def of(tensor: Any) -> dict[int, SizeMark]:
    """The marks of a tensor by dimension."""
    return tensor.__dict__.get(_ATTRIBUTE, {})  # type: ignore[no-any-return]
