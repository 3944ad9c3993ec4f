"""One view of the bytecode of all supported Pythons, for the symbolic interpreter.

In:  a code object
Out: `CanonicalCode`: a list of `Op`; targets are indices into it; each op knows its raw instructions, and
     every op is a place where a frame may stop and resume

What is unified (raw -> canonical):

    POP_JUMP_FORWARD_IF_*, POP_JUMP_BACKWARD_IF_*, POP_JUMP_IF_*  -> POP_JUMP_IF_{TRUE,FALSE,NONE,NOT_NONE}
    JUMP_FORWARD, JUMP_BACKWARD, JUMP_BACKWARD_NO_INTERRUPT       -> JUMP
    FOR_ITER                  target is after the loop's END_FOR, where the iterator is off the stack
    KW_NAMES PRECALL CALL; LOAD_CONST CALL_KW; CALL               -> CALL  arg: count, argval: keyword names
    CALL_FUNCTION_EX                                              flag: has **kwargs
    LOAD_METHOD; LOAD_ATTR with the method bit                    -> LOAD_ATTR flag: is_method
    LOAD_GLOBAL                                                   flag: push_null
    LOAD_SUPER_ATTR                                               flag: is_method, arg: 1 for super(a, b)
    LOAD_FAST, LOAD_FAST_CHECK                                    -> LOAD_FAST (always checks)
    LOAD_FAST of a cell for a closure, LOAD_CLOSURE               -> LOAD_CLOSURE
    COMPARE_OP                                                    argval: operator, flag: gives a bool
    IS_OP, CONTAINS_OP                                            flag: inverted
    BINARY_OP                                                     argval: operator without `=`, flag: in place
    FORMAT_SIMPLE, FORMAT_WITH_SPEC, FORMAT_VALUE                 -> FORMAT_VALUE
                                                                  argval: str, repr, ascii, None; flag: a spec
    CONVERT_VALUE                                                 argval: str, repr or ascii
    CALL_INTRINSIC_*, UNARY_POSITIVE, LIST_TO_TUPLE, ...          -> own names: UNARY_POSITIVE, ...
    RETURN_CONST              -> LOAD_CONST RETURN_VALUE
    LOAD_FAST_LOAD_FAST, ...  -> one op a variable

Inlined comprehensions (3.12 and later) save the slot of their variable with LOAD_FAST_AND_CLEAR and put it
back with STORE_FAST, and the slot may be that of a cell: then the cell itself goes to the stack and back, and
in between LOAD_FAST and STORE_FAST mean a plain variable, or MAKE_CELL makes a new cell.

A null beside a callable sits where the running Python has it (`Op.null`: "before" or "after" the value that
is pushed), so that stack depths agree with the raw code. A CALL handler takes both orders: of the two slots
under the arguments the null one is dropped; if neither is null, the lower is the callable and the upper its
first argument.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

from dyncomp.bytecode.code_table import CodeKey
from dyncomp.bytecode.decode import decode
from dyncomp.bytecode.instruction import NO_POSITIONS, Instruction, Positions
from dyncomp.bytecode.opcodes import (
    BINARY_OPERATORS,
    CLOSURE_FLAG,
    COMPARE_BOOL_BIT,
    COMPARE_OPERATORS,
    COMPARE_SHIFT,
    FOR_ITER_SKIPS,
    INTRINSICS_1,
    INTRINSICS_2,
    NULL_FIRST,
    OPCODES,
    OPERANDS,
    PAIRS,
    Operand,
)

NULL_PLACE = "before" if NULL_FIRST else "after"

CONVERSIONS: dict[int, Callable[[Any], str] | None] = {0: None, 1: str, 2: repr, 3: ascii}


@dataclasses.dataclass(frozen=True, slots=True)
class OpHandler:
    """Where an exception goes: the stack is cut to `depth`, then [lasti,] exception are pushed."""

    target: int
    depth: int
    push_lasti: bool


@dataclasses.dataclass(eq=False, slots=True)
class Op:
    """One canonical instruction. Which of `arg`, `argval`, `flag` and `target` count is told in the table
    above."""

    name: str
    arg: int = 0
    argval: Any = None
    flag: bool = False
    null: str = ""  # "before" or "after": a null is pushed there beside the value
    target: int = -1
    handler: OpHandler | None = None
    index: int = -1
    raw: tuple[Instruction, ...] = ()

    @property
    def positions(self) -> Positions:
        return self.raw[-1].positions if self.raw else NO_POSITIONS

    @property
    def line(self) -> int | None:
        return self.positions[0]

    @property
    def is_method(self) -> bool:
        return self.flag and self.name in ("LOAD_ATTR", "LOAD_SUPER_ATTR")

    @property
    def push_null(self) -> bool:
        return bool(self.null)

    @property
    def kw_names(self) -> tuple[str, ...]:
        return self.argval or ()

    def __str__(self) -> str:
        if self.target >= 0:
            operand = f"-> {self.target}"
        else:
            operand = "" if self.argval is None and self.name != "LOAD_CONST" else repr(self.argval)
        flags = " ".join(filter(None, ("flag" if self.flag else "", self.null and f"null {self.null}")))
        return f"{self.index:4} {self.name:24} {self.arg or '':>3} {operand} {flags}".rstrip()


@dataclasses.dataclass(eq=False, slots=True)
class CanonicalCode:
    code: types.CodeType
    ops: list[Op]
    instructions: list[Instruction]  # the raw list that `Op.raw` points into

    def raw_index(self, op: Op) -> int:
        """Place of the op's first raw instruction."""
        return self.instructions.index(op.raw[0])

    def place(self, op: Op) -> Positions:
        """The op's positions; cleanup code has none, and takes those of what stands before it."""
        for index in range(op.index, -1, -1):
            if self.ops[index].line is not None:
                return self.ops[index].positions
        return (self.code.co_firstlineno, self.code.co_firstlineno, None, None)

    def __str__(self) -> str:
        return "\n".join(map(str, self.ops))


@functools.lru_cache(maxsize=4096)
def _cached(key: CodeKey) -> CanonicalCode:
    return _canonical(key.code)


def canonical(code: types.CodeType) -> CanonicalCode:
    """The canonical view of `code`; shared, so do not change it."""
    return _cached(CodeKey(code))


def _canonical(code: types.CodeType) -> CanonicalCode:
    instructions = decode(code)
    cells = frozenset(code.co_cellvars) | frozenset(code.co_freevars)
    targets = {id(i.argval) for i in instructions if OPERANDS[i.opname] is Operand.JUMP}
    ops: list[Op] = []
    first_of: dict[int, int] = {}  # id of a raw instruction -> index of the op it belongs to
    position = 0
    while position < len(instructions):
        count = _group_size(instructions, position, targets)
        raw = tuple(instructions[position : position + count])
        op = _translate(raw)
        if op.argval in cells and op.name == "LOAD_FAST" and _loads_for_closure(instructions, position):
            op.name = "LOAD_CLOSURE"
        op.index, op.raw = len(ops), raw
        for instruction in raw:
            first_of[id(instruction)] = op.index
        ops.append(op)
        position += count
    for op in ops:
        _link(op, ops, first_of)
    return CanonicalCode(code, ops, instructions)


def _group_size(instructions: list[Instruction], position: int, targets: set[int]) -> int:
    """How many raw instructions make one op: a call with what names its keywords, else one."""
    names = [i.opname for i in instructions[position : position + 3]]
    if names[0] == "KW_NAMES":
        return names.index("CALL") + 1
    if names[:2] == ["PRECALL", "CALL"]:
        return 2
    if names[:2] == ["LOAD_CONST", "CALL_KW"] and id(instructions[position + 1]) not in targets:
        return 2
    return 1


def _link(op: Op, ops: list[Op], first_of: dict[int, int]) -> None:
    last = op.raw[-1]
    if isinstance(last.argval, Instruction):
        op.target = first_of[id(last.argval)]
        if op.name == "FOR_ITER":
            for skipped in FOR_ITER_SKIPS:
                if ops[op.target].name != skipped:
                    raise ValueError(f"{skipped} expected after a loop, found {ops[op.target]}")
                op.target += 1
    if last.handler is not None:
        handler = last.handler
        op.handler = OpHandler(first_of[id(handler.target)], handler.depth, handler.push_lasti)


def _loads_for_closure(instructions: list[Instruction], position: int) -> bool:
    """True for a load of a cell for a new function's closure: loads, BUILD_TUPLE, LOAD_CONST, then the
    function.

    3.13 writes LOAD_FAST for it, and also for the variable of an inlined comprehension in the cell's slot.
    """
    while instructions[position].opname == "LOAD_FAST":
        position += 1
    names = [i.opname for i in instructions[position : position + 4]]
    return names == ["BUILD_TUPLE", "LOAD_CONST", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"] and (
        instructions[position + 3].arg == CLOSURE_FLAG
    )


def _translate(raw: tuple[Instruction, ...]) -> Op:
    last = raw[-1]
    special = _SPECIAL.get(last.opname)
    if special is not None:
        return special(raw)
    name = RENAMED.get(last.opname, last.opname)
    return Op(name, last.arg, None if isinstance(last.argval, Instruction) else last.argval)


RENAMED: dict[str, str] = {
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
    **{
        f"POP_JUMP_{way}_IF_{test}": f"POP_JUMP_IF_{test}"
        for way in ("FORWARD", "BACKWARD")
        for test in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
}


def _call(raw: tuple[Instruction, ...]) -> Op:
    names = next((i.argval for i in raw if i.opname in ("KW_NAMES", "LOAD_CONST")), ())
    return Op("CALL", raw[-1].arg, names)


def _call_kw(raw: tuple[Instruction, ...]) -> Op:
    # Alone, its keyword names are whatever lies on the stack.
    return _call(raw) if len(raw) == 2 else Op("CALL_KW", raw[0].arg)


def _load_global(raw: tuple[Instruction, ...]) -> Op:
    push_null = bool(raw[0].arg & 1)
    return Op("LOAD_GLOBAL", 0, raw[0].argval, push_null, NULL_PLACE if push_null else "")


def _load_attr(raw: tuple[Instruction, ...]) -> Op:
    is_method = raw[0].opname == "LOAD_METHOD" or bool(raw[0].arg & 1)
    return Op("LOAD_ATTR", 0, raw[0].argval, is_method, NULL_PLACE if is_method else "")


def _load_super_attr(raw: tuple[Instruction, ...]) -> Op:
    is_method = bool(raw[0].arg & 1)
    return Op(
        "LOAD_SUPER_ATTR", raw[0].arg >> 1 & 1, raw[0].argval, is_method, NULL_PLACE if is_method else ""
    )


def _compare(raw: tuple[Instruction, ...]) -> Op:
    arg = raw[0].arg
    return Op("COMPARE_OP", 0, COMPARE_OPERATORS[arg >> COMPARE_SHIFT], bool(arg & COMPARE_BOOL_BIT))


def _binary_op(raw: tuple[Instruction, ...]) -> Op:
    symbol = BINARY_OPERATORS[raw[0].arg]
    return Op("BINARY_OP", 0, symbol.removesuffix("="), symbol.endswith("="))


def _inverted(raw: tuple[Instruction, ...]) -> Op:
    return Op(raw[0].opname, flag=bool(raw[0].arg))


def _call_function_ex(raw: tuple[Instruction, ...]) -> Op:
    return Op("CALL_FUNCTION_EX", flag=bool(raw[0].arg & 1))


def _format_value(raw: tuple[Instruction, ...]) -> Op:
    return Op("FORMAT_VALUE", 0, CONVERSIONS[raw[0].arg & 3], bool(raw[0].arg & 4))


def _format_simple(raw: tuple[Instruction, ...]) -> Op:
    return Op("FORMAT_VALUE")


def _format_with_spec(raw: tuple[Instruction, ...]) -> Op:
    return Op("FORMAT_VALUE", flag=True)


def _convert_value(raw: tuple[Instruction, ...]) -> Op:
    return Op("CONVERT_VALUE", 0, CONVERSIONS[raw[0].arg])


def _intrinsic_1(raw: tuple[Instruction, ...]) -> Op:
    return Op(INTRINSICS_1[raw[0].arg])


def _intrinsic_2(raw: tuple[Instruction, ...]) -> Op:
    return Op(INTRINSICS_2[raw[0].arg])


_SPECIAL: dict[str, Callable[[tuple[Instruction, ...]], Op]] = {
    "CALL": _call,
    "CALL_KW": _call_kw,
    "CALL_FUNCTION_EX": _call_function_ex,
    "LOAD_GLOBAL": _load_global,
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_attr,
    "LOAD_SUPER_ATTR": _load_super_attr,
    "COMPARE_OP": _compare,
    "BINARY_OP": _binary_op,
    "IS_OP": _inverted,
    "CONTAINS_OP": _inverted,
    "FORMAT_VALUE": _format_value,
    "FORMAT_SIMPLE": _format_simple,
    "FORMAT_WITH_SPEC": _format_with_spec,
    "CONVERT_VALUE": _convert_value,
    "CALL_INTRINSIC_1": _intrinsic_1,
    "CALL_INTRINSIC_2": _intrinsic_2,
}


# Opcodes that no function's `co_code` shows to us: decoding takes them away, or only the interpreter itself
# uses them.
NOT_IN_CODE = frozenset(
    {"CACHE", "EXTENDED_ARG", "RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "EXIT_INIT_CHECK"}
)


def _names() -> frozenset[str]:
    names: set[str] = {"LOAD_CLOSURE"}
    for opname in OPCODES.keys() - NOT_IN_CODE - {"KW_NAMES", "PRECALL", "RETURN_CONST"}:
        if opname == "CALL_INTRINSIC_1":
            names.update(INTRINSICS_1.values())
        elif opname == "CALL_INTRINSIC_2":
            names.update(INTRINSICS_2.values())
        elif opname in PAIRS:
            names.update(PAIRS[opname])
        elif opname in _SPECIAL:
            names.add(_SPECIAL[opname]((Instruction(opname),)).name)
        else:
            names.add(RENAMED.get(opname, opname))
    return frozenset(names)


# Every op name that code of the running Python can hold.
NAMES: frozenset[str] = _names()
