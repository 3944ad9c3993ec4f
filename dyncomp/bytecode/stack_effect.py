"""How far an instruction moves the stack: CPython's own table, for raw instructions and for canonical ops."""

from __future__ import annotations

import dis

from dyncomp.bytecode.canonical import Op
from dyncomp.bytecode.instruction import Instruction
from dyncomp.bytecode.opcodes import CACHES, OPCODES, OPERANDS, Operand, takes_argument

# FOR_ITER's raw target is the END_FOR that a loop's end skips; at the canonical target the iterator is gone.
_CANONICAL_JUMPS: dict[str, int] = {"FOR_ITER": -1}


def raw_effect(instruction: Instruction, jump: bool) -> int:
    """Change of depth by a raw instruction; a jump's arrival is seen at its raw target."""
    opname = instruction.opname
    code = OPCODES[opname]
    if not takes_argument(code):
        return dis.stack_effect(code, jump=jump)
    if OPERANDS[opname] is Operand.JUMP:
        return dis.stack_effect(code, 1, jump=jump)
    return dis.stack_effect(code, instruction.arg, jump=jump)


def op_effect(op: Op, jump: bool = False) -> int:
    """Change of depth by a canonical op; a handler that did its work leaves the stack at exactly this."""
    if jump and op.name in _CANONICAL_JUMPS:
        return _CANONICAL_JUMPS[op.name]
    return sum(raw_effect(instruction, jump) for instruction in op.raw)


def size_in_units(opname: str) -> int:
    """Code units of an instruction with its caches, EXTENDED_ARGs apart."""
    return 1 + CACHES.get(opname, 0)
