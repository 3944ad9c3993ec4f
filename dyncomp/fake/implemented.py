"""Dtypes that torch's meta kernel takes and eager's kernel does not: eager is asked, once for each combination.

aten.abs(bool)          meta kernel: a bool tensor     eager: NotImplementedError, "abs_cpu" not implemented for 'Bool'
aten.sub(int64, bool)   meta kernel: an int64 tensor   eager: RuntimeError, no subtraction with bools
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from dyncomp.fake.refusal import mark
from dyncomp.fake.registry import ELEMENTWISE
from dyncomp.fake.tensor import TensorMeta

_KINDS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def check_implemented(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises eager's error where its kernel for an elementwise operation does not know the operands' dtypes. `args` and
    `kwargs` hold `TensorMeta`s for tensors.
    """
    if op not in ELEMENTWISE:
        return
    operands = [_kind(value) for value in (*args, *kwargs.values())]
    if any(device != "cpu" for _, _, device in operands if device is not None):
        return
    told = _refusal(op, tuple(operands[: len(args)]), tuple(zip(kwargs, operands[len(args) :], strict=True)))
    if told is not None:
        raise mark(told[0](told[1]))


def _kind(value: Any) -> tuple[Any, Any, str | None]:
    if type(value) is TensorMeta:
        return value.dtype, not value.shape, value.device.type
    # Of a number the type alone matters here.
    kind = _KINDS.get(type(value), type(value))
    return (kind, None, None) if kind in (int, float, bool, complex) else (None, value, None)


@functools.lru_cache(4096)
def _refusal(
    op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: tuple[Any, ...]
) -> tuple[type[Exception], str] | None:
    named = {name: _small(operand) for name, operand in kwargs}
    try:
        with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
            op(*map(_small, args), **named)
    except RuntimeError as error:  # NotImplementedError among them
        return type(error), str(error)
    return None


def _small(operand: tuple[Any, Any, str | None]) -> Any:
    kind, value, device = operand
    if device is not None:
        return torch.ones(() if value else (2,), dtype=kind)
    return value if kind is None else kind(1)
