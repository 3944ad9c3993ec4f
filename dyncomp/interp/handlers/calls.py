"""Calls, function definitions and `with`."""

from __future__ import annotations

from typing import NoReturn

from dyncomp.bytecode.canonical import Op
from dyncomp.bytecode.opcodes import OPCODES
from dyncomp.errors import GraphBreak
from dyncomp.interp.handlers.registry import family, handler
from dyncomp.interp.machine import NULL, Frame
from dyncomp.values.base import ABSENT, PyRaise, Value
from dyncomp.values.class_facts import type_name
from dyncomp.values.exception import exception_triple
from dyncomp.values.function import CellValue, FunctionValue
from dyncomp.values.instance import InstanceValue
from dyncomp.values.mapping import pairs_of

# What MAKE_FUNCTION's operand asks for (3.11, 3.12), and SET_FUNCTION_ATTRIBUTE's (3.13).
_DEFAULTS, _KWDEFAULTS, _ANNOTATIONS, _CLOSURE = 1, 2, 4, 8


def _callee(frame: Frame) -> tuple[Value, list[Value]]:
    """The callable under the arguments, with its first argument if that lies apart."""
    upper, lower = frame.pop(), frame.pop()
    if lower is NULL:
        return upper, []
    if upper is NULL:
        return lower, []
    return lower, [upper]


@handler
def call(frame: Frame, op: Op) -> None:
    args = frame.popn(op.arg)
    names = op.kw_names
    fn, first = _callee(frame)
    positional = args[: len(args) - len(names)]
    keywords = dict(zip(names, args[len(args) - len(names) :], strict=True))
    frame.push(frame.trace.call(fn, [*first, *positional], keywords))


@handler
def call_function_ex(frame: Frame, op: Op) -> None:
    trace = frame.trace
    mapping = frame.pop() if op.flag else None
    args = frame.pop().unpack(trace)
    fn, first = _callee(frame)
    keywords: dict[str, Value] = {}
    for key, value in pairs_of(trace, mapping) if mapping is not None else ():
        name = key.as_constant()
        if not isinstance(name, str):
            trace.raise_(TypeError, "keywords must be strings")
        keywords[name] = value
    frame.push(trace.call(fn, [*first, *args], keywords))


def call_kw(frame: Frame, op: Op) -> None:
    raise GraphBreak("unsupported-opcode", "a call whose keyword names are computed")


family("CALL_KW", call_kw)


@handler
def make_function(frame: Frame, op: Op) -> None:
    code = frame.pop().as_constant()
    made = FunctionValue(code, frame.function.globals, frame.function.globals_source)
    for flag in (
        (_CLOSURE, _ANNOTATIONS, _KWDEFAULTS, _DEFAULTS) if "SET_FUNCTION_ATTRIBUTE" not in OPCODES else ()
    ):
        if op.arg & flag:
            _set_part(frame, made, flag, frame.pop())
    frame.push(made)


@handler
def set_function_attribute(frame: Frame, op: Op) -> None:
    made, part = frame.pop(), frame.pop()
    assert isinstance(made, FunctionValue)
    _set_part(frame, made, op.arg, part)
    frame.push(made)


def _set_part(frame: Frame, made: FunctionValue, flag: int, part: Value) -> None:
    if flag == _CLOSURE:
        made.made_cells = [cell for cell in part.unpack(frame.trace) if isinstance(cell, CellValue)]
    elif flag == _DEFAULTS:
        made.made_defaults = part.unpack(frame.trace)
    elif flag == _KWDEFAULTS:
        made.made_kwdefaults = {key.as_constant(): value for key, value in pairs_of(frame.trace, part)}
    elif flag == _ANNOTATIONS:
        flat = part.unpack(frame.trace)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        annotations = frame.trace.dict_of_pairs(list(pairs))
        made.setattr(frame.trace, "__annotations__", annotations)


# -- with ----------------------------------------------------------------------------------------------------
@handler
def before_with(frame: Frame, op: Op) -> None:
    manager = frame.pop()
    enter = _context_method(frame, manager, "__enter__")
    exit_ = _context_method(frame, manager, "__exit__")
    frame.push(exit_)
    frame.push(frame.trace.call(enter, []))


def _context_method(frame: Frame, manager: Value, name: str) -> Value:
    """Looked up on the class, as CPython does."""
    if isinstance(manager, InstanceValue):
        raw = manager.class_attribute(frame.trace, name)
        if raw is ABSENT:
            _no_context_manager(frame, manager, name)
        if isinstance(raw, type(_context_method)):
            return manager.bind(frame.trace, name, raw)
    try:
        return manager.getattr(frame.trace, name)
    except PyRaise as error:
        if not issubclass(error.value.python_type(), AttributeError):
            raise
    _no_context_manager(frame, manager, name)


def _no_context_manager(frame: Frame, manager: Value, name: str) -> NoReturn:
    text = f"'{type_name(manager.python_type())}' object does not support the context manager protocol"
    frame.trace.raise_(TypeError, text + (" (missed __exit__ method)" if name == "__exit__" else ""))


@handler
def with_except_start(frame: Frame, op: Op) -> None:
    """[exit, lasti, previous exception, exception] -> [..., exit(type, exception, traceback)]"""
    error, exit_ = frame.stack[-1], frame.stack[-4]
    trace = frame.trace
    frame.push(trace.call(exit_, exception_triple(trace, error)))
