"""Binary operators, comparisons and identity between two values, in Python's order of asking the operands."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.values import special_results
from dyncomp.values.base import Tracer, Value
from dyncomp.values.class_facts import class_lookup, type_name
from dyncomp.values.operator_slots import BINARY_SLOTS

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "//": operator.ifloordiv,
    "%": operator.imod,
    "**": operator.ipow,
    "@": operator.imatmul,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
    "<<": operator.ilshift,
    ">>": operator.irshift,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
UNARY: dict[str, Callable[[Any], Any]] = {"+": operator.pos, "-": operator.neg, "~": operator.invert}
MIRROR = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def binary(tx: Tracer, op: str, left: Value, right: Value, inplace: bool = False) -> Value:
    """`left op right` or `left op= right`."""
    first, second = (left, False), (right, True)
    if not inplace and _right_goes_first(left, right) and _has_own(left, right, f"__r{BINARY_SLOTS[op]}__"):
        first, second = second, first
    for value, reflected in (first, second):
        other = left if reflected else right
        result = value.binary(tx, op, other, reflected=reflected, inplace=inplace and not reflected)
        if result is not None:
            return result
    if op == "*" and (repeated := _repeated(tx, left, right)) is not None:
        return repeated
    if op == "+" and (text := left.concatenation_error(right)) is not None:
        tx.raise_(TypeError, text)
    sign = op + "=" if inplace else ("** or pow()" if op == "**" else op)
    left_name, right_name = left.python_type().__name__, right.python_type().__name__
    tx.raise_(TypeError, f"unsupported operand type(s) for {sign}: '{left_name}' and '{right_name}'")


_REPEATABLE = (str, bytes, bytearray, list, tuple, collections.deque)


def _repeated(tx: Tracer, left: Value, right: Value) -> Value | None:
    """`sequence * count`, once neither operand knew how to multiply; None if neither is a sequence."""
    for sequence, count in ((left, right), (right, left)):
        if issubclass(sequence.python_type(), _REPEATABLE):
            if not hasattr(count.python_type(), "__index__"):
                tx.raise_(TypeError, f"can't multiply sequence by non-int of type {type_name(count.python_type())!r}")
            number = special_results.index(tx, count.call_method(tx, "__index__", [], {}))
            if number.is_constant() and number.python_type() is int:
                return binary(tx, "*", sequence, tx.constant(number.as_constant()))  # its length is the trace's: the number is pinned
            raise GraphBreak("unsupported-object", f"a sequence repeated {count.describe()} times")
    return None


def compare(tx: Tracer, op: str, left: Value, right: Value) -> Value:
    """`left op right` as a value (tensors compare elementwise)."""
    first, second = (left, False), (right, True)
    if _right_goes_first(left, right):
        first, second = second, first
    for value, reflected in (first, second):
        other = left if reflected else right
        result = value.compare(tx, MIRROR[op] if reflected else op, other, reflected=reflected)
        if result is not None:
            return result
    if op in ("==", "!="):
        return tx.constant(is_same(tx, left, right) is (op == "=="))
    left_name, right_name = left.python_type().__name__, right.python_type().__name__
    tx.raise_(TypeError, f"'{op}' not supported between instances of '{left_name}' and '{right_name}'")


def equal(tx: Tracer, left: Value, right: Value) -> bool:
    """`left is right or left == right`, as containers compare their items."""
    return left is right or compare(tx, "==", left, right).truth(tx)


_SINGLE = (bool, type(None), type(Ellipsis), type(NotImplemented), type)  # equal ones are one object


def is_same(tx: Tracer, left: Value, right: Value) -> bool:
    """`left is right`; guards the relation where two outside objects could be one in a later call."""
    if left is right:
        return True
    if left.python_type() is not right.python_type():
        return False
    if left.source is not None and right.source is not None and left.python_type() not in _SINGLE:
        same = tx.are_same(left.source, right.source)
        if same is not None:
            return same
    if left.is_constant() and right.is_constant():
        return _same_constant(left.as_constant(), right.as_constant())
    if left.source is not None and right.source is not None:
        tx.guard(left.source, "not_same_as", right.source)
    return False


def _same_constant(left: Any, right: Any) -> bool:
    if isinstance(left, (tuple, list, dict, set, frozenset)):
        return False
    if isinstance(left, (int, float, complex, str, bytes)) and not isinstance(left, bool):
        if left == right and left is not right:
            raise GraphBreak("unsupported-object", f"'is' between two equal {type(left).__name__} objects")
        return left is right
    return left is right or type(left).__module__ == "torch" and left == right


def _has_own(left: Value, right: Value, name: str) -> bool:
    """A subclass that only inherits the reflected method is not asked first."""
    left_type, right_type = left.python_type(), right.python_type()
    if issubclass(left_type, torch.Tensor):  # `__torch_function__` of the subclass decides
        return True
    return class_lookup(left_type, name) is not class_lookup(right_type, name)


def _right_goes_first(left: Value, right: Value) -> bool:
    """Python asks a right operand of a proper subclass first."""
    if left.is_constant() and right.is_constant():
        return False
    left_type, right_type = left.python_type(), right.python_type()
    return left_type is not right_type and issubclass(right_type, left_type)
