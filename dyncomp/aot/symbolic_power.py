"""`x ** n` under autograd, with an int n that varies: torch's own formula compares n with 0, and cannot for a symbol.

    y = x ** n        ->  y = pow(x, n)        gx = gy * (n * x ** (n - 1))        n != 0 is a guard

Eager's formula, with n as a double in it as there.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from dyncomp.fake.tensor import FakeTensor

_FUNCTIONS = (operator.pow, torch.pow, torch.ops.aten.pow.Tensor_Scalar, torch.ops.aten.pow)
_METHODS = ("pow", "__pow__")


def is_symbolic_power(target: Any, args: Any, kwargs: Any) -> bool:
    """True for a node of the torch-level graph that torch could not differentiate."""
    if not (target in _METHODS if isinstance(target, str) else any(target is fn for fn in _FUNCTIONS)):
        return False
    if len(args) != 2 or kwargs or type(args[0]) is not FakeTensor or type(args[1]) is not torch.SymInt:
        return False
    differentiated = args[0].requires_grad and torch.is_grad_enabled() and args[0].dtype.is_floating_point
    return differentiated and not torch._C._is_any_autocast_enabled()


def power(x: FakeTensor, exponent: torch.SymInt) -> Any:
    return _Power.apply(x, exponent)  # type: ignore[no-untyped-call]


class _Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: FakeTensor, exponent: torch.SymInt) -> Any:  # type: ignore[override]
        ctx.save_for_backward(x)
        ctx.exponent = exponent
        return torch.pow(x, exponent)  # type: ignore[call-overload]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        if ctx.exponent == 0:
            return torch.zeros_like(x, memory_format=torch.contiguous_format), None
        exponent = torch.sym_float(ctx.exponent)
        return gradient * (exponent * x.pow(exponent - 1)), None
