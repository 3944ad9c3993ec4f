"""Control flow between raw instructions: where each may go next."""

from __future__ import annotations

from collections.abc import Iterator

from dyncomp.bytecode.instruction import Instruction
from dyncomp.bytecode.opcodes import TERMINAL


class Flow:
    """Successors in a list of instructions, by index."""

    def __init__(self, instructions: list[Instruction]):
        self.instructions = instructions
        self.index = {id(instruction): i for i, instruction in enumerate(instructions)}

    def jump(self, i: int) -> int | None:
        """Index of the jump target."""
        instruction = self.instructions[i]
        return self.index[id(instruction.argval)] if is_jump(instruction) else None

    def next(self, i: int) -> int | None:
        """Index of the instruction that follows when nothing jumps."""
        return (
            None if self.instructions[i].opname in TERMINAL or is_jump_always(self.instructions[i]) else i + 1
        )

    def handler(self, i: int) -> int | None:
        handler = self.instructions[i].handler
        return None if handler is None else self.index[id(handler.target)]

    def successors(self, i: int) -> Iterator[int]:
        """All of the above."""
        for j in (self.next(i), self.jump(i), self.handler(i)):
            if j is not None:
                yield j

    def reachable(self, start: int) -> set[int]:
        """What may run after the control arrives at `start`, itself included."""
        seen: set[int] = set()
        work = [start]
        while work:
            i = work.pop()
            if i not in seen:
                seen.add(i)
                work.extend(self.successors(i))
        return seen


def is_jump(instruction: Instruction) -> bool:
    return isinstance(instruction.argval, Instruction)


def is_jump_always(instruction: Instruction) -> bool:
    """True for the assembler's direction-free JUMP; raw jumps are in TERMINAL."""
    return instruction.opname == "JUMP"
