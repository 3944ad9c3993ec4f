"""Jumps, and instructions that no function body has."""

from __future__ import annotations

from collections.abc import Callable

from dyncomp.bytecode.canonical import Op
from dyncomp.errors import GraphBreak
from dyncomp.interp.handlers.registry import breaks, family, handler
from dyncomp.interp.machine import Frame
from dyncomp.interp.raising_branches import granted_truth
from dyncomp.values.base import Value


@handler
def jump(frame: Frame, op: Op) -> None:
    frame.jump(op.target)


def _is_none(frame: Frame, value: Value) -> bool:
    return value.python_type() is type(None)


def _is_true(frame: Frame, value: Value) -> bool:
    return value.truth(frame.trace)


def _pop_jump(test: Callable[[Frame, Value], bool], wanted: bool) -> Callable[[Frame, Op], None]:
    def jump_if(frame: Frame, op: Op) -> None:
        condition = frame.pop()
        try:
            truth = test(frame, condition)
        except GraphBreak:
            granted = granted_truth(frame, op, condition) if test is _is_true else None
            if granted is None:
                raise
            truth = granted
        if truth is wanted:
            frame.jump(op.target)

    return jump_if


def _jump_or_pop(wanted: bool) -> Callable[[Frame, Op], None]:
    def jump_if(frame: Frame, op: Op) -> None:
        if frame.stack[-1].truth(frame.trace) is wanted:
            frame.jump(op.target)
        else:
            frame.pop()

    return jump_if


family("POP_JUMP_IF_TRUE", _pop_jump(_is_true, True))
family("POP_JUMP_IF_FALSE", _pop_jump(_is_true, False))
family("POP_JUMP_IF_NONE", _pop_jump(_is_none, True))
family("POP_JUMP_IF_NOT_NONE", _pop_jump(_is_none, False))
family("JUMP_IF_TRUE_OR_POP", _jump_or_pop(True))
family("JUMP_IF_FALSE_OR_POP", _jump_or_pop(False))


breaks("unsupported-opcode", "exception groups (`except*`)", "CHECK_EG_MATCH", "PREP_RERAISE_STAR")
breaks(
    "unsupported-opcode",
    "type parameters and type aliases",
    "TYPEVAR",
    "PARAMSPEC",
    "TYPEVARTUPLE",
    "SUBSCRIPT_GENERIC",
    "TYPEALIAS",
    "TYPEVAR_WITH_BOUND",
    "TYPEVAR_WITH_CONSTRAINTS",
    "SET_FUNCTION_TYPE_PARAMS",
    "SET_TYPEPARAM_DEFAULT",
)
breaks(
    "unsupported-opcode",
    "an instruction that no function body has",
    "PRINT",
    "INTERPRETER_EXIT",
    "RESERVED",
    "ENTER_EXECUTOR",
    "EXIT_INIT_CHECK",
    "CALL_INTRINSIC_1",
    "CALL_INTRINSIC_2",
)
