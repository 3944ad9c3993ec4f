"""The nodes of an autograd graph as callables: run as they are, or taken into a graph operation by operation.

    node3(gradient, *kept)     Python    the node itself runs, as under eager's engine
                               traced    its formula runs on fakes; the operations go into the graph that is being made:
                                         MulBackward0 of (x, w), gradient g    ->    mul(g, w), mul(g, x)

A node that is compiled code of ours contributes its backward graph. What a node keeps comes in as arguments, so the graph holds
for every backward of the same structure. Results are checked, cast and summed to what the next nodes expect.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from dyncomp._frame import _exec
from dyncomp.aot import Unsupported, env_of_inputs
from dyncomp.aot.epilogue import exact_node
from dyncomp.aot.interpret import enter_inputs, state_restored, typed_errors
from dyncomp.aot.lazy import check_result
from dyncomp.aot.store import Recorder
from dyncomp.aot.tape import Constant, Input, Node, Tape, parents
from dyncomp.aot.tracer import TraceMode
from dyncomp.compiled_autograd.function_node import follow
from dyncomp.compiled_autograd.running import STACK, Running
from dyncomp.errors import GraphBreak
from dyncomp.fake.derivatives import corrected
from dyncomp.fake.tensor import FakeTensor
from dyncomp.guards.source import Const, Source
from dyncomp.shape.layout import is_dense
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.torch_tensor import TensorValue


class Formula:
    """Node `index` of the backward that runs: `(*gradients, *kept) -> its results`. `kind`: as in `_exec.backward_walk`, or "v"
    for the check of results that come as the arguments. `inputs`: how many gradients it takes.
    """

    def __init__(self, index: int, kind: str, inputs: int):
        self.index, self.kind, self.inputs = index, kind, inputs
        self.__qualname__ = f"node {index} of an autograd graph"

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        steps = STACK.running[-1].steps
        if self.kind == "v":
            return _exec.backward_call(steps, self.index, values, run=False)  # type: ignore[no-any-return]
        return _exec.backward_call(steps, self.index, values[: self.inputs])  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<{self.__qualname__}>"


@registry.wrap_type(Formula)
def _wrap(tx: Tracer, obj: Any, source: Source) -> Value:
    return BuiltinValue(obj, source)


@registry.call_if(lambda fn: type(fn) is Formula, priority=1)
def _call(tx: Tracer, fn: Formula, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    if fn.kind == "p":
        return _function(tx, fn, args)
    given = [arg.fake(tx) if isinstance(arg, TensorValue) else arg.as_constant() for arg in args]
    try:
        with typed_errors(), state_restored(), torch.no_grad():
            tape, results = _record(fn, given)
    except Unsupported as reason:
        raise GraphBreak("compiled-autograd", f"{_name(STACK.running[-1], fn)}: {reason}") from reason
    if not torch.is_autocast_enabled("cpu"):
        return _replay(tx, tape, results, args)
    _set_autocast(tx, False)  # the operations have their casts already
    replayed = _replay(tx, tape, results, args)
    _set_autocast(tx, True)
    return replayed


def _set_autocast(tx: Tracer, on: bool) -> None:
    tx.call(tx.constant(torch.set_autocast_enabled), [tx.constant("cpu"), tx.constant(on)])


def _name(running: Running, fn: Formula) -> str:
    one = running.objects[fn.index]
    return "compiled code" if isinstance(one, tuple) else str(one.name())


def _function(tx: Tracer, fn: Formula, args: Sequence[Value]) -> Value:
    """A Python function's backward is followed like any function; what it returns is checked as the engine does."""
    results = follow(tx, args[-1], args[:-1])
    return _call(tx, Formula(fn.index, "v", len(results)), results, {})


Results = list[Node | None]


def _record(fn: Formula, given: list[Any]) -> tuple[Tape, Results]:
    running = STACK.running[-1]
    run = {"c": _compiled_code, "v": _checked}.get(fn.kind, _node)
    recorder, results = run(running, fn, given)
    with torch._C._AutoDispatchBelowAutograd():
        # Gaps come from an input with gaps; nobody looks at them in a gradient.
        nodes = [None if one is None else _value(recorder, one) for one in results]
    return recorder.tape, nodes


def _value(recorder: Recorder, fake: FakeTensor) -> Node:
    check_result(fake)
    return exact_node(recorder, fake) if is_dense(fake.meta.shape, fake.meta.strides) else recorder.read(fake)


class _NodeMode(TraceMode):
    """Operations of a node's own C++ code: the tensors that it keeps are inputs."""

    def __init__(self, kept: list[tuple[torch.Tensor, FakeTensor]]):
        super().__init__()
        self.kept = kept

    def from_real(self, tensor: torch.Tensor, layout: Any = None, offset: Any = None) -> FakeTensor:
        if type(tensor) is FakeTensor:
            return tensor
        for real, fake in self.kept:
            if real is tensor:  # kept twice, it is one object, which the compiled function guards
                return fake
        same = [fake for real, fake in self.kept if _looks_at_the_same(real, tensor)]
        if len(same) != 1:
            raise Unsupported("a node that uses a tensor which it does not show")
        return same[0]


def _looks_at_the_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.data_ptr() == b.data_ptr()
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.stride() == b.stride()
        and a.is_conj() == b.is_conj()
        and a.is_neg() == b.is_neg()
    )


def _node(running: Running, fn: Formula, given: list[Any]) -> tuple[Recorder, tuple[Any, ...]]:
    kept: list[tuple[torch.Tensor, FakeTensor]] = []
    mode = _NodeMode(kept)
    fakes = enter_inputs(mode, given)
    kept += zip(running.tensors[fn.index], fakes[fn.inputs :], strict=True)
    with mode:
        results = _exec.backward_call(running.steps, fn.index, tuple(fakes[: fn.inputs]))
        found = corrected(running.objects[fn.index], results, fakes[: fn.inputs])
        if found is not None:
            results = _exec.backward_call(running.steps, fn.index, found, run=False)
    return mode.recorder, results


def _checked(running: Running, fn: Formula, given: list[Any]) -> tuple[Recorder, tuple[Any, ...]]:
    mode = TraceMode()
    fakes = enter_inputs(mode, given)
    with mode:
        results = _exec.backward_call(running.steps, fn.index, tuple(fakes), run=False)
    return mode.recorder, results


def _compiled_code(running: Running, fn: Formula, given: list[Any]) -> tuple[Recorder, tuple[Any, ...]]:
    _, prepare, _ = running.objects[fn.index]
    asked = tuple(one is not None for one in given[: fn.inputs])
    env = env_of_inputs([one for one in given if one is not None])
    mode = TraceMode(env)
    fakes = enter_inputs(mode, given)
    if not any(asked):
        results: tuple[Any, ...] = (None,) * len(prepare.__wrapped__.__self__.joint.requiring)
    else:
        graph, layouts = prepare.__wrapped__.__self__.graph(asked)
        with mode:
            come = [fake for fake in fakes[: fn.inputs] if fake is not None]
            laid = [_laid_out(one, layout) for one, layout in zip(come, layouts, strict=True)]
            inputs = [*fakes[fn.inputs :], *laid]
            with torch._C._DisableAutocast():
                results = _finish(graph, inputs, graph.compute(*inputs))
    if env is None:  # else the comparison with the sizes of this call would make them special
        with mode:
            results = _exec.backward_call(running.steps, fn.index, results, run=False)
    return mode.recorder, results


def _laid_out(gradient: Any, layout: Any) -> Any:
    """A gradient as the backward was made for: (strides), or ("order", dimensions from the outermost to the innermost)."""
    strides = list(layout)
    if layout and layout[0] == "order":
        step = 1
        strides = [0] * gradient.dim()
        for dim in reversed(layout[1]):
            strides[dim] = step
            step *= max(gradient.size(dim), 1)
    if list(gradient.stride()) == strides:
        return gradient
    own = torch.empty_strided(gradient.shape, strides, dtype=gradient.dtype, device=gradient.device)
    return own.copy_(gradient)


def _finish(graph: Any, inputs: list[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients, by the graph's output rules."""
    fresh = iter(values)
    results: list[Any] = []
    for rule in graph.outputs:
        kind = rule[0]
        if kind == "node":
            results.append(next(fresh))
        elif kind == "input":
            results.append(inputs[rule[1]])
        elif kind == "output":
            results.append(results[rule[1]])
        elif kind == "const" and rule[1] is None:
            results.append(None)
        elif kind == "view":
            (base, index), sizes, strides, offset = rule[1:]
            results.append(_alias(results[index] if base == "output" else inputs[index], sizes, strides, offset))
        else:
            raise Unsupported(f"a backward whose gradient is {rule}")
    return tuple(results)


def _alias(base: Any, sizes: Any, strides: Any, offset: int) -> Any:
    """`offset` counts from the first element of `base`, which is dense. `as_strided` with an offset would count from the storage's."""
    if offset:
        flat = base.as_strided((base.numel(),), (1,))
        base = flat[offset:]
    return base.as_strided(sizes, strides)


def _replay(tx: Tracer, tape: Tape, results: Results, args: Sequence[Value]) -> Value:
    """The operations of a tape as nodes of the graph that is being traced."""
    values: dict[Node, Value] = {}

    def lower(value: Any) -> Value:
        if type(value) is Node:
            return values[value]
        if type(value) is list:
            return tx.list_of([lower(item) for item in value])
        if type(value) is tuple:
            return tx.tuple_of([lower(item) for item in value])
        return tx.constant(value)

    live = _live(tape, results)
    for node in tape:
        if node not in live:
            continue
        if node.op is Input:
            values[node] = args[node.args[0]]
        elif node.op is Constant:
            values[node] = _literal(node.args[0])
        elif node.op is operator.getitem:
            values[node] = values[node.args[0]].getitem(tx, tx.constant(node.args[1]))
        else:
            named = {name: lower(value) for name, value in node.kwargs.items()}
            values[node] = tx.graph_call(node.op, [lower(value) for value in node.args], named)
    return tx.tuple_of([tx.constant(None) if one is None else values[one] for one in results])


def _literal(tensor: torch.Tensor) -> TensorValue:
    """A tensor that belongs to the operations themselves. Nobody else may hold it, so what is compiled does."""
    return TensorValue(source=Const(tensor), obj=tensor)


def _live(tape: Tape, results: Results) -> set[Node]:
    live = {node for node in results if node is not None}
    for node in reversed(tape):
        if node in live:
            live.update(parents(node))
    return live
