"""Building and unpacking containers; iteration."""

from __future__ import annotations

from dyncomp.bytecode.canonical import Op
from dyncomp.errors import GraphBreak
from dyncomp.interp.handlers.registry import handler
from dyncomp.interp.machine import Frame
from dyncomp.values.mapping import DictValue, pairs_of


@handler
def build_tuple(frame: Frame, op: Op) -> None:
    frame.push(frame.trace.tuple_of(frame.popn(op.arg)))


@handler
def build_list(frame: Frame, op: Op) -> None:
    frame.push(frame.trace.list_of(frame.popn(op.arg)))


@handler
def build_set(frame: Frame, op: Op) -> None:
    frame.push(frame.trace.set_of(frame.popn(op.arg)))


@handler
def build_map(frame: Frame, op: Op) -> None:
    flat = frame.popn(2 * op.arg)
    made = DictValue()
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        made.store(frame.trace, key, value)
    frame.push(made)


@handler
def build_const_key_map(frame: Frame, op: Op) -> None:
    keys = frame.pop().unpack(frame.trace)
    made = DictValue()
    for key, value in zip(keys, frame.popn(op.arg), strict=True):
        made.store(frame.trace, key, value)
    frame.push(made)


@handler
def list_append(frame: Frame, op: Op) -> None:
    item = frame.pop()
    frame.stack[-op.arg].call_method(frame.trace, "append", [item], {})


@handler
def set_add(frame: Frame, op: Op) -> None:
    item = frame.pop()
    frame.stack[-op.arg].call_method(frame.trace, "add", [item], {})


@handler
def map_add(frame: Frame, op: Op) -> None:
    value, key = frame.pop(), frame.pop()
    frame.stack[-op.arg].setitem(frame.trace, key, value)


@handler
def list_extend(frame: Frame, op: Op) -> None:
    other = frame.pop()
    frame.stack[-op.arg].call_method(frame.trace, "extend", [other], {})


@handler
def set_update(frame: Frame, op: Op) -> None:
    other = frame.pop()
    frame.stack[-op.arg].call_method(frame.trace, "update", [other], {})


@handler
def dict_update(frame: Frame, op: Op) -> None:
    other = frame.pop()
    frame.stack[-op.arg].call_method(frame.trace, "update", [other], {})


@handler
def dict_merge(frame: Frame, op: Op) -> None:
    """`**mapping` in a call: a name given twice is an error."""
    target = frame.stack[-1 - op.arg]
    for key, value in pairs_of(frame.trace, frame.pop()):
        if target.contains(frame.trace, key).truth(frame.trace):
            raise GraphBreak("eager-error", f"multiple values for the keyword argument {key.as_constant()!r}")
        target.setitem(frame.trace, key, value)


@handler
def list_to_tuple(frame: Frame, op: Op) -> None:
    frame.push(frame.trace.tuple_of(frame.pop().unpack(frame.trace)))


# -- unpacking -----------------------------------------------------------------------------------------------
@handler
def unpack_sequence(frame: Frame, op: Op) -> None:
    trace = frame.trace
    items = frame.pop().unpack(trace)
    if len(items) < op.arg:
        trace.raise_(ValueError, f"not enough values to unpack (expected {op.arg}, got {len(items)})")
    if len(items) > op.arg:
        trace.raise_(ValueError, f"too many values to unpack (expected {op.arg})")
    for item in reversed(items):
        frame.push(item)


@handler
def unpack_ex(frame: Frame, op: Op) -> None:
    before, after = op.arg & 0xFF, op.arg >> 8
    items = frame.pop().unpack(frame.trace)
    if len(items) < before + after:
        frame.trace.raise_(
            ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        )
    middle = items[before : len(items) - after]
    for item in reversed(items[len(items) - after :]):
        frame.push(item)
    frame.push(frame.trace.list_of(middle))
    for item in reversed(items[:before]):
        frame.push(item)


# -- iteration -----------------------------------------------------------------------------------------------
@handler
def get_iter(frame: Frame, op: Op) -> None:
    frame.push(frame.pop().iterate(frame.trace))


@handler
def for_iter(frame: Frame, op: Op) -> None:
    item = frame.stack[-1].next(frame.trace)
    if item is None:
        frame.pop()
        frame.jump(op.target)
    else:
        frame.push(item)


@handler
def get_len(frame: Frame, op: Op) -> None:
    frame.push(frame.stack[-1].length(frame.trace))
