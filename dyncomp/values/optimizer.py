"""What the code of torch.optim asks of its surroundings, and which of its numbers vary from step to step.

    torch.compiler.is_compiling()   False in torch.optim: it would choose formulas that round otherwise than eager's
    step_t.item()                   a number that the graph computes (`running_number`)
    group["lr"]                     varies: never guarded. Other floats of a group (betas, momentum, weight decay) are
                                    constants until one of them was seen to change
    torch._C._group_tensors_by_device_and_dtype        answered from metadata
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import DictItem, Source
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.running_number import GivenNumberValue, in_optimizer, note_given, read_number
from dyncomp.values.torch_tensor import TensorValue

_ALWAYS_VARIES = "lr"
_wrap_other: Any = registry.WRAP_TYPE.pop(float)  # the rule for all other floats


@registry.wrap_type(float)
def wrap_float(tx: Tracer, obj: float, source: Any) -> Value:
    """A float of an optimiser's group may vary; all others are constants."""
    option = _group_option(source)
    if option is None or option != _ALWAYS_VARIES and not _varied(tx, obj, source):
        return _wrap_other(tx, obj, source)  # type: ignore[no-any-return]
    note_given(tx)
    return GivenNumberValue(obj, source, tx)


def _group_option(source: Source | None) -> str | None:
    """`lr` for `....param_groups[0]['lr']`, `betas` for an item of `....param_groups[0]['betas']`."""
    below: list[Source] = []
    link = source
    while link is not None:
        if isinstance(link, DictItem) and link.arg == "param_groups":
            option = below[-2] if len(below) > 1 else None
            return option.arg if isinstance(option, DictItem) and isinstance(option.arg, str) else None
        below.append(link)
        link = link.base
    return None


def _varied(tx: Tracer, obj: float, source: Source) -> bool:
    """True once two compiles under these options met different values there."""
    if tx.sizes.dynamic is True:
        return True
    memory = getattr(tx.context, "optimizer_floats", None)
    if memory is None or not tx.frames:
        return False
    seen: dict[str, tuple[float, bool]] = memory.setdefault(tx.frames[0].code, {})
    value, varied = seen.get(str(source), (obj, False))
    varied = varied or value != obj
    seen[str(source)] = (obj, varied)
    return varied


@registry.on_tensor_method("item")
def read_in_optimizer(tx: Tracer, tensor: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """`step_t.item()` is followed as a number that the graph computes."""
    if args or kwargs or not in_optimizer(tx):
        return None
    meta = tensor.fake(tx).meta
    if not meta.dtype.is_floating_point or tensor.fake(tx).numel() != 1:
        return None
    return read_number(tx, tensor)


@registry.on_call(torch._C._group_tensors_by_device_and_dtype)
def group_tensors(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """{(device, dtype): (lists, positions)}; lists may be empty, and hold None beside tensors."""
    lists = [one.unpack(tx) for one in args[0].unpack(tx)]
    with_indices = len(args) > 1 and args[1].truth(tx) or "with_indices" in kwargs and kwargs["with_indices"].truth(tx)
    groups: dict[tuple[torch.device, torch.dtype], tuple[list[list[Value]], list[Value]]] = {}
    for i, tensor in enumerate(lists[0]):
        assert isinstance(tensor, TensorValue)
        fake = tensor.fake(tx)
        key = (fake.device, fake.dtype)
        columns, places = groups.setdefault(key, ([[] for _ in lists], []))
        for column, items in zip(columns, lists, strict=True):
            if items:
                column.append(items[i])
        if with_indices:
            places.append(tx.constant(i))
    pairs = [
        (
            tx.tuple_of([tx.constant(device), tx.constant(dtype)]),
            tx.tuple_of([tx.list_of([tx.list_of(column) for column in columns]), tx.list_of(places)]),
        )
        for (device, dtype), (columns, places) in groups.items()
    ]
    return tx.dict_of_pairs(pairs)


@registry.on_call(torch.optim.Optimizer._accelerator_graph_capture_health_check)
def check_capture(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Complains of optimisers that a device graph cannot hold; without such a device there is nothing to check."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type not in ("cuda", "xpu"):
        return tx.constant(None)
    groups = getattr(args[0].real(), "param_groups", None)
    if groups is None or any(group.get("capturable") for group in groups):
        raise GraphBreak("side-effect", "an optimiser that may warn of device graphs (capturable=True)")
    if getattr(torch, accelerator.type).is_current_stream_capturing():  # in torch 2.11 streams cannot be asked
        raise GraphBreak("side-effect", "an optimiser step inside the capture of a device graph")
    return tx.constant(None)


@registry.on_call(torch.optim.Optimizer.zero_grad)
def zero_grad(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Kept out of torch's own compiler, not out of ours: it assigns `.grad` or zeroes it."""
    function = torch.optim.Optimizer.zero_grad.__wrapped__  # type: ignore[attr-defined]
    return tx.call(tx.constant(function), args, kwargs)


@registry.on_tensor_method("requires_grad_")
def keep_requires_grad(tx: Tracer, tensor: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """`g.requires_grad_(False)` of a tensor that requires none changes nothing, nor does `h.requires_grad_()` of one that does."""
    given = args[0] if args else kwargs.get("requires_grad", tx.constant(True))
    if len(args) + len(kwargs) > 1 or given.python_type() is not bool or tx.fake_mode.levels:  # levels refuse it in any case
        return None
    if given.truth(tx) == tensor.fake(tx).requires_grad:
        return tensor  # type: ignore[no-any-return]
    return None
