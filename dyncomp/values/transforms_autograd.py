"""torch.func.grad, vjp, jvp and what is built on them (jacrev, jacfwd, hessian): levels on which autograd runs inside the graph.

    torch.func.grad(f)(x)      torch's own Python is inlined (see `transforms`), down to nodes such as:
        level = _grad_increment_nesting()
        w = require_gradient(_wrap_for_grad(x, level))
        y = f(w)                                            ordinary nodes
        g, = level_gradients([y], [w], None, False, True)   eager's engine, on wrappers
        _unwrap_for_grad(g, level)
        _grad_decrement_nesting()

Run on fakes, these give the operations of the backward to whoever watches, so a lowered graph holds the gradient as ATen operations,
and a training graph is differentiated once more through them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import _VF
from torch._functorch import eager_transforms
from torch.autograd import forward_ad

from dyncomp.errors import GraphBreak
from dyncomp.fake.levels import is_wrapped
from dyncomp.guards.source import Const, DictItem
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.context_state import leave_node, trace_state
from dyncomp.values.saved_state import enter_dual, exit_dual
from dyncomp.values.torch_tensor import TensorValue
from dyncomp.values.transforms import forms

_functorch: Any = torch._C._functorch


# -- nodes of the graph ----------------------------------------------------------------------------------------
def require_gradient(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor.requires_grad_()`, which levels allow to torch's own transforms alone."""
    before = _functorch.get_inplace_requires_grad_allowed()
    _functorch.set_inplace_requires_grad_allowed(True)
    try:
        return tensor.requires_grad_()
    finally:
        _functorch.set_inplace_requires_grad_allowed(before)


def level_gradients(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor] | None,
    retain: bool, create: bool,
) -> list[torch.Tensor | None]:  # fmt: skip
    """Gradients of `inputs`; None for those that the outputs do not depend on. Without `gradients` the outputs are scalars."""
    if gradients is None:
        gradients = [torch.ones_like(output, memory_format=torch.preserve_format) for output in outputs]
    run = torch.autograd.Variable._execution_engine.run_backward
    return list(run(tuple(outputs), tuple(gradients), retain, create, tuple(inputs), True, accumulate_grad=False))


# -- grad, vjp -------------------------------------------------------------------------------------------------
@registry.on_call(eager_transforms._set_tensor_requires_grad)
def _require_gradient(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    tensor = args[0]
    if not isinstance(tensor, TensorValue) or not is_wrapped(tensor.fake(tx)):
        raise GraphBreak("autograd", "requires_grad_() on a tensor from outside of the function transform")
    return tx.graph_call(require_gradient, [tensor])


@registry.on_call(eager_transforms.enable_inplace_requires_grad)
def _allow_requires_grad(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`require_gradient` sees to it."""
    return _nothing(tx)


@registry.on_call(torch.autograd.graph.disable_saved_tensors_hooks)
def _disable_saved_hooks(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Hooks on saved tensors break the graph wherever a program sets them."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise GraphBreak("autograd", "a function transform under hooks on saved tensors")
    return _nothing(tx)


def _nothing(tx: Tracer) -> Value:
    return tx.call(tx.constant(contextlib.nullcontext), [])


@registry.on_call(eager_transforms._autograd_grad)
def _autograd_grad(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    names = ("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    outputs, inputs = _tensors(given["outputs"].unpack(tx)), given["inputs"].unpack(tx)
    cotangents = given.get("grad_outputs")
    follow = [i for i, output in enumerate(outputs) if output.fake(tx).requires_grad]
    chosen = [outputs[i] for i in follow]
    gradients: Value = tx.constant(None)
    if cotangents is not None and not (cotangents.is_constant() and cotangents.as_constant() is None):
        all_given = _tensors(cotangents.unpack(tx))
        pairs = [(outputs[i], all_given[i]) for i in follow if i < len(all_given)]
        chosen = [output for output, _ in pairs]
        for output, gradient in pairs:
            _check_gradient(output.fake(tx), gradient.fake(tx))
        gradients = tx.list_of([gradient for _, gradient in pairs])
    elif any(output.fake(tx).ndim for output in chosen):
        raise GraphBreak("eager-error", "a gradient of an output that is no scalar")
    if not chosen:
        return tx.tuple_of([tx.graph_call(torch.zeros_like, [one]) for one in inputs])
    flags = [given.get(name, tx.constant(default)) for name, default in (("retain_graph", False), ("create_graph", True))]
    found = tx.graph_call(level_gradients, [tx.list_of(list(chosen)), tx.list_of(list(inputs)), gradients, *flags]).unpack(tx)
    return tx.tuple_of([
        gradient if isinstance(gradient, TensorValue) else tx.graph_call(torch.zeros_like, [one])
        for gradient, one in zip(found, inputs, strict=True)
    ])  # fmt: skip


def _tensors(values: Sequence[Value]) -> list[TensorValue]:
    for value in values:
        if not isinstance(value, TensorValue):
            raise GraphBreak("eager-error", f"a gradient of {value.describe()}")
    return list(values)  # type: ignore[arg-type]


def _check_gradient(output: Any, gradient: Any) -> None:
    if gradient.shape != output.shape or gradient.dtype.is_complex != output.dtype.is_complex:
        raise GraphBreak("eager-error", f"a gradient of shape {tuple(gradient.shape)} for an output of shape {tuple(output.shape)}")


# -- jvp -------------------------------------------------------------------------------------------------------
@registry.on_call(forward_ad.enter_dual_level)
def _enter_dual_level(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    levels = trace_state(tx).dual_levels
    if levels or forward_ad._current_level >= 0:
        raise GraphBreak("function-transform", "forward-mode differentiation inside of forward-mode differentiation")
    try:
        levels.append(enter_dual())
    except RuntimeError as error:  # another thread is inside
        raise GraphBreak("function-transform", str(error)) from error
    leave_node(tx, enter_dual, ())
    return tx.constant(levels[-1])


@registry.on_call(forward_ad.exit_dual_level)
def _exit_dual_level(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    levels = trace_state(tx).dual_levels
    if not levels or args or kwargs:
        raise GraphBreak("function-transform", "leaving a level of forward-mode differentiation that was not entered")
    levels.pop()
    exit_dual()
    leave_node(tx, exit_dual, ())
    return tx.constant(None)


def _dual_level(tx: Tracer, kwargs: dict[str, Value]) -> dict[str, Value]:
    levels = trace_state(tx).dual_levels
    if not levels or kwargs:
        raise GraphBreak("function-transform", "dual tensors of a level that was entered outside of the compiled function")
    return {"level": tx.constant(levels[-1])}


@registry.on_call(forward_ad.make_dual)
def _make_dual(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    level = _dual_level(tx, kwargs)
    if not all(one.fake(tx).dtype.is_floating_point or one.fake(tx).dtype.is_complex for one in _tensors(args)):
        raise GraphBreak("eager-error", "a dual tensor of integers")
    forward_ad._maybe_load_decompositions()
    return tx.graph_call(_VF._make_dual, args, level)


@registry.on_call(forward_ad.unpack_dual)
def _unpack_dual(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    if not trace_state(tx).dual_levels and forward_ad._current_level < 0 and len(args) == 1 and not kwargs:
        place = DictItem(Const(vars(forward_ad), "torch.autograd.forward_ad"), "_current_level")
        tx.guard(place, "equals", forward_ad._current_level)
        return tx.call(tx.constant(forward_ad.UnpackedDualTensor), [args[0], tx.constant(None)], {})
    parts = tx.graph_call(_VF._unpack_dual, args, _dual_level(tx, kwargs)).unpack(tx)
    return tx.call(tx.constant(forward_ad.UnpackedDualTensor), parts)


def _register() -> None:
    for name in ("_wrap_for_grad", "_unwrap_for_grad"):
        target = getattr(_functorch, name)
        registry.on_call(*forms(name))(lambda tx, args, kwargs, target=target: tx.graph_call(target, args))


_register()
