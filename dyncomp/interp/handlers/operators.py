"""Operators, comparisons, subscripts, attributes and string formatting."""

from __future__ import annotations

from collections.abc import Callable

from dyncomp.bytecode.canonical import Op, canonical
from dyncomp.errors import GraphBreak
from dyncomp.interp.handlers.registry import family, handler
from dyncomp.interp.machine import Frame
from dyncomp.interp.raising_branches import granted_truth
from dyncomp.values.base import PyRaise, Value
from dyncomp.values.exception import note_attribute_error
from dyncomp.values.function import BoundMethodValue
from dyncomp.values.operators import binary, compare, is_same
from dyncomp.values.text import format_value


def _unary(op_text: str) -> Callable[[Frame, Op], None]:
    def apply(frame: Frame, op: Op) -> None:
        frame.push(frame.pop().unary(frame.trace, op_text))

    return apply


family("UNARY_NEGATIVE", _unary("-"))
family("UNARY_INVERT", _unary("~"))
family("UNARY_POSITIVE", _unary("+"))


@handler
def unary_not(frame: Frame, op: Op) -> None:
    frame.push(frame.trace.constant(not frame.pop().truth(frame.trace)))


@handler
def to_bool(frame: Frame, op: Op) -> None:
    frame.push(frame.trace.constant(_truth(frame, op, frame.pop())))


def _truth(frame: Frame, op: Op, value: Value) -> bool:
    """From Python 3.13 on truth is asked before the jump that follows."""
    try:
        return value.truth(frame.trace)
    except GraphBreak:
        following = canonical(frame.code).ops[op.index + 1]
        granted = granted_truth(frame, following, value) if following.name in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE") else None
        if granted is None:
            raise
        return granted


@handler
def binary_op(frame: Frame, op: Op) -> None:
    right, left = frame.pop(), frame.pop()
    frame.push(binary(frame.trace, op.argval, left, right, inplace=op.flag))


@handler
def compare_op(frame: Frame, op: Op) -> None:
    right, left = frame.pop(), frame.pop()
    result = compare(frame.trace, op.argval, left, right)
    frame.push(frame.trace.constant(_truth(frame, op, result)) if op.flag else result)


@handler
def is_op(frame: Frame, op: Op) -> None:
    right, left = frame.pop(), frame.pop()
    frame.push(frame.trace.constant(is_same(frame.trace, left, right) is not op.flag))


@handler
def contains_op(frame: Frame, op: Op) -> None:
    container, item = frame.pop(), frame.pop()
    found = container.contains(frame.trace, item).truth(frame.trace)
    frame.push(frame.trace.constant(found is not op.flag))


# -- subscripts ----------------------------------------------------------------------------------------------
@handler
def binary_subscr(frame: Frame, op: Op) -> None:
    key, container = frame.pop(), frame.pop()
    frame.push(container.getitem(frame.trace, key))


@handler
def store_subscr(frame: Frame, op: Op) -> None:
    key, container, value = frame.pop(), frame.pop(), frame.pop()
    container.setitem(frame.trace, key, value)


@handler
def delete_subscr(frame: Frame, op: Op) -> None:
    key, container = frame.pop(), frame.pop()
    container.delitem(frame.trace, key)


@handler
def build_slice(frame: Frame, op: Op) -> None:
    frame.push(frame.trace.slice_of(frame.popn(op.arg)))


@handler
def binary_slice(frame: Frame, op: Op) -> None:
    bounds = frame.popn(2)
    frame.push(frame.pop().getitem(frame.trace, frame.trace.slice_of(bounds)))


@handler
def store_slice(frame: Frame, op: Op) -> None:
    bounds = frame.popn(2)
    container, value = frame.pop(), frame.pop()
    container.setitem(frame.trace, frame.trace.slice_of(bounds), value)


# -- attributes ----------------------------------------------------------------------------------------------
@handler
def load_attr(frame: Frame, op: Op) -> None:
    owner = frame.pop()
    try:
        value = owner.getattr(frame.trace, op.argval)
    except PyRaise as error:
        note_attribute_error(frame.trace, error.value, owner, op.argval)
        raise
    push_attribute(frame, op, value)


def push_attribute(frame: Frame, op: Op, value: Value) -> None:
    """A method call finds its function and receiver apart, as CPython does where the method is a plain
    function."""
    if op.is_method and isinstance(value, BoundMethodValue):
        frame.push_callable(op, value.function, value.receiver)
    elif op.is_method:
        frame.push_callable(op, value)
    else:
        frame.push(value)


@handler
def store_attr(frame: Frame, op: Op) -> None:
    target, value = frame.pop(), frame.pop()
    target.setattr(frame.trace, op.argval, value)


@handler
def delete_attr(frame: Frame, op: Op) -> None:
    frame.pop().delattr(frame.trace, op.argval)


@handler
def load_super_attr(frame: Frame, op: Op) -> None:
    receiver, cls, super_ = frame.pop(), frame.pop(), frame.pop()
    found = frame.trace.call(super_, [cls, receiver]).getattr(frame.trace, op.argval)
    push_attribute(frame, op, found)


# -- text ----------------------------------------------------------------------------------------------------
@handler
def format_value_(frame: Frame, op: Op) -> None:
    spec = frame.pop() if op.flag else frame.trace.constant("")
    frame.push(format_value(frame.trace, frame.pop(), op.argval, spec))


@handler
def convert_value(frame: Frame, op: Op) -> None:
    frame.push(format_value(frame.trace, frame.pop(), op.argval, frame.trace.constant("")))


@handler
def build_string(frame: Frame, op: Op) -> None:
    parts = frame.popn(op.arg)
    text = frame.trace.constant("")
    for part in parts:
        text = binary(frame.trace, "+", text, part)
    frame.push(text)
