"""raise, try, except and finally."""

from __future__ import annotations

from dyncomp.bytecode.canonical import Op
from dyncomp.errors import GraphBreak
from dyncomp.interp.handlers.registry import handler
from dyncomp.interp.machine import Frame
from dyncomp.values.base import PyRaise, Value
from dyncomp.values.exception import ExceptionValue
from dyncomp.values.sequence import TupleValue


@handler
def push_exc_info(frame: Frame, op: Op) -> None:
    """[exception] -> [the exception handled before, exception]"""
    error = frame.pop()
    if not isinstance(error, ExceptionValue):
        raise GraphBreak("exception", "an exception raised outside the captured code")
    frame.entered.append(len(frame.stack))
    frame.push(frame.handled[-1] if frame.handled else frame.trace.constant(None))
    frame.push(error)
    frame.handled.append(error)


@handler
def pop_except(frame: Frame, op: Op) -> None:
    if (
        not frame.handled
    ):  # entered before a graph break: only the real instruction can restore the older exception
        raise GraphBreak("exception", "the end of an except block that began before a graph break")
    frame.pop()
    if frame.handled:
        frame.handled.pop()
        frame.entered.pop()


@handler
def check_exc_match(frame: Frame, op: Op) -> None:
    wanted, error = frame.pop(), frame.stack[-1]
    classes = wanted.unpack(frame.trace) if isinstance(wanted, TupleValue) else [wanted]
    matches = False
    for cls in classes:
        real = cls.as_constant()
        if not isinstance(real, type) or not issubclass(real, BaseException):
            frame.trace.raise_(
                TypeError, "catching classes that do not inherit from BaseException is not allowed"
            )
        matches = matches or issubclass(error.python_type(), real)
    frame.push(frame.trace.constant(matches))


@handler
def raise_varargs(frame: Frame, op: Op) -> None:
    cause = _as_exception(frame, frame.pop()) if op.arg == 2 else None
    if op.arg == 0:
        current = frame.current_exception()
        if current is None:
            raise GraphBreak(
                "exception", "`raise` of an exception that was being handled before the captured code began"
            )
        raise PyRaise(current)
    error = _as_exception(frame, frame.pop())
    if not isinstance(error, ExceptionValue):
        frame.trace.raise_(TypeError, "exceptions must derive from BaseException")
    if cause is not None:
        error.links["__cause__"] = cause
        error.links["__suppress_context__"] = frame.trace.constant(True)
    frame.trace.raise_value(error)


def _as_exception(frame: Frame, value: Value) -> Value:
    """`raise Class` makes an instance."""
    if value.is_constant() and isinstance(value.as_constant(), type):
        return frame.trace.call(value, [])
    return value


@handler
def reraise(frame: Frame, op: Op) -> None:
    """[..., exception]; with an operand the place of the first raise lies below it."""
    error = frame.pop()
    if not isinstance(error, ExceptionValue):
        raise GraphBreak("exception", "raising again an exception made outside")
    raise PyRaise(error)
