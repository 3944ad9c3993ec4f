"""Code object -> list of `Instruction`.

In:  the bytes of `co_code`, `co_exceptiontable` and the positions table
Out: [Instruction]: no CACHE, no EXTENDED_ARG, no two-variable or return-constant forms; jump targets and
     exception handlers are links to other instructions of the list

With `split=False` the two-variable and return-constant forms stay, so that assembling gives the same bytes.
"""

from __future__ import annotations

import types
from collections.abc import Iterator

from dyncomp.bytecode.instruction import Handler, Instruction
from dyncomp.bytecode.opcodes import BACKWARD, CACHES, NAME_SHIFT, NAMES, OPERANDS, PAIRS, Operand


def decode(code: types.CodeType, split: bool = True) -> list[Instruction]:
    """The instructions of `code` in order, linked."""
    positions = list(code.co_positions())
    slots = slot_names(code)
    instructions: list[Instruction] = []
    by_offset: dict[int, Instruction] = {}
    jumps: list[tuple[Instruction, int]] = []
    for start, offset, opname, arg, following in _units(code.co_code):
        first = len(instructions)
        place = positions[offset // 2]
        kind = OPERANDS[opname]
        if opname in PAIRS:
            one, two = PAIRS[opname]
            if split:
                instructions.append(Instruction(one, 0, slots[arg >> 4], place, offset=offset))
                instructions.append(Instruction(two, 0, slots[arg & 15], place, offset=offset))
            else:
                names = (slots[arg >> 4], slots[arg & 15])
                instructions.append(Instruction(opname, 0, names, place, offset=offset))
        elif opname == "RETURN_CONST" and split:
            instructions.append(Instruction("LOAD_CONST", 0, code.co_consts[arg], place, offset=offset))
            instructions.append(Instruction("RETURN_VALUE", 0, None, place, offset=offset))
        else:
            instruction = Instruction(opname, arg, None, place, offset=offset)
            if kind is Operand.CONST:
                instruction.argval, instruction.arg = code.co_consts[arg], 0
            elif kind is Operand.NAME:
                shift = NAME_SHIFT.get(opname, 0)
                instruction.argval, instruction.arg = code.co_names[arg >> shift], arg & ((1 << shift) - 1)
            elif kind is Operand.LOCAL:
                instruction.argval, instruction.arg = slots[arg], 0
            elif kind is Operand.JUMP:
                jumps.append((instruction, following + (-2 if opname in BACKWARD else 2) * arg))
                instruction.arg = 0
            instructions.append(instruction)
        # a jump may aim at the EXTENDED_ARG in front
        by_offset[start] = by_offset[offset] = instructions[first]
    for instruction, target in jumps:
        instruction.argval = by_offset[target]
    _attach_handlers(code.co_exceptiontable, instructions, by_offset)
    return instructions


def slot_names(code: types.CodeType) -> list[str]:
    """The variables of a frame in slot order: locals, then cells that are not locals too, then free
    variables."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return [*code.co_varnames, *cells, *code.co_freevars]


def _units(data: bytes) -> Iterator[tuple[int, int, str, int, int]]:
    """(offset with its EXTENDED_ARGs, own offset, name, operand, offset of the next) of each instruction."""
    offset, size = 0, len(data)
    start, extended = 0, 0
    while offset < size:
        opname, arg = NAMES[data[offset]], data[offset + 1] | extended
        following = offset + 2 + 2 * CACHES.get(opname, 0)
        if opname == "EXTENDED_ARG":
            extended = arg << 8
        else:
            yield start, offset, opname, arg, following
            start, extended = following, 0
        offset = following


def exception_entries(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """(start, end, target, depth, push lasti) of each row, in byte offsets, end exclusive."""
    stream = iter(table)

    def number(byte: int) -> int:
        value = byte & 63
        while byte & 64:
            byte = next(stream)
            value = value << 6 | (byte & 63)
        return value

    for byte in stream:
        start = number(byte)
        length, target, rest = (number(next(stream)) for _ in range(3))
        yield start * 2, (start + length) * 2, target * 2, rest >> 1, bool(rest & 1)


def _attach_handlers(
    table: bytes, instructions: list[Instruction], by_offset: dict[int, Instruction]
) -> None:
    rows = [
        (start, end, Handler(by_offset[target], depth, lasti))
        for start, end, target, depth, lasti in exception_entries(table)
    ]
    position = 0
    for instruction in instructions:  # rows are sorted and do not overlap
        while position < len(rows) and rows[position][1] <= instruction.offset:
            position += 1
        if position < len(rows) and rows[position][0] <= instruction.offset:
            instruction.handler = rows[position][2]
