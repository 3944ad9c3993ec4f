"""The special methods behind operators, and whether a class has one of its own."""

from __future__ import annotations

BINARY_SLOTS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "&": "and",
    "|": "or",
    "^": "xor",
    "<<": "lshift",
    ">>": "rshift",
}
COMPARE_SLOTS = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
UNARY_SLOTS = {"+": "__pos__", "-": "__neg__", "~": "__invert__"}


def compares(cls: type, op: str) -> bool:
    """True if instances do more for a comparison than to say whether they are one object."""
    names = (COMPARE_SLOTS[op], "__eq__") if op == "!=" else (COMPARE_SLOTS[op],)
    return any(getattr(cls, name) is not getattr(object, name) for name in names)


def computes(cls: type, op: str, reflected: bool, inplace: bool) -> bool:
    """True if instances have a method for a binary operator."""
    slot = BINARY_SLOTS[op]
    names = [f"__r{slot}__" if reflected else f"__{slot}__", *([f"__i{slot}__"] if inplace else [])]
    if op == "*":  # a sequence written in C repeats itself from either side
        names.append("__mul__")
    return any(hasattr(cls, name) for name in names)
