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
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from dyncomp.shape import ops

Instruction = tuple[Any, ...]
Readings = dict[Any, tuple[Any, int, int]]  # symbol -> (input, scale, shift): the input brings scale * symbol + shift


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


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "eq": "==", "lt": "<", "shl": "<<", "shr": ">>",
    "bitand": "&", "bitor": "|", "bitxor": "^", "and": "and", "or": "or", "truediv": "/", "fadd": "+", "fsub": "-",
    "fmul": "*", "fdiv": "/", "ffloordiv": "//", "fmod": "%", "fpow": "**", "pow": "**", "feq": "==", "flt": "<",
    "fle": "<=",
}  # fmt: skip
_PREFIX = {
    "min": "min", "max": "max", "fmin": "min", "fmax": "max", "tofloat": "float", "fabs": "abs", "fround": "round",
    "ffloor": "math.floor", "fceil": "math.ceil", "ftrunc": "math.trunc",
}  # fmt: skip


def statements(program: Program, inputs: Sequence[str], prefix: str = "r") -> tuple[list[str], list[str]]:
    """The program as Python: assignments, and the texts of the results. `inputs`: what the inputs are called."""
    lines, results = numbered_statements(program, inputs, prefix)
    return [line for line in lines if line is not None], results


def numbered_statements(
    program: Program, inputs: Sequence[str], prefix: str = "r"
) -> tuple[list[str | None], list[str]]:
    """The same with one line an instruction, None for constants."""
    lines: list[str | None] = []
    names = list(inputs)
    for number, (name, *operands) in enumerate(program.code):
        if name in ("const", "fconst"):
            text = str(operands[0]) if name == "const" else _float_text(float_of_bits(operands[0]))
            names.append(f"({text})" if text.startswith("-") else text)  # `-2 ** n` is not `(-2) ** n`
            lines.append(None)
            continue
        target = f"{prefix}{number}"
        lines.append(f"{target} = {_expression(name, [names[i] for i in operands])}")
        names.append(target)
    return lines, [names[i] for i in program.results]


def _float_text(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"float({str(value)!r})"


def _expression(name: str, operands: list[str]) -> str:
    if name in _INFIX:
        return f" {_INFIX[name]} ".join(operands)
    if name == "not":
        return f"not {operands[0]}"
    if name == "fneg":
        return f"-{operands[0]}"
    if name == "select":
        return f"{operands[1]} if {operands[0]} else {operands[2]}"
    if name == "fisint":
        return f"{operands[0]}.is_integer()"
    return f"{_PREFIX.get(name) or 'math.' + name.removeprefix('f')}({', '.join(operands)})"


def python_function(program: Program) -> Callable[..., Any]:
    """The program as a function of its inputs, which returns the first result."""
    names = [f"i{n}" for n in range(len(program.inputs))]
    lines, results = statements(program, names)
    body = "\n    ".join([*lines, f"return {results[0]}"])
    namespace: dict[str, Any] = {"math": math}
    exec(compile(f"def compute({', '.join(names)}):\n    {body}", "<sizes>", "exec"), namespace)
    return namespace["compute"]  # type: ignore[no-any-return]
