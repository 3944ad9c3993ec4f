"""What users said about single dimensions of tensors: `api` writes, tracing asks.

A mark is a promise also to calls that an older version would serve: a tensor that is marked must not be taken by code that was
compiled without regard to the mark. Guarding the marks of every tensor would cost every call of every program, so that
compiled code guards a table instead, `IN_USE`, which tells what marks tensors of one rank and dtype have had so far:

    no marks so far          the table has no such entry; nothing is read from the tensor
    the same marks as ours   unmarked tensors may come too: they are served as the marked ones are
    else                     the tensor's marks: none where ours has none; none or the same where it has some
"""

from __future__ import annotations

import dataclasses
from typing import Any

_ATTRIBUTE = "_dyncomp_size_marks"
TEXT = "_dyncomp_size_marks_text"  # of all marks of the tensor, for guards
SEVERAL = "several"
IN_USE: dict[str, str] = {}  # rank and dtype -> text of the marks, or SEVERAL


@dataclasses.dataclass(frozen=True)
class SizeMark:
    """`kind` is dynamic, static or unbacked; `low` and `high` (inclusive) belong to dynamic, None where open."""

    kind: str
    low: int | None = None
    high: int | None = None


def mark(tensor: Any, marks: dict[int, SizeMark]) -> None:
    """Kept on the tensor object itself, so that it lives and dies with it. Later marks of a dimension replace earlier ones,
    but static gives way to the others.
    """
    known = tensor.__dict__.setdefault(_ATTRIBUTE, {})
    known.update({dim: new for dim, new in marks.items() if new.kind != "static" or dim not in known})
    text = "; ".join(f"{dim} {m.kind} {m.low} {m.high}" for dim, m in sorted(known.items()))
    tensor.__dict__[TEXT] = text
    key = key_of(tensor)
    IN_USE[key] = text if IN_USE.get(key, text) == text else SEVERAL


def of(tensor: Any) -> dict[int, SizeMark]:
    """The marks of a tensor by dimension."""
    return tensor.__dict__.get(_ATTRIBUTE, {})  # type: ignore[no-any-return]


def text_of(tensor: Any) -> str | None:
    return tensor.__dict__.get(TEXT)  # type: ignore[no-any-return]


def key_of(tensor: Any) -> str:
    return f"{tensor.ndim} {tensor.dtype}"
