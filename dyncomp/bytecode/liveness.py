"""Which variables may still be read, in front of each raw instruction.

In:  [Instruction]
Out: [frozenset of names]; cells and free variables count as variables by their slot's name

Plain backward data flow; an instruction inside a `try` also flows to its handler.
"""

from __future__ import annotations

from dyncomp.bytecode.flow import Flow
from dyncomp.bytecode.instruction import Instruction
from dyncomp.bytecode.opcodes import OPERANDS, Operand

_WRITES_ONLY = frozenset({"STORE_FAST"})
# DELETE_FAST reads: it raises if the variable is unbound.
_READS_AND_UNBINDS = frozenset({"DELETE_FAST", "LOAD_FAST_AND_CLEAR"})


def live_variables(instructions: list[Instruction]) -> list[frozenset[str]]:
    """Live names before each instruction."""
    flow = Flow(instructions)
    count = len(instructions)
    names = sorted({i.argval for i in instructions if OPERANDS.get(i.opname) is Operand.LOCAL})
    bit = {name: 1 << k for k, name in enumerate(names)}
    reads, keeps = _effects(instructions, bit)
    successors = [[j for j in (flow.next(i), flow.jump(i)) if j is not None] for i in range(count)]
    handlers = [flow.handler(i) for i in range(count)]
    live = [0] * count
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            out = 0
            for j in successors[i]:
                out |= live[j]
            new = reads[i] | (out & keeps[i])
            handler = handlers[i]
            if handler is not None:
                new |= live[handler]
            if new != live[i]:
                live[i], changed = new, True
    cache: dict[int, frozenset[str]] = {}
    for bits in live:
        if bits not in cache:
            cache[bits] = frozenset(name for name in names if bits & bit[name])
    return [cache[bits] for bits in live]


def _effects(instructions: list[Instruction], bit: dict[str, int]) -> tuple[list[int], list[int]]:
    """Per instruction: the variables it reads, and a mask of those whose older value may be read after it."""
    reads, keeps = [], []
    for instruction in instructions:
        own = bit[instruction.argval] if OPERANDS.get(instruction.opname) is Operand.LOCAL else 0
        reads.append(0 if instruction.opname in _WRITES_ONLY else own)
        unbinds = instruction.opname in _WRITES_ONLY or instruction.opname in _READS_AND_UNBINDS
        keeps.append(~own if unbinds else -1)
    return reads, keeps
