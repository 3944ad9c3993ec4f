"""Running a torch-level graph under a TraceMode: inputs in, outputs out, eager's own errors typed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch.autograd.graph import increment_version

from dyncomp.aot.errors import Unsupported
from dyncomp.aot.store import Writes, track_of
from dyncomp.aot.symbolic_power import is_symbolic_power, power
from dyncomp.aot.tape import Node, memory_root
from dyncomp.aot.tracer import TraceMode
from dyncomp.errors import InternalError
from dyncomp.fake import FakeError, FakeMode
from dyncomp.fake.kept_warnings import kept_back
from dyncomp.fake.tensor import FakeTensor
from dyncomp.values.attached_backward import attach, marked_dirty
from dyncomp.values.saved_state import SavedState

# What torch raises for wrong shapes, dtypes and arguments.
_EAGER_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


def enter_inputs(mode: TraceMode, inputs: Sequence[Any]) -> list[Any]:
    """Own fakes for the inputs, sharing storage identities as the given ones do."""
    outside = FakeMode()
    fakes: list[Any] = []
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            given = outside.from_real(value)
            fakes.append(mode.add_input(given, index, given.fake_storage))
        else:
            fakes.append(value)
    return fakes


def interpret(gm: torch.fx.GraphModule, inputs: list[Any], mode: TraceMode) -> Any:
    values: dict[torch.fx.Node, Any] = {}
    rest = iter(inputs)

    def load(argument: Any) -> Any:
        return torch.fx.node.map_arg(argument, values.__getitem__)

    for node in gm.graph.nodes:
        mode.recorder.line = node.meta.get("user_line")
        if node.op == "placeholder":
            values[node] = next(rest)
        elif node.op == "get_attr":
            values[node] = _attribute(gm, node.target)
        elif node.op == "output":
            return load(node.args[0])
        else:
            mode.under_autocast = torch._C._is_any_autocast_enabled()
            before = len(mode.recorder.tape)
            args, kwargs = load(node.args), load(node.kwargs)
            if is_symbolic_power(node.target, args, kwargs):
                values[node] = power(*args)
            elif node.op == "call_method":
                values[node] = _call(mode, getattr(args[0], node.target), args[1:], kwargs)
            else:
                target = node.target if node.op == "call_function" else gm.get_submodule(node.target)
                whole = mode.whole(target, args, kwargs)
                values[node] = _call(mode, target, args, kwargs) if whole is None else whole
                if target is getattr and args[1] == "data":
                    track_of(values[node]).writes = Writes()
                for tensor in told_of(target, args):
                    track_of(tensor).writes.rise()
            if (checkpoint := node.meta.get("again")) is not None:
                leaves = any(user.meta.get("again") != checkpoint for user in node.users)
                _mark(mode.recorder.tape[before:], values[node] if leaves else None)
    raise Unsupported("a graph without an output")


def _mark(nodes: Sequence[Node], result: Any) -> None:
    """Nodes of a checkpoint are computed again in the backward; a result that is read outside of it is kept."""
    for node in nodes:
        node.again = True
    for one in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(one, FakeTensor):
            root = memory_root(track_of(one).store.value)
            root.again = None if root.again is None else False


def _call(mode: TraceMode, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with kept_back():  # the frame gives them itself
        formed = mode.formed(function, args, kwargs)
        return function(*args, **kwargs) if formed is NotImplemented else formed


def told_of(target: Any, args: tuple[Any, ...]) -> Sequence[Any]:
    """The tensors whose version counters a call raises without a write."""
    if target is increment_version:
        return args[0] if isinstance(args[0], (list, tuple)) else args[:1]
    return marked_dirty(args) if target is attach else ()


def _attribute(gm: torch.fx.GraphModule, path: str) -> Any:
    value: Any = gm
    for name in path.split("."):
        value = getattr(value, name)
    return value


def flat(returned: Any) -> list[Any]:
    if isinstance(returned, (tuple, list)):
        for value in returned:
            if isinstance(value, (tuple, list, dict)):
                raise Unsupported("a graph that returns nested containers")
        return list(returned)
    return [returned]


@contextlib.contextmanager
def state_restored() -> Iterator[None]:
    """Grad mode, autocast and the like are set by nodes of the graph; the caller gets its own back, also where a node raises."""
    kept = SavedState()
    try:
        yield
    finally:
        kept.put_back()


@contextlib.contextmanager
def typed_errors() -> Iterator[None]:
    """What a trace raises becomes Unsupported: eager raises it too, at the right moment and after the right
    side effects.
    """
    try:
        yield
    except InternalError:
        raise
    except FakeError as error:
        raise Unsupported(str(error)) from error
    except _EAGER_ERRORS as error:
        raise Unsupported(f"the program raises {type(error).__name__}: {error}") from error
