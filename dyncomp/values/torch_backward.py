"""`loss.backward()` and `.grad` inside captured code.

    loss.backward()       one node gives the gradients of all leaves below the loss (`config.capture_backward`)
    p.grad                None -> the new tensor after the graph; a tensor -> added to in place, the object stays
    p.grad = None         an effect after the graph, like any attribute

What eager's accumulation does with the layout of a gradient is done here: it gets the parameter's strides, and memory
of its own. Hooks, gradients that are retained, history from outside of the frame: the graph breaks, and backward runs
as Python on the compiled forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp import config
from dyncomp._frame import _exec
from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, SlotAttr
from dyncomp.shape.layout import contiguous_strides, is_dense
from dyncomp.values import registry
from dyncomp.values.backward_node import gradients, history
from dyncomp.values.base import Tracer, Value
from dyncomp.values.torch_tensor import TensorValue, tensors_of

_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@registry.on_tensor_method("backward")
def backward(tx: Tracer, loss: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """None where backward is not captured: the method breaks the graph."""
    if not config.capture_backward:
        return None
    names = ("gradient", "retain_graph", "create_graph", "inputs")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if _set(given.get("inputs")) or _true(tx, given.get("create_graph")):
        raise GraphBreak("autograd", "backward() with inputs= or create_graph=True")
    if tx.fake_mode.levels:
        raise GraphBreak("autograd", "backward() inside of a function transform")
    if torch._C._is_any_autocast_enabled() or torch.is_anomaly_enabled():
        raise GraphBreak("autograd", "backward() under autocast or anomaly detection")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise GraphBreak("autograd", "backward() under hooks on saved tensors")
    gradient = given.get("gradient")
    leaves = _leaves(tx, loss)
    head = [tx.constant(_true(tx, given.get("retain_graph"))), loss, gradient if _set(gradient) else tx.constant(None)]
    known = {id(value.fake(tx).fake_storage) for value in tensors_of(tx)}
    found = tx.graph_call(gradients, [*head, *leaves]).unpack(tx)  # type: ignore[list-item]
    for leaf, one in zip(leaves, found, strict=True):
        if isinstance(one, TensorValue):
            _accumulate(tx, leaf, one, known)
    return tx.constant(None)


def _set(value: Value | None) -> bool:
    return value is not None and not (value.is_constant() and value.as_constant() is None)


def _true(tx: Tracer, value: Value | None) -> bool:
    return value is not None and value.truth(tx)


def _leaves(tx: Tracer, loss: TensorValue) -> list[TensorValue]:
    """The leaves below the loss, in the order of the call's inputs."""
    fake = loss.fake(tx)
    if fake.is_leaf:
        raise GraphBreak("autograd", "backward() of a leaf")
    below = {id(node.variable) for node in history(fake) if hasattr(node, "variable")}
    values = [value for value in tensors_of(tx) if id(value.fake(tx)) in below]
    if len(values) != len(below) or not all(value.is_graph_input() for value in values):
        raise GraphBreak("autograd", "backward() into history from outside of the compiled function")
    for value in values:
        _refuse_hooks(tx, value)
    if len(values) > 1:  # each gets a gradient of its own: they must stay different tensors
        sources = [value.source for value in values if value.source is not None]
        tx.guard(sources[0], "distinct", (tuple([(source,) for source in sources]), ()))
    return values


def _refuse_hooks(tx: Tracer, leaf: TensorValue) -> None:
    assert leaf.source is not None
    if _exec.accumulation_has_hooks(leaf.real()):
        raise GraphBreak("autograd", f"backward() with hooks on the node that accumulates the gradient of {leaf.source}")
    tx.guard(Call(leaf.source, _exec.accumulation_has_hooks), "equals", False)
    for name in _HOOKS:
        hooks = getattr(leaf.real(), name)
        if hooks:
            raise GraphBreak("autograd", f"backward() with hooks on {leaf.source}")
        source = SlotAttr(leaf.source, name)
        tx.guard(source, *(("equals", None) if hooks is None else ("empty",)))


def _accumulate(tx: Tracer, leaf: TensorValue, new: TensorValue, known: set[int]) -> None:
    """`leaf.grad += new`, or `leaf.grad = new` in the layout of the leaf. `known`: memory that others see."""
    now = leaf.getattr(tx, "grad")
    if isinstance(now, TensorValue):
        if now.fake(tx).requires_grad:
            raise GraphBreak("autograd", "backward() into a .grad that requires a gradient itself")
        tx.graph_call("add_", [now, new])
        return
    if _set(now):
        raise GraphBreak("autograd", f"backward() into a .grad that is {now.describe()}")
    meta, own = new.fake(tx).meta, leaf.fake(tx).meta
    dense = is_dense(own.shape, own.strides)
    wanted = own.strides if dense else contiguous_strides(own.shape)
    shared = id(new.fake(tx).fake_storage) in known
    if meta.strides != wanted or shared:
        empty = tx.graph_call(torch.empty_strided, [
            tx.constant(tuple(own.shape)), tx.constant(tuple(wanted))
        ], {"dtype": tx.constant(meta.dtype), "device": tx.constant(meta.device)})  # fmt: skip
        new = tx.graph_call("copy_", [empty, new])  # type: ignore[assignment]
    known.add(id(new.fake(tx).fake_storage))
    leaf.set_grad(tx, new)
