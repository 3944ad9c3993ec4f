"""Stack depth in front of each raw instruction.

In:  [Instruction]
Out: [int], None where the control never comes; `max_depth` is what `co_stacksize` must be at least
"""

from __future__ import annotations

from dyncomp.bytecode.flow import Flow
from dyncomp.bytecode.instruction import Instruction
from dyncomp.bytecode.opcodes import VERSION
from dyncomp.bytecode.stack_effect import raw_effect

# A generator's frame is entered for the second time with the sent value on its stack. 3.13 counts it as
# pushed by RETURN_GENERATOR; before that the compiler starts such code objects one higher.
_GENERATOR_START = 1 if VERSION < (3, 13) else 0


def stack_depths(instructions: list[Instruction]) -> list[int | None]:
    """Depths before each instruction; raises ValueError if two ways in disagree."""
    return _analyse(instructions)[0]


def max_depth(instructions: list[Instruction]) -> int:
    return _analyse(instructions)[1]


def _analyse(instructions: list[Instruction]) -> tuple[list[int | None], int]:
    flow = Flow(instructions)
    depths: list[int | None] = [None] * len(instructions)
    highest = 0
    is_generator = any(i.opname == "RETURN_GENERATOR" for i in instructions)
    work = [(0, _GENERATOR_START if is_generator else 0)]
    while work:
        i, depth = work.pop()
        if depths[i] is not None:
            if depths[i] != depth:
                raise ValueError(f"stack depth {depths[i]} or {depth} at {instructions[i]}")
            continue
        if depth < 0:
            raise ValueError(f"stack underflow before {instructions[i]}")
        depths[i] = depth
        instruction = instructions[i]
        handler = instruction.handler
        if handler is not None:
            work.append((flow.index[id(handler.target)], handler.depth + handler.push_lasti + 1))
        jump, following = flow.jump(i), flow.next(i)
        for j, jumped in ((jump, True), (following, False)):
            if j is not None:
                after = depth + raw_effect(instruction, jumped)
                highest = max(highest, after)
                work.append((j, after))
        highest = max(highest, depth)
    return depths, highest
