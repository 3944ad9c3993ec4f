"""`with torch.device(...)`: a mode of torch's under which functions that make tensors make them on that device.

    with torch.device("meta"):    a node that enters the mode, and the mode entered for real, so that fakes are made there alike
        y = torch.zeros(3)

A graph hands the modes back as it found them; after it they are as the program has them: blocks may be open when the frame breaks, and
a frame may end a block that was open when it began.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from dyncomp.errors import GraphBreak
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.context_state import leave_node
from dyncomp.values.saved_state import enter_device, exit_device

_BLOCK = ("__enter__", "__exit__")


@dataclasses.dataclass
class _Blocks:
    """Of the trace: the devices of blocks that it opened, innermost last, and the modes of blocks that it found open and ended."""

    opened: list[torch.device] = dataclasses.field(default_factory=list)
    ended: list[Any] = dataclasses.field(default_factory=list)


def _blocks(tx: Tracer) -> _Blocks:
    return tx.state.setdefault(__name__, _Blocks())


def _enter(tx: Tracer, device: torch.device) -> Value:
    enter_device(device)
    _blocks(tx).opened.append(device)
    leave_node(tx, enter_device, (device,))
    return tx.constant(device)


def _exit(tx: Tracer) -> Value:
    blocks = _blocks(tx)
    if blocks.opened:
        blocks.opened.pop()
        exit_device()
    else:
        modes = _get_current_function_mode_stack()
        if not modes or type(modes[-1]) is not DeviceContext:
            raise GraphBreak("context-manager", "leaving the block of a device that is not the innermost one")
        blocks.ended.append(torch._C._pop_torch_function_stack())
    leave_node(tx, exit_device, ())
    return tx.constant(None)


@registry.at_trace_end
def restore(tx: Tracer) -> None:
    """Puts the real modes back as they were when the trace began."""
    blocks = _blocks(tx)
    while blocks.opened:
        blocks.opened.pop()
        exit_device()
    while blocks.ended:
        torch._C._push_on_torch_function_stack(blocks.ended.pop())


@registry.at_graph_end
def balance(tx: Tracer) -> None:
    """Ends the graph with the modes it began with, and has the present ones set again after it."""
    blocks = _blocks(tx)
    for _ in blocks.opened:
        leave_node(tx, exit_device, ())
    for mode in reversed(blocks.ended):
        leave_node(tx, enter_device, (mode.device,))
    for _ in blocks.ended:
        tx.effects.call(exit_device)
    for device in blocks.opened:
        tx.effects.call(enter_device, tx.constant(device))


def _is_block_of_device(fn: Any) -> bool:
    return type(fn) is types.BuiltinFunctionType and type(fn.__self__) is torch.device and fn.__name__ in _BLOCK


@registry.call_if(_is_block_of_device, priority=20)
def _call(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return _enter(tx, fn.__self__) if fn.__name__ == "__enter__" else _exit(tx)


registry.on_call(torch.device.__enter__)(lambda tx, args, kwargs: _enter(tx, args[0].as_constant()))
registry.on_call(torch.device.__exit__)(lambda tx, args, kwargs: _exit(tx))
