"""Tables keyed by code objects as individuals.

Equality of code objects compares their contents and leaves out the file name, so two functions may share an
equal code object; and their hash fails if a constant is unhashable. Here each code object has its own row,
which goes when the code object goes.
"""

from __future__ import annotations

import types
import weakref
from typing import Generic, TypeVar

T = TypeVar("T")


class CodeKey:
    """A code object as a key of a bounded cache. Holds it."""

    __slots__ = ("code",)

    def __init__(self, code: types.CodeType):
        self.code = code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodeKey) and other.code is self.code

    def __hash__(self) -> int:
        return id(self.code)


class CodeTable(Generic[T]):
    """Weak mapping code object -> T. A row must not hold its own code object, or it never goes."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[weakref.ref[types.CodeType], T]] = {}

    def get(self, code: types.CodeType) -> T | None:
        row = self._rows.get(id(code))
        return row[1] if row is not None and row[0]() is code else None

    def add(self, code: types.CodeType, value: T) -> T:
        """The value of `code` from now on: `value`, or that of a thread that was quicker."""
        key = id(code)
        rows = self._rows

        def forget(reference: weakref.ref[types.CodeType]) -> None:
            row = rows.get(key)
            if row is not None and row[0] is reference:
                del rows[key]

        known = self.get(code)
        if known is not None:
            return known
        rows.pop(key, None)
        return rows.setdefault(key, (weakref.ref(code, forget), value))[1]
