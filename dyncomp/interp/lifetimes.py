"""Objects that a resumed frame alone holds: where it drops one whose end shows, its graph ends.

In:  the frame's arguments, which nobody else needs to hold; its stack and variables as they are traced
Out: a graph break at the instruction that drops such an object; the variables that a broken frame must keep although
     nobody reads them again

    for y in generator: ... break        resume(x, .s0): POP_TOP of .s0 runs as Python, since it closes the generator
    guard = Guard(); ...; step(); ...    `guard` is passed on: it lives as long as the frame
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dyncomp.bytecode.continuation import is_resume
from dyncomp.errors import GraphBreak
from dyncomp.interp.machine import Frame, UnreadArgument
from dyncomp.values.base import Value
from dyncomp.values.lifetime import end_shows, holds, may_be_watched


class Watch:
    """The arguments of a frame whose end would show. False where there are none."""

    def __init__(self, frame: Frame, args: Sequence[Any]):
        self._given: list[tuple[Any, Value | None]] = []
        if is_resume(frame.code):
            unread = {id(v.obj): v for v in frame.variables.values() if isinstance(v, UnreadArgument)}
            self._given = [(arg, unread.get(id(arg))) for arg in args]
        self._open = [(arg, unread) for arg, unread in self._given if end_shows(arg)]

    def __bool__(self) -> bool:
        return bool(self._open)

    def check(self, frame: Frame, known: dict[int, Value]) -> None:
        """Raises GraphBreak if the instruction before dropped one. `known`: the values of objects by id. What went into another
        value counts as dropped: nobody knows what becomes of it."""
        for obj in _dropped(self._open, frame, known):
            raise GraphBreak(
                "last-reference",
                f"this may be the last reference to a {type(obj).__qualname__}, whose end the program can see",
            )

    def may_be_gone(self, obj: Any, frame: Frame, known: dict[int, Value]) -> bool:
        """True if the frame has dropped what may have been the last reference to `obj`: a weak reference would tell."""
        return any(holds(arg, obj) for arg in _dropped(self._given, frame, known))


def _dropped(given: Sequence[tuple[Any, Value | None]], frame: Frame, known: dict[int, Value]) -> Iterator[Any]:
    """Those of the frame's arguments that it does not hold any more."""
    held = {id(value) for value in _held(frame)} if given else set()
    for obj, unread in given:
        if id(unread) not in held and id(known.get(id(obj))) not in held:
            yield obj


def _held(frame: Frame) -> Iterator[Value | None]:
    yield from frame.stack
    yield from frame.variables.values()
    for cell in frame.cells.values():
        yield cell
        yield cell.contents


def kept_variables(frame: Frame, known: dict[int, Value], alive: Sequence[Any]) -> frozenset[str]:
    """Names whose objects the rest of the frame must hold, read or not. `alive`: the outside objects of the trace."""
    objects: dict[int, Any] = {}
    kept = set()
    handed_over = set(map(id, frame.stack))
    for name, value in frame.variables.items():
        if id(value) in handed_over:
            watched = True  # the instruction that breaks gets it, and may make a weak reference
        elif isinstance(value, UnreadArgument):
            watched = may_be_watched(value.obj)
        elif value.source is None:
            continue  # made while tracing: objects whose end shows are not made there
        else:
            if not objects:
                objects = {id(known[id(obj)]): obj for obj in alive if id(obj) in known}
            watched = id(value) in objects and may_be_watched(objects[id(value)])
        if watched:
            kept.add(name)
    return frozenset(kept)
