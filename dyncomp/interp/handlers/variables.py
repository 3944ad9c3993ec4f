"""Local, cell, global and builtin variables; imports."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import NoReturn

from dyncomp.bytecode.canonical import Op
from dyncomp.errors import GraphBreak
from dyncomp.interp.handlers.registry import family, handler
from dyncomp.interp.machine import NULL, Frame
from dyncomp.values.base import Value
from dyncomp.values.exception import ExceptionValue
from dyncomp.values.function import CellValue


def _unbound(frame: Frame, name: str) -> None:
    frame.trace.raise_(
        UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value"
    )


def _unknown(frame: Frame, name: str, text: str) -> NoReturn:
    trace = frame.trace
    trace.raise_value(ExceptionValue(NameError, [trace.constant(text)], {"name": trace.constant(name)}))


@handler
def load_fast(frame: Frame, op: Op) -> None:
    value = frame.variable(op.argval)
    if value is None:
        _unbound(frame, op.argval)
    else:
        frame.push(value)


@handler
def load_fast_and_clear(frame: Frame, op: Op) -> None:
    """Comprehensions keep the outer variable of the same name on the stack; NULL if there is none."""
    if op.argval in frame.cells:
        frame.stack.append(frame.cells.pop(op.argval))
    else:
        frame.stack.append(frame.variables.pop(op.argval, NULL))


@handler
def store_fast(frame: Frame, op: Op) -> None:
    value = frame.pop()
    if value is NULL:
        frame.variables.pop(op.argval, None)
        frame.cells.pop(op.argval, None)
    elif isinstance(value, CellValue) and op.argval in _cell_names(frame):
        frame.cells[op.argval] = value
    else:
        frame.variables[op.argval] = value


def _cell_names(frame: Frame) -> tuple[str, ...]:
    return (*frame.code.co_cellvars, *frame.code.co_freevars)


@handler
def delete_fast(frame: Frame, op: Op) -> None:
    if frame.variables.pop(op.argval, None) is None:
        _unbound(frame, op.argval)


# -- cells ---------------------------------------------------------------------------------------------------
@handler
def make_cell(frame: Frame, op: Op) -> None:
    value = frame.variable(op.argval)
    frame.variables.pop(op.argval, None)
    frame.cells[op.argval] = CellValue(value)


@handler
def copy_free_vars(frame: Frame, op: Op) -> None:
    cells = frame.function.cells(frame.trace)
    frame.cells.update(zip(frame.code.co_freevars, cells, strict=True))


@handler
def load_closure(frame: Frame, op: Op) -> None:
    frame.stack.append(frame.cells[op.argval])


@handler
def load_deref(frame: Frame, op: Op) -> None:
    contents = frame.cells[op.argval].contents
    if contents is None:
        if op.argval in frame.code.co_freevars:
            _unknown(
                frame,
                op.argval,
                f"cannot access free variable '{op.argval}' where it is not associated with a value in "
                "enclosing scope",
            )
        _unbound(frame, op.argval)
    else:
        frame.push(contents)


@handler
def store_deref(frame: Frame, op: Op) -> None:
    frame.cells[op.argval].set(frame.trace, frame.pop())


@handler
def delete_deref(frame: Frame, op: Op) -> None:
    cell = frame.cells[op.argval]
    if cell.contents is None:
        _unbound(frame, op.argval)
    cell.set(frame.trace, None)


# -- globals -------------------------------------------------------------------------------------------------
def find_global(frame: Frame, name: str) -> Value:
    value = frame.globals().find_name(frame.trace, name)
    if value is None:
        value = frame.trace.builtins_of(frame.function).find_name(frame.trace, name)
    if value is None:
        _unknown(frame, name, f"name '{name}' is not defined")
    return value


@handler
def load_global(frame: Frame, op: Op) -> None:
    frame.push_callable(op, find_global(frame, op.argval))


@handler
def store_global(frame: Frame, op: Op) -> None:
    frame.globals().store(frame.trace, frame.trace.constant(op.argval), frame.pop())


@handler
def delete_global(frame: Frame, op: Op) -> None:
    name = frame.trace.constant(op.argval)
    if frame.globals().find(frame.trace, name) is None:
        _unknown(frame, op.argval, f"name '{op.argval}' is not defined")
    frame.globals().remove(frame.trace, name)


@handler
def load_build_class(frame: Frame, op: Op) -> None:
    raise GraphBreak("unsupported-opcode", "a class statement")


@handler
def load_assertion_error(frame: Frame, op: Op) -> None:
    frame.push(frame.trace.constant(AssertionError))


# -- imports -------------------------------------------------------------------------------------------------
@handler
def import_name(frame: Frame, op: Op) -> None:
    """Importing twice does nothing, so the import is done while tracing."""
    names, level = frame.pop(), frame.pop().as_constant()
    package = frame.function.globals.get("__package__") or frame.function.globals.get("__name__", "")
    wanted = "." * level + op.argval
    try:
        full = importlib.util.resolve_name(wanted, package) if level else op.argval
        module = importlib.import_module(full)
    except ImportError as error:
        frame.trace.raise_real(error)
    if not level and not names.as_constant():
        module = sys.modules[full.partition(".")[0]]
    frame.push(frame.trace.constant(module))


@handler
def import_from(frame: Frame, op: Op) -> None:
    module = frame.stack[-1]
    real = module.as_constant()
    if not hasattr(real, op.argval):
        full = f"{real.__name__}.{op.argval}"
        try:
            importlib.import_module(full)
        except ImportError:
            frame.trace.raise_(ImportError, f"cannot import name {op.argval!r} from {real.__name__!r}")
    frame.push(module.getattr(frame.trace, op.argval))


def load_locals(frame: Frame, op: Op) -> None:
    raise GraphBreak("unsupported-opcode", "a class body or exec")


for _name in (
    "LOAD_NAME",
    "STORE_NAME",
    "DELETE_NAME",
    "LOAD_LOCALS",
    "LOAD_FROM_DICT_OR_GLOBALS",
    "LOAD_FROM_DICT_OR_DEREF",
    "LOAD_CLASSDEREF",
    "SETUP_ANNOTATIONS",
    "IMPORT_STAR",
    "PRINT_EXPR",
):
    family(_name, load_locals)
