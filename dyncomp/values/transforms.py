"""Function transforms: torch.vmap and what else is built on functorch's levels.

    torch.vmap(f)(x)        torch's own Python is inlined, its checks, trees and chunks included, down to:
        level = _vmap_increment_nesting(8, "error")         a node, and a level of the trace's own (`fake.levels`)
        b = _add_batch_dim(x, 0, level)                     a node; its fake is a wrapper around the fake of x
        y = f(b)                                            ordinary nodes, on wrappers
        _remove_batch_dim(y, level, 8, 0)                   a node
        _vmap_decrement_nesting()                           a node

So a graph that is run as it stands does what eager does, and a graph that is lowered has the ATen operations that torch's batching
rules call below the levels. A tensor of a level cannot leave the graph: the frame breaks before the call that lets it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch import predispatch, vmap

from dyncomp.errors import GraphBreak
from dyncomp.fake.levels import ENTER, LEAVE, dress, is_wrapped
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.constant import ConstantValue
from dyncomp.values.torch_tensor import TensorValue, tensor_result

_functorch = torch._C._functorch


class LevelValue(ConstantValue):
    """The number of a level: known while tracing, and in the graph what the node that opened it gives."""

    def __init__(self, number: int, node: Any):
        super().__init__(number)
        self._node = node

    def fx_arg(self, tx: Tracer) -> Any:
        return self._node


def _open(tx: Tracer, enter: Callable[..., int], args: Sequence[Value]) -> Value:
    level = tx.graph_call(enter, args)
    return LevelValue(level.as_constant(), tx.graph._root.prev)


def _close(tx: Tracer, leave: Callable[[], Any]) -> Value:
    if not tx.fake_mode.levels:
        raise GraphBreak("function-transform", "leaving a function transform that was not entered")
    return tx.graph_call(leave, [])


@registry.at_graph_end
def refuse_open_levels(tx: Tracer) -> None:
    if tx.fake_mode.levels:
        raise GraphBreak("function-transform", "a graph that ends inside of a function transform")


@registry.result_if(is_wrapped)
def wrapped_result(tx: Tracer, node: Any, fake: torch.Tensor) -> Value:
    dress(fake)
    return tensor_result(tx, node, fake)


# -- vmap ------------------------------------------------------------------------------------------------------
def _add_batch_dim(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    tensor, dim, level = args
    number = dim.as_constant()
    if number < 0:
        number += tensor.fake(tx).ndim  # type: ignore[attr-defined]
    return tx.graph_call(_functorch._add_batch_dim, [tensor, tx.constant(number), level])


def _is_batched(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return tx.constant(isinstance(args[0], TensorValue) and _functorch.is_batchedtensor(args[0].fake(tx)))


class _NameForErrors(Value):
    """What `vmap` calls the transformed object in messages: the text of a whole module, and nearly never looked at."""

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "the name of a transformed object"


def _get_name(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return args[0].getattr(tx, "__name__") if tx.has_attribute(args[0], "__name__") else _NameForErrors()


def _load_decompositions(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    predispatch.lazy_load_decompositions()  # batching rules that torch registers with the first call of vmap
    return tx.constant(None)


def forms(name: str) -> list[Any]:
    """The function of functorch, and torch's own wrapper of it where this torch has one."""
    return [fn for fn in (getattr(_functorch, name), getattr(predispatch, name, None)) if fn is not None]


def _register() -> None:
    for enter in ENTER:
        registry.on_call(*forms(enter.__name__))(lambda tx, args, kwargs, enter=enter: _open(tx, enter, args))
    for leave in LEAVE.values():
        registry.on_call(*forms(leave.__name__))(lambda tx, args, kwargs, leave=leave: _close(tx, leave))
    registry.on_call(*forms("_add_batch_dim"))(_add_batch_dim)
    registry.on_call(*forms("_remove_batch_dim"))(
        lambda tx, args, kwargs: tx.graph_call(_functorch._remove_batch_dim, args)
    )
    registry.on_call(_functorch.is_batchedtensor)(_is_batched)
    registry.on_call(vmap._get_name)(_get_name)
    registry.on_call(predispatch.lazy_load_decompositions)(_load_decompositions)


_register()
