"""[Instruction] -> code object.

In:  linked instructions; jumps may be written without direction (JUMP, POP_JUMP_IF_TRUE, ...)
Out: a code object: EXTENDED_ARG and CACHE units, tables of names and constants, line table, exception table,
     stack size

What the instructions do not say (name, flags, signature, ...) comes from a `Layout`.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any

from dyncomp.bytecode.depth import max_depth
from dyncomp.bytecode.flow import is_jump
from dyncomp.bytecode.instruction import Instruction
from dyncomp.bytecode.opcodes import BACKWARD, NAME_SHIFT, OPCODES, OPERANDS, PAIRS, Operand
from dyncomp.bytecode.stack_effect import size_in_units
from dyncomp.bytecode.tables import exception_table, line_table


@dataclasses.dataclass
class Layout:
    """Everything of a code object that is not in its instructions. Tables are extended by what these need
    more."""

    name: str
    qualname: str
    filename: str
    firstlineno: int
    flags: int
    varnames: tuple[str, ...] = ()  # parameters first
    cellvars: tuple[str, ...] = ()
    freevars: tuple[str, ...] = ()
    argcount: int = 0
    posonlyargcount: int = 0
    kwonlyargcount: int = 0
    consts: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, code: types.CodeType) -> Layout:
        """The layout of `code`, all tables included."""
        return cls(
            code.co_name,
            code.co_qualname,
            code.co_filename,
            code.co_firstlineno,
            code.co_flags,
            code.co_varnames,
            code.co_cellvars,
            code.co_freevars,
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_consts,
            code.co_names,
        )


def assemble(instructions: list[Instruction], layout: Layout) -> types.CodeType:
    """The code object. Sets the instructions' offsets and gives their jumps a direction."""
    _direct_jumps(instructions)
    tables = _Tables(layout)
    tables.declare_variables(instructions)
    operands = [0 if is_jump(i) else tables.operand(i) for i in instructions]
    prefixes, starts = _relax(instructions, operands)
    spans = [prefix + size_in_units(i.opname) for i, prefix in zip(instructions, prefixes, strict=True)]
    return types.CodeType(
        layout.argcount,
        layout.posonlyargcount,
        layout.kwonlyargcount,
        len(tables.varnames),
        max(max_depth(instructions), 1),
        layout.flags,
        _encode(instructions, operands, prefixes),
        tuple(tables.consts),
        tuple(tables.names),
        tuple(tables.varnames),
        layout.filename,
        layout.name,
        layout.qualname,
        layout.firstlineno,
        line_table(instructions, spans, layout.firstlineno),
        exception_table(instructions, starts, spans),
        layout.freevars,
        layout.cellvars,
    )


class _Tables:
    """Indices of names, constants and variables."""

    def __init__(self, layout: Layout):
        self.names, self.consts, self.varnames = (
            list(layout.names),
            list(layout.consts),
            list(layout.varnames),
        )
        self._name_index = {name: i for i, name in enumerate(self.names)}
        self._const_index: dict[Any, int] = {}
        for i, const in enumerate(self.consts):
            self._const_index.setdefault(_const_key(const), i)
        self._cells_and_frees = (layout.cellvars, layout.freevars)
        self._slots: dict[str, int] = {}

    def declare_variables(self, instructions: list[Instruction]) -> None:
        """Numbers the slots; variables that the layout does not know become locals."""
        cellvars, freevars = self._cells_and_frees
        known = {*self.varnames, *cellvars, *freevars}
        for instruction in instructions:
            if OPERANDS.get(instruction.opname) is Operand.LOCAL:
                for name in _variables(instruction):
                    if name not in known:
                        known.add(name)
                        self.varnames.append(name)
        only_cells = [name for name in cellvars if name not in self.varnames]
        slots = [*self.varnames, *only_cells, *freevars]
        self._slots = {name: i for i, name in enumerate(slots)}

    def operand(self, instruction: Instruction) -> int:
        """The raw operand of anything but a jump."""
        kind, value = OPERANDS[instruction.opname], instruction.argval
        if kind is Operand.CONST:
            return _index(self._const_index, self.consts, _const_key(value), value)
        if kind is Operand.NAME:
            shift = NAME_SHIFT.get(instruction.opname, 0)
            return _index(self._name_index, self.names, value, value) << shift | instruction.arg
        if kind is Operand.LOCAL:
            number = 0
            for name in _variables(instruction):
                number = number << 4 | self._slots[name]
            return number
        return instruction.arg


def _variables(instruction: Instruction) -> tuple[str, ...]:
    return instruction.argval if instruction.opname in PAIRS else (instruction.argval,)


def _index(index: dict[Any, int], items: list[Any], key: Any, item: Any) -> int:
    if key not in index:
        index[key] = len(items)
        items.append(item)
    return index[key]


def _const_key(value: Any) -> Any:
    """Equal for constants that may share an entry: small immutable ones by value, the rest by identity."""
    if value is None or type(value) in (int, str, bool):
        return type(value), value
    return id(value)


def _direct_jumps(instructions: list[Instruction]) -> None:
    """Picks the forward or backward form of each jump by where its target now lies."""
    index = {id(instruction): i for i, instruction in enumerate(instructions)}
    for i, instruction in enumerate(instructions):
        if not is_jump(instruction):
            continue
        backward = index[id(instruction.argval)] <= i
        opname = _DIRECTED.get((instruction.opname, backward), instruction.opname)
        if (opname in BACKWARD) is not backward:
            raise ValueError(f"{opname} cannot jump {'backward' if backward else 'forward'}")
        instruction.opname = opname


def _directed() -> dict[tuple[str, bool], str]:
    table = {
        (name, False): "JUMP_FORWARD" for name in ("JUMP", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
    }
    table |= {(name, True): "JUMP_BACKWARD" for name in ("JUMP", "JUMP_FORWARD")}
    for test in ("TRUE", "FALSE", "NONE", "NOT_NONE"):
        forward, back = f"POP_JUMP_FORWARD_IF_{test}", f"POP_JUMP_BACKWARD_IF_{test}"
        if forward in OPCODES:
            for name in (f"POP_JUMP_IF_{test}", forward, back):
                table[name, False], table[name, True] = forward, back
    return table


_DIRECTED: dict[tuple[str, bool], str] = _directed()


def _relax(instructions: list[Instruction], operands: list[int]) -> tuple[list[int], dict[int, int]]:
    """Fills in the jumps' operands; returns each instruction's EXTENDED_ARG count, and where it starts.

    Distances depend on the counts and counts on distances; counts only grow, so this ends.
    """
    prefixes = [_prefix(operand) for operand in operands]
    while True:
        starts: dict[int, int] = {}
        position = 0
        for instruction, prefix in zip(instructions, prefixes, strict=True):
            starts[id(instruction)] = position
            instruction.offset = 2 * (position + prefix)
            position += prefix + size_in_units(instruction.opname)
        for i, instruction in enumerate(instructions):
            if is_jump(instruction):
                end = starts[id(instruction)] + prefixes[i] + size_in_units(instruction.opname)
                operands[i] = abs(starts[id(instruction.argval)] - end)
        needed = [max(prefix, _prefix(operand)) for prefix, operand in zip(prefixes, operands, strict=True)]
        if needed == prefixes:
            return prefixes, starts
        prefixes = needed


def _prefix(operand: int) -> int:
    return max((operand.bit_length() - 1) // 8, 0)


def _encode(instructions: list[Instruction], operands: list[int], prefixes: list[int]) -> bytes:
    out = bytearray()
    for instruction, operand, prefix in zip(instructions, operands, prefixes, strict=True):
        for k in range(prefix, 0, -1):
            out += bytes((OPCODES["EXTENDED_ARG"], operand >> 8 * k & 0xFF))
        out += bytes((OPCODES[instruction.opname], operand & 0xFF))
        out += bytes(2 * (size_in_units(instruction.opname) - 1))
    return bytes(out)
