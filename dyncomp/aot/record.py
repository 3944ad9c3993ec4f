"""One recording of a function and its gradient, on one tape.

f(x, w) = relu(mm(x, w))   ->   mm, relu | tangent, threshold_backward, t, mm, t, mm
                                forward  | backward

Torch's own autograd runs over the fakes, so the backward is what eager's would be, operation by operation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dyncomp.aot.epilogue import exact_node
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.interpret import enter_inputs, flat, interpret, state_restored, typed_errors
from dyncomp.aot.outputs import Outputs, plan_outputs
from dyncomp.aot.store import Recorder, Store, Track, track_of
from dyncomp.aot.tape import Input, Node, Tape, is_random
from dyncomp.aot.tracer import TraceMode
from dyncomp.fake import FakeMode
from dyncomp.fake.tensor import FakeTensor, TensorMeta, make_fake
from dyncomp.shape.layout import contiguous_strides, is_dense

Rule = tuple[Any, ...]
Pattern = tuple[bool, ...]  # one a raw output: a gradient comes in there


@dataclasses.dataclass
class Recording:
    """`tape[:boundary]` is the forward.

    `gradients`: a rule for each input of `requiring`, as in `aot.epilogue`, where ("input", k) is tangent k
    and ("node", n) a node of the tape. `state`: what autocast was when the graph began.
    """

    recorder: Recorder
    boundary: int
    inputs: list[Any]
    requiring: list[int]
    outputs: Outputs
    raw: list[Node]
    mutations: list[tuple[int, Node]]
    pattern: Pattern
    tangents: list[Node]
    gradients: list[Rule]

    @property
    def tape(self) -> Tape:
        return self.recorder.tape


def record(gm: torch.fx.GraphModule, inputs: Sequence[Any], pattern: Pattern | None = None) -> Recording:
    """Runs `gm` and its backward for gradients that come in where `pattern` says; None: the likely ones."""
    mode = TraceMode()
    fakes = enter_inputs(mode, inputs)
    requiring = [i for i, fake in enumerate(fakes) if type(fake) is FakeTensor and fake.requires_grad]
    fakes = [_as_given(fake, given) for fake, given in zip(fakes, inputs, strict=True)]
    before = [(fake.requires_grad, fake.grad_fn) if type(fake) is FakeTensor else None for fake in fakes]
    with typed_errors(), state_restored(), torch.enable_grad():
        with mode:
            results = flat(interpret(gm, fakes, mode))
        torch.set_grad_enabled(True)
        _refuse(fakes, before)
        outputs = plan_outputs(fakes, results)
        with torch._C._AutoDispatchBelowAutograd():
            raw = [exact_node(mode.recorder, fake) for fake in outputs.raw]
        mutations = _mutations(fakes)
        boundary = len(mode.recorder.tape)
        pattern = pattern if pattern is not None else likely_pattern(outputs)
        chosen = [fake for fake, wanted in zip(outputs.raw, pattern, strict=True) if wanted]
        tangents = [_tangent(mode, len(fakes) + k, fake.meta) for k, fake in enumerate(chosen)]
        grads = _backward(mode, chosen, tangents, [fakes[i] for i in requiring])
    rules = _gradient_rules(mode.recorder, grads, tangents)
    if any(is_random(node) for node in mode.recorder.tape[boundary:]):
        raise Unsupported("a backward that draws random numbers")
    nodes = [track_of(t).node for t in tangents]
    return Recording(mode.recorder, boundary, fakes, requiring, outputs, raw, mutations, pattern, nodes, rules)


def likely_pattern(outputs: Outputs) -> Pattern:
    """Where there is a differentiable scalar, it is the loss, and the rest is for looking at."""
    losses = tuple(
        wanted and not fake.meta.shape for fake, wanted in zip(outputs.raw, outputs.differentiable, strict=True)
    )
    return losses if any(losses) else tuple(outputs.differentiable)


def tangent_meta(meta: TensorMeta) -> TensorMeta:
    """How an incoming gradient is laid out: as its output where that is dense."""
    strides = meta.strides if is_dense(meta.shape, meta.strides) else contiguous_strides(meta.shape)
    return TensorMeta(meta.shape, strides, meta.dtype, meta.device)


def _as_given(fake: Any, given: Any) -> Any:
    """A result of an operation stays one: autocast and in-place writes treat leaves otherwise."""
    if type(fake) is not FakeTensor or not fake.requires_grad:
        return fake
    if fake.dtype.is_complex:
        raise Unsupported("gradients of complex inputs")
    if given.is_leaf:
        return fake
    with FakeMode(), torch.enable_grad():
        result: Any = fake.clone()
    result.__dict__.update({**fake.__dict__})
    return result


def _refuse(fakes: list[Any], before: list[Any]) -> None:
    for index, fake in enumerate(fakes):
        if before[index] is None:
            continue
        if fake.is_inference():
            raise Unsupported("gradients beside inference tensors")
        required, history = before[index]
        if fake.requires_grad is not required or fake.grad_fn is not history:
            raise Unsupported("an in-place write to an input that a gradient flows through")


def _mutations(fakes: list[Any]) -> list[tuple[int, Node]]:
    tensors = [(i, fake) for i, fake in enumerate(fakes) if type(fake) is FakeTensor]
    written = [(i, fake) for i, fake in tensors if track_of(fake).store.version]
    for index, fake in written:
        if any(other.fake_storage is fake.fake_storage for i, other in tensors if i != index):
            raise Unsupported("an in-place write to an input that shares memory with another input")
    return [(i, track_of(fake).store.value) for i, fake in written]


def _tangent(mode: TraceMode, index: int, output: TensorMeta) -> FakeTensor:
    if output.dtype.is_complex:
        raise Unsupported("gradients of complex outputs")
    meta = tangent_meta(output)
    node = mode.recorder.emit(Input, (index,), meta=meta)
    fake = make_fake(meta)
    fake.__dict__["track"] = Track(Store(node, meta), (), node)
    return fake


def _backward(mode: TraceMode, outputs: list[FakeTensor], tangents: list[FakeTensor], inputs: list[Any]) -> list[Any]:
    if not outputs or not inputs:
        return [None] * len(inputs)
    mode.recorder.line = None
    # `torch.autograd.grad` is this call behind checks that import more than we want.
    run = torch.autograd.Variable._execution_engine.run_backward
    with mode, torch._C._DisableAutocast():
        return list(run(tuple(outputs), tuple(tangents), False, False, tuple(inputs), True, accumulate_grad=False))


def _gradient_rules(recorder: Recorder, grads: list[Any], tangents: list[FakeTensor]) -> list[Rule]:
    """A gradient may be a tangent, a view of one, or another gradient, as in eager."""
    owner = {id(track_of(t).store): k for k, t in enumerate(tangents)}
    same = {id(t): ("input", k) for k, t in enumerate(tangents)}
    rules: list[Rule] = []
    for position, grad in enumerate(grads):
        if grad is None:
            rules.append(("const", None))
            continue
        rule: Rule | None = same.get(id(grad))
        if rule is None:
            store, meta = track_of(grad).store, grad.meta
            tangent = owner.get(id(store))
            if tangent is not None and store.version == 0 and meta.dtype == store.meta.dtype:
                rule = ("view", ("input", tangent), meta.shape, meta.strides, meta.offset - store.meta.offset)
            else:
                with torch._C._AutoDispatchBelowAutograd():
                    rule = ("node", exact_node(recorder, grad))
        same.setdefault(id(grad), ("output", position))
        rules.append(rule)
    return rules
