"""A call that a shape rule or a meta kernel refuses: eager itself says whether it does too, and with which error.

aten.native_layer_norm(int64, ...)   meta kernel: RuntimeError          eager: NotImplementedError  ->  NotImplementedError
aten.sub(bool, bool)                 meta kernel: NotImplementedError   eager: the same             ->  NotImplementedError
an operation that eager runs         meta kernel: AssertionError        eager: nothing              ->  NoShapeRule
aten._pack_padded_sequence(...)      meta kernel: RuntimeError          eager: by the lengths       ->  NoShapeRule

The program may catch the error, so its class must be eager's, and a kernel that is stricter than eager must not invent
one. The operation runs on zeros of the same layout, and on ones where it raises, since what it says of one of them alone
is said of the data; it leaves the random numbers where they were. Only small calls, of
torch's own operations, on the CPU and with plain sizes are asked about. For all others the first error stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from dyncomp.fake.errors import FakeError, NoShapeRule, OtherLayout, is_own_fault
from dyncomp.fake.facts import facts_of
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.symbolic import SYMBOLIC

_MOST_BYTES = 1 << 24  # of memory behind all operands, and of results as far as the sizes among the arguments tell


def eagers_error(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Exception:
    """What to raise in place of `error`, which a rule or a meta kernel raised for this call. `args` and `kwargs` hold
    `TensorMeta`s for tensors.
    """
    if is_own_fault(error) or not _may_tell(op, error) or not _may_run(op, args, kwargs):
        return error
    told = _raised(op, args, kwargs, fill=0)
    if told is not None and not _is_about_data(told, _raised(op, args, kwargs, fill=1)):
        told.__cause__ = None
        return mark(told)
    if isinstance(error, FakeError):
        return error
    why = "which eager does not raise" if told is None else "in eager whether it raises depends on the data"
    refusal = NoShapeRule(str(op), f"{type(error).__name__}: {str(error).partition(chr(10))[0]}, {why}")
    refusal.__cause__ = error
    return refusal


def asked(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Eager's error for a call that nothing here refuses; None where eager has none, or it hangs on the data, or eager cannot be asked."""
    if not _may_run(op, args, kwargs):
        return None
    told = _raised(op, args, kwargs, fill=0)
    if told is None or _is_about_data(told, _raised(op, args, kwargs, fill=1)):
        return None
    told.__cause__ = None
    return mark(told)


def _raised(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], fill: int) -> Exception | None:
    """What the call raises on tensors full of one number."""
    state = torch.get_rng_state() if facts_of(op).random else None
    try:
        _run(op, args, kwargs, fill)
    except Exception as told:  # noqa: BLE001 - whatever eager raises is the answer
        return told
    finally:
        if state is not None:
            torch.set_rng_state(state)
    return None


def _is_about_data(of_zeros: Exception, of_ones: Exception | None) -> bool:
    return (type(of_zeros), str(of_zeros)) != (type(of_ones), str(of_ones)) or isinstance(of_zeros, torch.linalg.LinAlgError)


def mark(error: Exception) -> Exception:
    """Notes that eager raises this error for the call."""
    error._dyncomp_eagers = True  # type: ignore[attr-defined]
    return error


def is_eagers(error: Exception) -> bool:
    """True if eager was asked and raised this error."""
    return getattr(error, "_dyncomp_eagers", False)


def _may_tell(op: torch._ops.OpOverload, error: Exception) -> bool:
    """No kernel for tensors without data says nothing about the call; one that is not implemented for it may."""
    if not isinstance(error, FakeError):
        return True
    return not isinstance(error, OtherLayout) and isinstance(error.__cause__, NotImplementedError) and _has_kernel(op)


def _may_run(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    facts = facts_of(op)
    if facts.opaque or facts.data_value:
        return False
    needed = 0
    for value in _leaves((args, kwargs)):
        if isinstance(value, (*SYMBOLIC, torch.Generator)):
            return False
        if isinstance(value, torch.device) and value.type != "cpu":
            return False
        if type(value) is TensorMeta:
            numbers = (*value.shape, *value.strides, value.offset)
            if value.device.type != "cpu" or any(isinstance(number, SYMBOLIC) for number in numbers):
                return False
            needed += _reach(value) * value.dtype.itemsize
    sizes = [abs(n) for n in _leaves((args, kwargs)) if type(n) is int and n]
    return needed <= _MOST_BYTES and math.prod(sizes) * max(needed, 8) <= _MOST_BYTES


def _has_kernel(op: torch._ops.OpOverload) -> bool:
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name(), "Meta")  # type: ignore[no-any-return]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _reach(meta: TensorMeta) -> int:
    """Elements of the memory that the tensor lies in, up to its last one."""
    if 0 in meta.shape:
        return meta.offset
    return meta.offset + 1 + sum((n - 1) * s for n, s in zip(meta.shape, meta.strides, strict=True))


def _run(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], fill: int) -> None:
    named = {name: _filled(value, fill) for name, value in kwargs.items()}
    no_casts = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))
    with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd(), no_casts:
        op(*[_filled(value, fill) for value in args], **named)


def _filled(value: Any, fill: int) -> Any:
    if type(value) is TensorMeta:
        memory = torch.full((_reach(value),), fill, dtype=value.dtype, device="cpu")
        return memory.as_strided(value.shape, value.strides, value.offset)
    if isinstance(value, (list, tuple)):
        return [_filled(item, fill) for item in value]
    return value
