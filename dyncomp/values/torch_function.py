"""What a call of a torch callable means for the trace.

    a leaf          one graph node: ATen builtins, torch.nn.functional, tensor methods, torch.ops
    metadata        answered from fakes: torch.is_floating_point(x), torch.numel(x)
    folded          really called on constants: torch.get_default_dtype(), torch.finfo(dtype)
    a named break   autograd, random state, file I/O

Any other torch function written in Python is inlined like a user's. A leaf's node calls the very function
that the program called, so the graph run as it stands does what eager does.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional
from torch import _higher_order_ops

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Source
from dyncomp.values import registry
from dyncomp.values.base import NotConstant, Tracer, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.constant import fold_call
from dyncomp.values.running_number import in_torch_optim
from dyncomp.values.torch_tensor import SubclassTensorValue, TensorValue

_OPERATOR_CLASSES = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
# Python functions of torch.nn.functional that call back into the user's Python: inlined.
_CALLS_BACK = frozenset({"triplet_margin_with_distance_loss", "handle_torch_function", "assert_int_or_pair"})
_BUILTIN_NAMESPACES = ("_nn", "_special", "_linalg", "_fft", "_sparse", "_nested")


def _members(namespace: Any) -> dict[str, Any]:
    return {name: getattr(namespace, name) for name in dir(namespace)}


def _leaf_functions() -> frozenset[Any]:
    """Every function that becomes a node as it is."""
    leaves: set[Any] = set()
    for namespace in (
        torch._C._VariableFunctions,
        *(getattr(torch._C, name) for name in _BUILTIN_NAMESPACES),
    ):
        leaves.update(fn for fn in _members(namespace).values() if isinstance(fn, types.BuiltinFunctionType))
    for namespace in (torch.functional, torch.nn.functional, torch._linalg_utils, torch._lowrank):
        leaves.update(
            fn
            for name, fn in _members(namespace).items()
            if isinstance(fn, types.FunctionType)
            and fn.__module__ == namespace.__name__
            and not name.startswith("_")
            and name not in _CALLS_BACK
        )
    return frozenset(leaves)


def _tensor_methods() -> dict[Any, str]:
    """Unbound methods: `torch.Tensor.add(x, y)` is `x.add(y)`."""
    found: dict[Any, str] = {}
    for name in dir(torch.Tensor):
        member = getattr(torch.Tensor, name)
        owned = isinstance(
            member, types.MethodDescriptorType | types.FunctionType | types.WrapperDescriptorType
        )
        if owned and (getattr(member, "__objclass__", torch.Tensor) is not object):
            found[member] = name
    return found


_METADATA = (
    torch.is_floating_point, torch.is_complex, torch.is_signed, torch.is_conj, torch.is_neg,
    torch.is_same_size, torch.numel, torch.result_type, torch.can_cast, torch.promote_types,
    torch.broadcast_shapes,
)  # fmt: skip

# Effect-free functions whose answer the global state guard covers, or that never change in a process.
_FOLDED: tuple[Any, ...] = (
    torch.is_inference_mode_enabled, torch.get_default_dtype,
    torch.get_default_device, torch.is_autocast_cpu_enabled,
    torch.amp.autocast_mode.is_autocast_available, torch._C._is_any_autocast_enabled,
    torch._C._is_autocast_available, torch.are_deterministic_algorithms_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled, torch._C._get_deterministic_algorithms,
    torch.get_float32_matmul_precision, torch._C._get_tracing_state, torch._C._is_tracing,
    torch.jit.is_scripting, torch.jit.is_tracing, torch._jit_internal.is_scripting,
    torch.compiler.is_dynamo_compiling, torch.compiler.is_exporting,
    torch._C._is_torch_function_mode_enabled, torch._C._is_torch_function_enabled,
    torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack,
    torch._C._get_privateuse1_backend_name, torch.cuda.is_available, torch.cuda.device_count,
    torch.cuda.is_bf16_supported, torch.cuda.is_current_stream_capturing, torch.backends.mps.is_available,
    torch.xpu.is_available, torch.finfo, torch.iinfo, torch.device, torch.Size,
)  # fmt: skip

_IGNORED = (torch._C._log_api_usage_once,)
_OVERRIDE_CHECKS = (
    torch.overrides.has_torch_function, torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
)  # fmt: skip

_BREAKS: dict[Any, tuple[str, str]] = {
    torch.autograd.grad: ("autograd", "torch.autograd.grad"),
    torch.autograd.backward: ("autograd", "torch.autograd.backward"),
    torch.manual_seed: ("random", "torch.manual_seed"),
    torch.seed: ("random", "torch.seed"),
    torch.initial_seed: ("random", "torch.initial_seed"),
    torch.get_rng_state: ("random", "torch.get_rng_state"),
    torch.set_rng_state: ("random", "torch.set_rng_state"),
    torch.random.fork_rng: ("random", "torch.random.fork_rng"),
    torch.save: ("side-effect", "torch.save"),
    torch.load: ("side-effect", "torch.load"),
    torch.compile: ("unsupported-call", "torch.compile"),
    torch.cond: ("unsupported-call", "torch.cond"),
    **{getattr(_higher_order_ops, name): ("unsupported-call", name) for name in ("while_loop", "scan", "map")},
    **{
        getattr(torch.func, name): ("function-transform", f"torch.func.{name}") for name in ("linearize", "functionalize")
    },
    **{
        getattr(torch._C._functorch, f"_func_{end}_nesting"): ("function-transform", "torch.func.functionalize")
        for end in ("increment", "decrement")
    },
}

_TENSOR_METHODS = _tensor_methods()
_LEAVES = _leaf_functions() - set(_METADATA) - set(_FOLDED) - set(_BREAKS)


@registry.wrap_if(lambda obj: isinstance(obj, _OPERATOR_CLASSES), priority=15)
def wrap_operator(tx: Tracer, obj: Any, source: Source) -> Value:
    """`torch.ops.aten.add` and its overloads are callables as fixed as C functions."""
    return BuiltinValue(obj, source)


def _hashable(fn: Any) -> bool:
    return type(fn).__hash__ is not None


@registry.call_if(
    lambda fn: isinstance(fn, _OPERATOR_CLASSES) or (_hashable(fn) and fn in _LEAVES), priority=10
)
def call_leaf(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return tx.graph_call(fn, args, kwargs)


@registry.call_if(
    lambda fn: (
        isinstance(fn, types.MethodDescriptorType | types.FunctionType | types.WrapperDescriptorType)
        and fn in _TENSOR_METHODS
    ),
    priority=11,
)
def call_unbound_method(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    name = _TENSOR_METHODS[fn]
    if not args:
        tx.raise_(TypeError, f"unbound method TensorBase.{name}() needs an argument")
    return args[0].call_method(tx, name, args[1:], kwargs)


@registry.call_if(lambda fn: getattr(fn, "_torchdynamo_disable", False) is True, priority=5)
def call_disabled(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    # Some functions of the tables get this wrapper when torch's own compiler is loaded (torch.manual_seed).
    original = getattr(fn, "_torchdynamo_orig_callable", None)
    for known in (fn, original):
        if _hashable(known) and known in _BREAKS:
            raise GraphBreak(*_BREAKS[known])
    if _is_put_over_torch(fn, original):
        return tx.call(tx.constant(original), args, kwargs)
    raise GraphBreak(
        "disabled-function", f"{getattr(fn, '__qualname__', fn)} is kept out of compilers by torch"
    )


def _is_put_over_torch(wrapper: Any, original: Any) -> bool:
    """True for what torch's own compiler, once it has run, put in the place of torch's functions, such as
    `Adam._init_group`: that says what it cannot trace, and nothing about this compiler. It always gives a reason. A
    wrapper of a user's function, or one that stands beside the function, is a user's wish.
    """
    if not isinstance(original, types.FunctionType) or getattr(wrapper, "_torchdynamo_disable_msg", None) is None:
        return False
    home = sys.modules.get(original.__module__)
    if home is None or not original.__module__.startswith("torch."):
        return False
    standing: Any = home
    for name in original.__qualname__.split("."):
        standing = getattr(standing, name, None)
    return getattr(standing, "_torchdynamo_orig_callable", None) is original


def _register_tables() -> None:
    for fn in dict.fromkeys(_METADATA):
        registry.on_call(fn)(lambda tx, args, kwargs, fn=fn: answer_from_fakes(tx, fn, args, kwargs))
    for fn in dict.fromkeys(_FOLDED):
        registry.on_call(fn)(lambda tx, args, kwargs, fn=fn: fold_call(tx, fn, args, kwargs))
    for fn in dict.fromkeys(_IGNORED):
        registry.on_call(fn)(lambda tx, args, kwargs: tx.constant(None))
    for fn in dict.fromkeys(_OVERRIDE_CHECKS):
        registry.on_call(fn)(has_override)
    for fn, (reason, name) in _BREAKS.items():
        registry.on_call(fn)(lambda tx, args, kwargs, reason=reason, name=name: _break(reason, name))


def _break(reason: str, name: str) -> Value:
    raise GraphBreak(reason, f"call of {name}")


def answer_from_fakes(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A question about metadata alone: no node."""

    def stand_in(value: Value) -> Any:
        return value.fake(tx) if isinstance(value, TensorValue) else value.as_constant()

    try:
        real_args = [stand_in(arg) for arg in args]
        real_kwargs = {name: stand_in(arg) for name, arg in kwargs.items()}
    except NotConstant as unknown:
        raise GraphBreak("unsupported-call", f"torch.{fn.__name__} of {unknown}") from None
    try:
        return tx.constant(fn(*real_args, **real_kwargs))
    except (TypeError, ValueError, RuntimeError) as error:
        tx.raise_real(error)


def in_torch_func(tx: Tracer) -> bool:
    """True in frames of torch's function transforms themselves, not of the functions that they transform."""
    return bool(tx.frames) and str(tx.frames[-1].function.globals.get("__name__")).startswith("torch._functorch.")


def has_override(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Plain tensors never override torch functions; classes that may are not followed."""
    for value in args:
        inner = value.unpack(tx) if issubclass(value.python_type(), tuple | list) else [value]
        if any(isinstance(item, SubclassTensorValue) for item in inner):
            raise GraphBreak("tensor-subclass", "a tensor subclass as an argument of a torch function")
    return tx.constant(False)


@registry.on_call(torch.compiler.is_compiling)
def is_compiling(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """True, as the function documents: libraries use it to choose code without branches on values.

    False in torch.optim, which would choose formulas that round otherwise than eager's, and in torch.func, which would leave out
    what only a compiler cannot do.
    """
    return tx.constant(not in_torch_optim(tx) and not in_torch_func(tx))


_register_tables()
