"""Errors of graphs that run node by node: the traceback goes by the line of the program that the node was captured from.

    x.add_(1) of model.py, line 7, raises      ->      ..., File "model.py", line 7, in <captured>, File "<eval_with_key>.0", ...
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

_NAME = "<captured>"  # the frame that stood there is gone


def naming_lines(gm: Any) -> Callable[..., Any]:
    """`gm.forward`, whose errors name the program's lines."""
    forward = gm.forward

    def call(*inputs: Any) -> Any:
        try:
            return forward(*inputs)
        except Exception as error:
            error.__traceback__ = _with_line(error.__traceback__, gm)
            raise

    return call


def _with_line(traceback: types.TracebackType | None, gm: Any) -> types.TracebackType | None:
    """The same from the graph's own code on, behind an entry for the program's line; unchanged where that is not known."""
    code = gm.forward.__code__
    entry = traceback
    while entry is not None and entry.tb_frame.f_code is not code:
        entry = entry.tb_next
    line = None if entry is None else _users_line(gm, entry.tb_lineno)
    if line is None:
        return traceback
    users = _entry(*line)
    return types.TracebackType(entry, users.tb_frame, users.tb_lasti, users.tb_lineno)


def _users_line(gm: Any, line: int) -> tuple[str, int] | None:
    nodes, start = getattr(gm, "_lineno_map", None), getattr(gm, "_prologue_start", None)
    index = None if not nodes or start is None else nodes.get(line - start)
    if index is None:
        return None
    found: tuple[str, int] | None = list(gm.graph.nodes)[index].meta.get("user_line")
    return found


def _entry(file: str, line: int) -> types.TracebackType:
    """What a traceback has of a frame at this line."""
    code = _raise.__code__.replace(co_filename=file, co_name=_NAME, co_qualname=_NAME, co_firstlineno=line - 1)
    try:
        types.FunctionType(code, {})()
    except ZeroDivisionError as error:
        entry = error.__traceback__.tb_next  # type: ignore[union-attr]
        assert entry is not None
        return entry
    raise AssertionError("it raises")


def _raise() -> None:
    1 / 0  # noqa: B018 - needs no globals
