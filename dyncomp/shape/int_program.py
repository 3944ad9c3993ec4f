"""Integer programs: expressions as flat instructions over the numbers of a call. Plain data.

    s0*s1 > 4  ->  inputs (x.size(0), x.size(1))
                   code   ("mul", 0, 1)  ("const", 4)  ("lt", 3, 2)  ("require", 4)

Registers 0..inputs-1 hold the inputs, instruction i writes register inputs + i (the `require` family writes nothing
that is read). Registers are 64 bits: an int, a float by its bits, or a truth as 0 or 1. An instruction without a
result (`ops.Undefined`) ends the program as a failed `require` does.

    ("const", int)  ("fconst", bits)            ("require", a)          a is not 0
    (operation of `ops.OPS`, operands...)       ("require_eq", a, b)    ("require_bits", a, bits)
                                                ("require_range", a, low, high)   either end may be None
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import Any

from dyncomp.shape import ops

Instruction = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """`inputs` are origins, opaque here. `texts`: one a `require`, in order: what it checks and who asked."""

    inputs: tuple[Any, ...]
    code: tuple[Instruction, ...]
    results: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()

    def run(self, numbers: Sequence[Any]) -> list[Any] | None:
        """The results, or None where a `require` fails: the meaning that the native checker follows."""
        registers = list(numbers)
        for instruction in self.code:
            try:
                registers.append(_step(instruction, registers))
            except (ops.Undefined, _Failed):
                return None
        return [registers[i] for i in self.results]


class _Failed(Exception):
    pass


def _step(instruction: Instruction, registers: list[Any]) -> Any:
    name, *operands = instruction
    if name == "const":
        return operands[0]
    if name == "fconst":
        return float_of_bits(operands[0])
    if name.startswith("require"):
        if not _REQUIRE[name](registers[operands[0]], *operands[1:], registers=registers):
            raise _Failed
        return None
    return ops.apply(name, *[registers[i] for i in operands])


def _in_range(value: int, low: int | None, high: int | None, **_: Any) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


_REQUIRE: dict[str, Callable[..., bool]] = {
    "require": lambda value, **_: bool(value),
    "require_eq": lambda value, other, registers: value == registers[other],
    "require_bits": lambda value, bits, **_: bits_of_float(value) == bits,
    "require_range": _in_range,
}


def bits_of_float(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)


def float_of_bits(bits: int) -> float:
    return float(struct.unpack("<d", bits.to_bytes(8, "little", signed=True))[0])
