"""How the running Python spells an operation: abstract operation -> [Instruction].

Calls are spelt from a stack of `[callable, argument, ...]`, without the null that compiled code keeps beside
a callable: a callable with its first argument is just what a method call looks like.
"""

from __future__ import annotations

from typing import Any

from dyncomp.bytecode.instruction import Instruction
from dyncomp.bytecode.opcodes import CLOSURE_FLAG, DEFAULTS_FLAG, NULL_FIRST, OPCODES


def op(opname: str, arg: int = 0, argval: Any = None) -> Instruction:
    return Instruction(opname, arg, argval)


def load_const(value: Any) -> Instruction:
    return Instruction("LOAD_CONST", 0, value)


def load_fast(name: str) -> Instruction:
    return Instruction("LOAD_FAST", 0, name)


def store_fast(name: str) -> Instruction:
    return Instruction("STORE_FAST", 0, name)


def delete_fast(name: str) -> Instruction:
    return Instruction("DELETE_FAST", 0, name)


def load_slot(name: str) -> Instruction:
    """Pushes what lies in a variable's slot: for a cell or free variable, the cell itself."""
    return Instruction("LOAD_CLOSURE" if "LOAD_CLOSURE" in OPCODES else "LOAD_FAST", 0, name)


def load_attr(name: str) -> Instruction:
    return Instruction("LOAD_ATTR", 0, name)


def jump(target: Instruction) -> Instruction:
    return Instruction("JUMP", 0, target)


def add_null() -> list[Instruction]:
    """[callable] -> the pair under the arguments of a CALL."""
    return [op("PUSH_NULL"), op("SWAP", 2)] if NULL_FIRST else [op("PUSH_NULL")]


def call(count: int, kw_names: tuple[str, ...] = ()) -> list[Instruction]:
    """[callable, argument * count] -> [result]; the last arguments are those of `kw_names`."""
    before = add_null() if count == 0 else []
    written = max(count - 1, 0)
    if kw_names and "CALL_KW" in OPCODES:
        return [*before, load_const(kw_names), op("CALL_KW", written)]
    names = [Instruction("KW_NAMES", 0, kw_names)] if kw_names else []
    pre = [op("PRECALL", written)] if "PRECALL" in OPCODES else []
    return [*before, *names, *pre, op("CALL", written)]


def make_function(closure: bool = False, defaults: bool = False) -> list[Instruction]:
    """[tuple of defaults if any, tuple of cells if any, code] -> [function]"""
    flags = [flag for flag, wanted in ((CLOSURE_FLAG, closure), (DEFAULTS_FLAG, defaults)) if wanted]
    if "SET_FUNCTION_ATTRIBUTE" in OPCODES:
        return [op("MAKE_FUNCTION"), *(op("SET_FUNCTION_ATTRIBUTE", flag) for flag in flags)]
    return [op("MAKE_FUNCTION", sum(flags))]


def with_explicit_null(instruction: Instruction) -> list[Instruction]:
    """The same load with the null of its call always a null, where the original may push method and self
    instead.

    LOAD_ATTR x (method) -> LOAD_ATTR x, null
    """
    opname = "LOAD_ATTR" if instruction.opname == "LOAD_METHOD" else instruction.opname
    plain = Instruction(opname, instruction.arg & ~1, instruction.argval)
    rest = add_null()
    for new in (plain, *rest):
        new.positions, new.handler = instruction.positions, instruction.handler
    return [plain, *rest]


def pushes_null(instruction: Instruction) -> bool:
    """True for loads that push a callable together with the null, or the self, of its call."""
    if instruction.opname == "LOAD_METHOD":
        return True
    return instruction.opname in ("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_SUPER_ATTR") and bool(instruction.arg & 1)
