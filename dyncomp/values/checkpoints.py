"""Checkpoints in a graph: `torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)`.

    f(x) is followed like any call; its nodes are marked     node.meta["again"] = (number of the checkpoint)

The training graph keeps none of the values that such nodes give, but for those that others read, and computes them again in the backward
(`aot/partition.py`). Eager calls the function again there, so all that it does besides computing tensors happens twice: such a function
breaks the graph. So does what has no such graph: a graph of the whole step, another backend.
"""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch.utils import checkpoint as torchs

from dyncomp import config
from dyncomp.errors import GraphBreak
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.constant import ConstantValue
from dyncomp.values.function import BoundMethodValue, FunctionValue
from dyncomp.values.klass import ClassValue
from dyncomp.values.library_calls import PartialValue
from dyncomp.values.mapping import DictValue
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.sym_number import SymNumberValue
from dyncomp.values.torch_tensor import TensorValue, tensors_of

_UNCHANGING = (ConstantValue, TensorValue, ClassValue, BuiltinValue, SymNumberValue)
_OWN = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
_COUNT = "checkpoints"
_INSIDE = "inside of a checkpoint"


@registry.on_call(torchs.checkpoint)
def _checkpoint(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    own = {name: value for name, value in kwargs.items() if name in _OWN}
    function, given = args[0], args[1:]
    named = {name: value for name, value in kwargs.items() if name not in _OWN}
    _check_options(own)
    if not torch.is_grad_enabled() or tx.state.get(_INSIDE):  # eager never comes to call it again, or does so for the one around
        return tx.call(function, given, named)
    if config.capture_backward:
        raise _break("in a graph of the whole step")
    if not getattr(getattr(tx.context, "backend", None), "writes_last", False):
        raise _break("with this backend")
    if tx.fake_mode.levels:
        raise _break("inside of a function transform")
    made = _Made(tx)
    if not all(map(made.stays, (function, *given, *named.values()))):
        raise _break("of a function that may change what was made before")
    with _watched(tx, own.get("preserve_rng_state")):
        result = tx.call(function, given, named)
        if made.changed():
            raise _break("of a function that changes what was made before")
    return result


def _break(why: str) -> GraphBreak:
    return GraphBreak("autograd", f"call of torch.utils.checkpoint {why}")


def _check_options(own: dict[str, Value]) -> None:
    reentrant = own.get("use_reentrant")
    if reentrant is None or not reentrant.is_constant() or reentrant.as_constant() is not False:
        raise _break("without use_reentrant=False")
    debug, context = own.get("debug"), own.get("context_fn")
    if debug is not None and not (debug.is_constant() and debug.as_constant() is False):
        raise _break("with debug")
    if context is not None and not (context.is_constant() and context.as_constant() is torchs.noop_context_fn):
        raise _break("with context_fn")


class _Made:
    """Lists and dicts of the frame that the function reaches, as they were before the call. What comes from outside is watched by the
    effects, tensors by their versions."""

    def __init__(self, tx: Tracer):
        self._tx = tx
        self._before: dict[int, tuple[Value, list[Value]]] = {}

    def stays(self, value: Value | None) -> bool:
        """Whether all that can be changed through a value is known."""
        if value is None or value.source is not None or isinstance(value, _UNCHANGING) or id(value) in self._before:
            return True
        if type(value) in (ListValue, DictValue):
            self._before[id(value)] = (value, items := self._items(value))
            return all(map(self.stays, items))
        if isinstance(value, TupleValue):
            return all(map(self.stays, value.unpack(self._tx)))
        if isinstance(value, PartialValue):
            return all(map(self.stays, (value.function, *value.args, *value.kwargs.values())))
        if isinstance(value, BoundMethodValue):
            return value.receiver.source is not None and self.stays(value.function)
        return isinstance(value, FunctionValue) and self._function_stays(value)

    def _function_stays(self, function: FunctionValue) -> bool:
        names = set(function.code.co_freevars)
        if any(op.opname in ("STORE_DEREF", "DELETE_DEREF") and op.argval in names for op in dis.get_instructions(function.code)):
            return False
        kept = [cell.contents for cell in function.cells(self._tx)]
        return all(map(self.stays, [*kept, *function.made_defaults, *function.made_kwdefaults.values()]))

    def changed(self) -> bool:
        return any(len(now := self._items(value)) != len(before) or any(a is not b for a, b in zip(now, before, strict=True))
                   for value, before in self._before.values())  # fmt: skip

    def _items(self, value: Any) -> list[Value]:
        return [one for pair in value.entries(self._tx) for one in pair] if isinstance(value, DictValue) else value.unpack(self._tx)


class _Watched:
    """Stands in for the log of side effects, or of early calls: asking is allowed."""

    def __init__(self, real: Any):
        self._real = real

    def __len__(self) -> int:
        return len(self._real)

    def changed(self) -> Any:
        return self._real.changed()

    def __getattr__(self, name: str) -> NoReturn:
        raise _break("of a function with side effects")


@contextlib.contextmanager
def _watched(tx: Tracer, preserves: Value | None) -> Iterator[None]:
    """Marks the nodes that are made inside."""
    mode, effects, early, last = tx.fake_mode, tx.effects, tx.early, tx.graph._root.prev
    drew, mode.draws = mode.draws, False
    before = {id(value): value.fake(tx).fake_storage.version for value in tensors_of(tx)}
    tx.effects, tx.early, tx.state[_INSIDE] = _Watched(effects), _Watched(early), True
    try:
        yield
        written = [value for value in tensors_of(tx) if _is_written(value, value.fake(tx).fake_storage.version, before)]
        if written:
            raise _break("of a function that writes to a tensor from outside")
        if mode.draws and preserves is not None and not (preserves.is_constant() and preserves.as_constant() is True):
            raise _break("of a function that draws other random numbers when it is called again")
    finally:
        mode.draws = drew or mode.draws
        tx.effects, tx.early = effects, early
        del tx.state[_INSIDE]
    number = tx.state[_COUNT] = tx.state.get(_COUNT, 0) + 1
    node = tx.graph._root.prev
    while node is not last:
        node.meta["again"] = number
        node = node.prev


def _is_written(value: TensorValue, version: int, before: dict[int, int]) -> bool:
    """Results of operations inside may be written to."""
    known = before.get(id(value))
    return version > 0 and value.source is not None if known is None else version != known
