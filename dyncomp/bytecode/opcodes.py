"""Facts about the opcodes of the running CPython (3.11, 3.12, 3.13), as tables.

All differences between the versions that decoding and assembling must know are here; `canonical.py` holds the
tables that give the interpreter one view of them.
"""

from __future__ import annotations

import dis
import enum
import opcode
import sys

VERSION = sys.version_info[:2]


class Operand(enum.Enum):
    """What an instruction's operand means, and so what `Instruction.argval` holds."""

    NONE = enum.auto()
    NUMBER = enum.auto()  # a count, an index or flags; argval unused
    CONST = enum.auto()  # argval: the constant
    NAME = enum.auto()  # argval: the name in co_names; the low NAME_SHIFT bits stay in arg
    LOCAL = enum.auto()  # argval: the variable's name (a slot of locals, cells and free variables)
    JUMP = enum.auto()  # argval: the target Instruction


# Opcodes that a code object can hold: specialised and instrumented forms never show in `co_code`.
OPCODES: dict[str, int] = {
    name: code for name, code in dis.opmap.items() if code < 256 and not name.startswith("INSTRUMENTED_")
}
NAMES: list[str] = [f"<{code}>" for code in range(256)]
for _name, _code in OPCODES.items():
    NAMES[_code] = _name


def _cache_entries() -> dict[str, int]:
    table = opcode._inline_cache_entries  # type: ignore[attr-defined]
    items = table.items() if isinstance(table, dict) else ((opcode.opname[i], n) for i, n in enumerate(table))
    return {name: n for name, n in items if n and name in OPCODES}


# Inline cache units that follow an instruction.
CACHES: dict[str, int] = _cache_entries()

# Low operand bits that are flags beside a name index.
NAME_SHIFT: dict[str, int] = {
    (3, 11): {"LOAD_GLOBAL": 1},
    (3, 12): {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
    (3, 13): {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
}[VERSION]

# Two variables in one operand: how such an instruction is spelt as two.
PAIRS: dict[str, tuple[str, str]] = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}

BACKWARD = frozenset(name for name in OPCODES if "JUMP_BACKWARD" in name)

# Instructions that never go on to the next one.
TERMINAL = frozenset(
    {
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "INTERPRETER_EXIT",
    }
)

# Where the null of a call sits: before the callable (True) or after it.
NULL_FIRST: bool = VERSION < (3, 13)

# Of MAKE_FUNCTION (3.11, 3.12) and SET_FUNCTION_ATTRIBUTE (3.13).
DEFAULTS_FLAG, CLOSURE_FLAG = 1, 8

# After the loop's end FOR_ITER skips these (they are there for generators that the interpreter runs inline).
FOR_ITER_SKIPS: tuple[str, ...] = {(3, 11): (), (3, 12): ("END_FOR",), (3, 13): ("END_FOR", "POP_TOP")}[
    VERSION
]

# Index of a COMPARE_OP's operator in its operand, and the operand's bit that asks for a bool.
COMPARE_SHIFT: int = {(3, 11): 0, (3, 12): 4, (3, 13): 5}[VERSION]
COMPARE_BOOL_BIT: int = {(3, 11): 0, (3, 12): 0, (3, 13): 16}[VERSION]
COMPARE_OPERATORS: tuple[str, ...] = ("<", "<=", "==", "!=", ">", ">=")

_OPERATORS = opcode._nb_ops  # type: ignore[attr-defined]
BINARY_OPERATORS: tuple[str, ...] = tuple(symbol for _, symbol in _OPERATORS)

INTRINSICS_1: dict[int, str] = {
    1: "PRINT",
    2: "IMPORT_STAR",
    3: "STOPITERATION_ERROR",
    4: "ASYNC_GEN_WRAP",
    5: "UNARY_POSITIVE",
    6: "LIST_TO_TUPLE",
    7: "TYPEVAR",
    8: "PARAMSPEC",
    9: "TYPEVARTUPLE",
    10: "SUBSCRIPT_GENERIC",
    11: "TYPEALIAS",
}
INTRINSICS_2: dict[int, str] = {
    1: "PREP_RERAISE_STAR",
    2: "TYPEVAR_WITH_BOUND",
    3: "TYPEVAR_WITH_CONSTRAINTS",
    4: "SET_FUNCTION_TYPE_PARAMS",
    5: "SET_TYPEPARAM_DEFAULT",
}


def _operands() -> dict[str, Operand]:
    table: dict[str, Operand] = {}
    for name, code in OPCODES.items():
        if name in PAIRS:
            table[name] = Operand.LOCAL
        elif code in opcode.hasjrel or code in opcode.hasjabs:
            table[name] = Operand.JUMP
        elif code in opcode.hasconst:
            table[name] = Operand.CONST
        elif code in opcode.hasname:
            table[name] = Operand.NAME
        elif code in opcode.haslocal or code in opcode.hasfree:
            table[name] = Operand.LOCAL
        else:
            table[name] = Operand.NUMBER if takes_argument(code) else Operand.NONE
    return table


def takes_argument(code: int) -> bool:
    has_arg: list[int] | None = getattr(opcode, "hasarg", None)
    return code in has_arg if has_arg else code >= dis.HAVE_ARGUMENT


OPERANDS: dict[str, Operand] = _operands()
