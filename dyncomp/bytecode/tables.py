"""The two compressed tables of a code object: lines (PEP 657 positions) and exception handlers.

In:  instructions with their spans in code units
Out: `co_linetable`, `co_exceptiontable`
"""

from __future__ import annotations

from collections.abc import Iterator

from dyncomp.bytecode.instruction import Handler, Instruction, Positions

_MAX_SPAN = 8  # code units one row of the line table can cover
_NO_POSITION, _LONG, _NO_COLUMN, _ONE_LINE, _SHORT_COLUMNS = 15, 14, 13, 10, 80


def line_table(instructions: list[Instruction], spans: list[int], firstlineno: int) -> bytes:
    """Rows of (span, location), one for each run of instructions at one place."""
    out = bytearray()
    line = firstlineno
    for positions, units in _runs(instructions, spans):
        while units > 0:
            span = min(units, _MAX_SPAN)
            line = _location(out, positions, span, line)
            units -= span
    return bytes(out)


def _runs(instructions: list[Instruction], spans: list[int]) -> Iterator[tuple[Positions, int]]:
    positions, units = None, 0
    for instruction, span in zip(instructions, spans, strict=True):
        if positions is not None and instruction.positions != positions:
            yield positions, units
            units = 0
        positions = instruction.positions
        units += span
    if positions is not None:
        yield positions, units


def _location(out: bytearray, positions: Positions, span: int, line: int) -> int:
    """Appends one row; returns the line that the next row counts from."""
    first, last, column, end = positions

    def head(code: int) -> None:
        out.append(0x80 | code << 3 | (span - 1))

    if first is None:
        head(_NO_POSITION)
        return line
    delta = first - line
    if column is None or end is None or last is None:
        head(_NO_COLUMN)
        _signed(out, delta)
    elif last == first and delta == 0 and column < _SHORT_COLUMNS and 0 <= end - column < 16:
        head(column >> 3)
        out.append((column & 7) << 4 | (end - column))
    elif last == first and 0 <= delta < 3 and column < 128 and end < 128:
        head(_ONE_LINE + delta)
        out += bytes((column, end))
    else:
        head(_LONG)
        _signed(out, delta)
        _unsigned(out, last - first)
        _unsigned(out, column + 1)
        _unsigned(out, end + 1)
    return first


def _unsigned(out: bytearray, value: int) -> None:
    """Six bits a byte, lowest first, 64 marks that more follow."""
    while value >= 64:
        out.append(0x40 | (value & 63))
        value >>= 6
    out.append(value)


def _signed(out: bytearray, value: int) -> None:
    _unsigned(out, (-value << 1) | 1 if value < 0 else value << 1)


def exception_table(instructions: list[Instruction], starts: dict[int, int], spans: list[int]) -> bytes:
    """Rows of (start, length, target, depth and lasti), one for each run of instructions with one handler.

    `starts`: id of an instruction -> its first code unit, EXTENDED_ARG included.
    """
    out = bytearray()
    for handler, start, units in _protected(instructions, starts, spans):
        _entry_item(out, start, 0x80)
        _entry_item(out, units)
        _entry_item(out, starts[id(handler.target)])
        _entry_item(out, handler.depth << 1 | handler.push_lasti)
    return bytes(out)


def _protected(
    instructions: list[Instruction], starts: dict[int, int], spans: list[int]
) -> Iterator[tuple[Handler, int, int]]:
    current: Handler | None = None
    start = units = 0
    for instruction, span in zip(instructions, spans, strict=True):
        handler = instruction.handler
        if current is not None and not current.same(handler):
            yield current, start, units
            current = None
        if current is None and handler is not None:
            current, start, units = handler, starts[id(instruction)], 0
        units += span
    if current is not None:
        yield current, start, units


def _entry_item(out: bytearray, value: int, mark: int = 0) -> None:
    """Six bits a byte, highest first, 64 marks that more follow; `mark` flags a row's first byte."""
    chunks = [value & 63]
    while value := value >> 6:
        chunks.append(0x40 | (value & 63))
    chunks.reverse()
    chunks[0] |= mark
    out += bytes(chunks)
