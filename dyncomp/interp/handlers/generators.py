"""yield, yield from and what begins a generator."""

from __future__ import annotations

from dyncomp.bytecode.canonical import Op
from dyncomp.bytecode.opcodes import OPCODES
from dyncomp.errors import GraphBreak
from dyncomp.interp.generators import GeneratorValue
from dyncomp.interp.handlers.registry import breaks, handler
from dyncomp.interp.machine import Frame
from dyncomp.values.base import PyRaise, Value
from dyncomp.values.exception import ExceptionValue, stop_in_generator

# Where an exhausted SEND leaves the receiver below the result, for END_SEND to remove.
_KEEPS_RECEIVER = "END_SEND" in OPCODES


@handler
def return_generator(frame: Frame, op: Op) -> None:
    """The frame belongs to a generator already; this is where its first `next` comes in."""
    frame.push(frame.trace.constant(None))


@handler
def yield_value(frame: Frame, op: Op) -> None:
    frame.yielded = True
    frame.return_(frame.pop())


@handler
def get_yield_from_iter(frame: Frame, op: Op) -> None:
    if not isinstance(frame.stack[-1], GeneratorValue):
        frame.push(frame.pop().iterate(frame.trace))


@handler
def send(frame: Frame, op: Op) -> None:
    """[receiver, value] -> [receiver, yielded], or at the receiver's end a jump with its result."""
    value, receiver = frame.pop(), frame.stack[-1]
    try:
        yielded = _send_to(frame, receiver, value)
    except PyRaise as error:
        raised = error.value
        if not isinstance(raised, ExceptionValue) or not issubclass(raised.cls, StopIteration):
            raise
        result = raised.args[0] if raised.args else frame.trace.constant(None)
        if not _KEEPS_RECEIVER:
            frame.pop()
        frame.push(result)
        frame.jump(op.target)
    else:
        frame.push(yielded)


def _send_to(frame: Frame, receiver: Value, value: Value) -> Value:
    if isinstance(receiver, GeneratorValue):
        return receiver.resume(frame.trace, value)
    if not (value.is_constant() and value.as_constant() is None):
        return receiver.call_method(frame.trace, "send", [value], {})
    item = receiver.next(frame.trace)
    if item is None:
        frame.trace.raise_(StopIteration)
    return item


@handler
def end_send(frame: Frame, op: Op) -> None:
    result = frame.pop()
    frame.pop()
    frame.push(result)


@handler
def stopiteration_error(frame: Frame, op: Op) -> None:
    error = frame.pop()
    if isinstance(error, ExceptionValue) and issubclass(error.cls, StopIteration):
        error = stop_in_generator(frame.trace, error)
    frame.push(error)


@handler
def cleanup_throw(frame: Frame, op: Op) -> None:
    """[receiver, last sent value, exception] -> [None, result] if the receiver just ended."""
    error = frame.pop()
    if not isinstance(error, ExceptionValue):
        raise GraphBreak("exception", "an exception made outside, thrown into a generator")
    if not issubclass(error.cls, StopIteration):
        raise PyRaise(error)
    frame.popn(2)
    frame.push(frame.trace.constant(None))
    frame.push(error.args[0] if error.args else frame.trace.constant(None))


breaks(
    "generator",
    "asynchronous code",
    "GET_AWAITABLE",
    "GET_AITER",
    "GET_ANEXT",
    "END_ASYNC_FOR",
    "BEFORE_ASYNC_WITH",
    "ASYNC_GEN_WRAP",
)
