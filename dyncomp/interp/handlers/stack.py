"""Constants, copies and other moves on the stack."""

from __future__ import annotations

from typing import Any

from dyncomp.bytecode.canonical import Op
from dyncomp.interp.handlers.registry import family, handler
from dyncomp.interp.machine import NULL, Frame


def nothing(frame: Frame, op: Op) -> None:
    """Instructions that only serve the interpreter itself."""


for _name in ("NOP", "RESUME", "CACHE", "EXTENDED_ARG", "PRECALL"):
    family(_name, nothing)


@handler
def load_const(frame: Frame, op: Op) -> None:
    frame.push(frame.trace.constant(op.argval))


@handler
def pop_top(frame: Frame, op: Op) -> None:
    frame.pop()


@handler
def push_null(frame: Frame, op: Op) -> None:
    frame.stack.append(NULL)


@handler
def copy(frame: Frame, op: Op) -> None:
    frame.stack.append(frame.stack[-op.arg])


@handler
def swap(frame: Frame, op: Op) -> None:
    stack: list[Any] = frame.stack
    stack[-1], stack[-op.arg] = stack[-op.arg], stack[-1]


@handler
def return_value(frame: Frame, op: Op) -> None:
    frame.return_(frame.pop())


def end_for(frame: Frame, op: Op) -> None:
    """Reached by falling out of an inlined generator only; FOR_ITER's target lies behind it."""
    frame.pop()


family("END_FOR", end_for)
