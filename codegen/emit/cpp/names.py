"""How types, constants, names and indices of the loop IR are written in C++."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping

from dyncomp.codegen.ir.index import Atom, FloorDiv, Index, Min, Mod, Product, Size, Var
from dyncomp.codegen.ir.proofs import nonnegative

# Compute type -> scalar C++ type, name of its vector typedef in a kernel.
SCALAR = {
    "f32": "float",
    "f64": "double",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "u8": "u8",
    "bool": "bool",
}
VECTOR = {
    "f32": "F32",
    "f64": "F64",
    "i64": "I64",
    "i32": "I32",
    "i16": "I16",
    "i8": "I8",
    "u8": "U8",
    "bool": "B",
}
# Storage type -> C++ type of the memory.
MEMORY = {**SCALAR, "bf16": "bf16", "f16": "f16"}

_TAKEN = re.compile(
    r"^(t\d+|m|l|p|s|u|rest|from|at_\w*|first|last|begin|end|stop\w*|[FIUB]\d*|v_\w+|int|long|float|double|bool|for|if|in|out)$"
)


def identifier(name: str) -> str:
    """An IR name as a C++ name that clashes with nothing that the emitter declares."""
    clean = re.sub(r"\W", "_", name)
    return clean + "_" if _TAKEN.match(clean) or not clean[0].isalpha() else clean


def constant(value: bool | int | float, dtype: str) -> str:
    """A literal of exactly this type and value."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in ("f32", "f64"):
        return _float_constant(float(value), dtype)
    return f"({SCALAR[dtype]}){_int_constant(int(value))}"


def _int_constant(value: int) -> str:
    # the lowest i64 has no literal of its own
    return "(-9223372036854775807L - 1)" if value == -(2**63) else f"{value}L"


def _float_constant(value: float, dtype: str) -> str:
    if dtype == "f32":
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    suffix = "f" if dtype == "f32" else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    return f"({SCALAR[dtype]}){value!r}"


def index_text(index: Index, names: Mapping[Var, str]) -> str:
    """C++ expression of type i64. `names` overrides how a variable is written."""
    text = ""
    for atom, coef in index.terms:
        body = _atom_text(atom, names)
        term = body if abs(coef) == 1 else f"{body} * {abs(coef)}"
        sign = "-" if coef < 0 else "+"
        text = (term if coef > 0 else f"-{term}") if not text else f"{text} {sign} {term}"
    if index.const or not text:
        if not text:
            return f"{index.const}L" if abs(index.const) > 2**31 - 1 else str(index.const)
        text += f" {'-' if index.const < 0 else '+'} {abs(index.const)}"
    return text


def _atom_text(atom: Atom, names: Mapping[Var, str]) -> str:
    if isinstance(atom, Var):
        return names.get(atom) or identifier(atom.name)
    if isinstance(atom, Size):
        return identifier(atom.name)
    if isinstance(atom, (FloorDiv, Mod)):
        num, den = index_text(atom.num, names), index_text(atom.den, names)
        if not nonnegative(atom.den - 1):  # computed ahead of a loop that then does not run
            den = f"larger({den}, 1)"
        if nonnegative(atom.num):
            return f"(({num}) {'/' if isinstance(atom, FloorDiv) else '%'} ({den}))"
        return f"{'floordiv' if isinstance(atom, FloorDiv) else 'floormod'}({num}, {den})"
    if isinstance(atom, Min):
        return f"smaller({index_text(atom.a, names)}, {index_text(atom.b, names)})"
    if isinstance(atom, Product):
        return "(" + " * ".join(_atom_text(a, names) for a in atom.atoms) + ")"
    raise TypeError(f"not an atom: {atom!r}")
