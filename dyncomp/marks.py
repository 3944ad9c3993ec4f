"""What users said about single functions: keep as Python, put in the graph as it is, replace, fold.

The interpreter asks; `dyncomp.api` writes. Keys are held weakly where Python allows it.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

# In the class of an optimised module: the module that it stands for.
ORIGINAL = "__dyncomp_original__"


@dataclasses.dataclass(frozen=True)
class Mark:
    """`kind` is one of disable, allow_in_graph, substitute, constant; `payload` the reason or the replacement."""

    kind: str
    payload: Any = None


class _Table:
    def __init__(self) -> None:
        self._weak: weakref.WeakKeyDictionary[Any, Mark] = weakref.WeakKeyDictionary()
        self._strong: dict[int, tuple[Any, Mark]] = {}

    def set(self, fn: Any, mark: Mark) -> None:
        try:
            self._weak[fn] = mark
        except TypeError:  # no weak reference possible or not hashable: keep it alive, so that its id stays its own
            self._strong[id(fn)] = (fn, mark)

    def get(self, fn: Any) -> Mark | None:
        try:
            mark = self._weak.get(fn)
        except TypeError:
            mark = None
        if mark is None and (pair := self._strong.get(id(fn))) is not None:
            mark = pair[1]
        return mark


_marks = _Table()


def mark(fn: Callable[..., Any], kind: str, payload: Any = None) -> None:
    _marks.set(fn, Mark(kind, payload))


def of(fn: Any) -> Mark | None:
    """The mark of a function (looks through bound methods), or None."""
    found = _marks.get(fn)
    if found is None and (inner := getattr(fn, "__func__", None)) is not None:
        found = _marks.get(inner)
    return found
