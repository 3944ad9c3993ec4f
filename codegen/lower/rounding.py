"""Half floats are rounded after every ATen op, as eager does, although kernels compute in f32.

    y = x * 2; z = y + 1  (bf16)   ->   z = round_bf16(round_bf16(x * 2) + 1), stored as bf16

Inside one op nothing is rounded (ATen computes a whole op in f32). What is exact already, an element as it
was loaded, or a choice between exact ones, is left as it is; a store into the same type rounds by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from dyncomp.codegen.ir.nodes import Builder, Cast, Const, Load, Op, Value
from dyncomp.codegen.ir.types import HALVES, TO_TORCH, compute_type
from dyncomp.codegen.lower.tensor import Body, Indices, Pointwise, Reduce, Scope, Tensor, root

# Results are one of the arguments, or its negation: no rounding where the arguments are exact.
CHOICES = frozenset("neg abs maximum minimum fmax fmin floor ceil trunc round".split())
DEEPEST = 8  # operations looked through for exactness


def round_results(results: Iterable[Tensor], made: set[Tensor]) -> None:
    """Rounds the results of one op, of the tensors that its lowering made."""
    for tensor in {root(r) for r in results} & made:
        if tensor.dtype not in HALVES:
            continue
        if isinstance(tensor, Pointwise):
            tensor.body = _rounding_body(tensor.body, tensor.dtype)
        elif isinstance(tensor, Reduce):
            tensor.rounds = True


def _rounding_body(body: Body, dtype: str) -> Body:
    def rounded_body(scope: Scope, index: Indices) -> Value:
        return rounded(scope.b, body(scope, index), dtype)

    return rounded_body


def rounded(b: Builder, value: Value, dtype: str) -> Value:
    """The f32 value as an element of a half type."""
    if isinstance(value, Const):
        return b.const(torch.tensor(float(value.value), dtype=TO_TORCH[dtype]).item(), value.dtype)
    return value if is_exact(value, dtype) else b.op(f"round_{dtype}", value)


def cast_to(b: Builder, value: Value, source: str, target: str) -> Value:
    """A conversion between storage types; the value is in the source's compute type."""
    out = b.cast(value, compute_type(target))
    return rounded(b, out, target) if target in HALVES and source != target else out


def stored(value: Value, dtype: str) -> Value:
    """The value to store into memory of this type: the store rounds."""
    return value.args[0] if isinstance(value, Op) and value.name == f"round_{dtype}" else value


def is_exact(value: Value, dtype: str, depth: int = DEEPEST) -> bool:
    """True if the half type is known to hold the f32 value."""
    if isinstance(value, Load):
        return value.buffer.dtype == dtype
    if isinstance(value, Const):
        number = float(value.value)
        return number != number or torch.tensor(number, dtype=TO_TORCH[dtype]).item() == number
    if isinstance(value, Cast):
        return value.value.dtype == "bool"
    if not isinstance(value, Op) or depth == 0:
        return False
    if value.name == f"round_{dtype}":
        return True
    arguments = value.args[1:] if value.name == "where" else value.args
    chosen = value.name == "where" or value.name in CHOICES
    return chosen and all(is_exact(a, dtype, depth - 1) for a in arguments)

