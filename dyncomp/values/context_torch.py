"""Torch context managers that are not plain Python all the way down.

torch.no_grad, enable_grad, set_grad_enabled, autocast, sdpa_kernel    inlined; see context_state
torch.inference_mode                the C++ guard inside becomes a pair of graph nodes
record_function                     annotates profiles only: nothing to keep
graph captures, streams             break the graph
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.attention

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Source
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin_kind import BoundBuiltin
from dyncomp.values.constant import ConstantValue
from dyncomp.values.context_state import leave_node, trace_state
from dyncomp.values.saved_state import enter_inference, exit_inference


class InferenceGuardValue(Value):
    """A `torch._C._InferenceMode` made while tracing. It cannot be rebuilt half-way, so a block holds no
    break.
    """

    def __init__(self, mode: bool):
        super().__init__()
        self._mode = mode
        self._node: Any = None
        self._real: Any = None

    def python_type(self) -> type:
        return torch._C._InferenceMode

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name not in ("__enter__", "__exit__"):
            return super().getattr(tx, name)
        if self._real is None and self._mode is not torch.is_inference_mode_enabled():
            raise GraphBreak("context-manager", "torch.inference_mode() entered inside: what is made in it are inference tensors")
        return BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__enter__":
            return self._enter(tx)
        if name == "__exit__":
            return self._exit(tx)
        return super().call_method(tx, name, args, kwargs)

    def _enter(self, tx: Tracer) -> Value:
        self._real = enter_inference(self._mode)
        trace_state(tx).open_guards.append(self._real)
        self._node = leave_node(tx, enter_inference, (self._mode,))
        return tx.constant(None)

    def _exit(self, tx: Tracer) -> Value:
        if self._real is None:
            raise GraphBreak("context-manager", "leaving an inference mode that was not entered")
        exit_inference(self._real)
        trace_state(tx).open_guards.remove(self._real)
        leave_node(tx, exit_inference, (self._node,))
        self._real = None
        return tx.constant(None)


@registry.on_call(torch._C._InferenceMode)
def make_inference_guard(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return InferenceGuardValue(args[0].truth(tx))


@registry.on_call(torch.autograd.profiler.record_function)
def make_record_function(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return tx.call(tx.constant(contextlib.nullcontext), [])


@registry.wrap_type(torch.nn.attention.SDPBackend)
def wrap_sdp_backend(tx: Tracer, obj: Any, source: Source) -> Value:
    """A C++ enumeration: each member is one object."""
    return ConstantValue(obj, source, tx)


_REFUSED: tuple[Any, ...] = (
    torch._C._push_on_torch_function_stack,
    torch._C._pop_torch_function_stack,
    torch.set_default_device,
    torch.set_default_dtype,
    torch.set_default_tensor_type,
    torch.use_deterministic_algorithms,
    torch._C.DisableTorchFunctionSubclass,
)


def _register() -> None:
    for function in _REFUSED:
        registry.on_call(function)(lambda tx, args, kwargs, function=function: _refuse(function))


def _refuse(function: Any) -> Value:
    raise GraphBreak("context-manager", f"{function.__name__} changes how torch runs")


_register()
