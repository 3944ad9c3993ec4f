"""Ahead-of-time autograd: a torch-level graph becomes a forward and a backward graph.

def f(x, w):                   forward(x, w):  m = mm(x, w); y = relu(m)      ->  y, saved: x, w, y
    return relu(x @ w)   ->    backward(x, w, y, t):  g = threshold_backward(t, y, 0)
                                                      mm(g, w.t()), mm(x.t(), g)

Which outputs get a gradient is known only when the backward runs. The graph is cut for the likely ones;
`backward(pattern)` gives the graph for any part of those, from the same saved values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dyncomp import config, log
from dyncomp.aot.build import build_graph
from dyncomp.aot.cleanup import clean, drop_dead
from dyncomp.aot.epilogue import Epilogue, own_memory
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.interpret import typed_errors
from dyncomp.aot.normalize import drop_unread_statistics
from dyncomp.aot.partition import (
    Saved,
    Visible,
    backward_nodes,
    choose_saved,
    extract_backward,
    kept_by_eager,
    packed_meta,
)
from dyncomp.aot.record import Pattern, Recording, Rule, record
from dyncomp.aot.store import Recorder
from dyncomp.aot.tape import Input, Node, Tape, is_random, memory_root, parents
from dyncomp.aot.verify import verify
from dyncomp.fake.tensor import TensorMeta, make_fake

aten = torch.ops.aten


@dataclasses.dataclass(eq=False)
class JointGraph:
    """`forward` returns the raw outputs, then the saved values. `saved`, in the order in which a backward
    takes them: ("input", i), or ("value", p) with p the position among what `forward` returns. After the
    saved values a backward takes the gradients of the raw outputs in its pattern; it returns one gradient
    for each input of `requiring`. `outputs`: rules of `aot.outputs`. `random`: the forward draws.
    `repeatable`: running `gm` again on the inputs as they are afterwards gives the same results.
    """

    gm: torch.fx.GraphModule
    fakes: list[Any]
    forward: AtenGraph
    raw: int
    differentiable: list[bool]
    outputs: list[Rule]
    requiring: list[int]
    saved: list[tuple[str, int]]
    pattern: Pattern
    tangents: dict[int, TensorMeta]
    random: bool
    repeatable: bool
    _likely: AtenGraph | None
    _positions: list[int]

    def backward(self, pattern: Pattern) -> AtenGraph:
        """The backward graph for gradients of these raw outputs. Unsupported if it needs what was not saved."""
        if pattern == self.pattern and self._likely is not None:
            return self._likely
        if any(asked and not kept for asked, kept in zip(pattern, self.pattern, strict=True)):
            raise Unsupported("gradients of outputs that the forward did not prepare for")
        with typed_errors():
            recording = record(self.gm, self.fakes, pattern)
            drop_unread_statistics(recording.tape)
            saved = [recording.tape[position] for position in self._positions]
            tape, kept = clean(recording.tape, [*_nodes(recording.gradients), *saved])
            count = len(kept) - len(saved)
            return _build_backward(recording, tape, kept[count:], kept[:count], self.gm)


def trace_joint(gm: torch.fx.GraphModule, inputs: Sequence[Any], pattern: Pattern | None = None) -> JointGraph:
    """Forward and backward of `gm` on inputs like these. `pattern`: raw outputs that will get a gradient."""
    with typed_errors():
        recording = record(gm, inputs, pattern)
        joint = _split(gm, list(inputs), recording)
    if config.verify_passes:
        verify(joint.forward)
        if joint._likely is not None:
            verify(joint._likely)
    log.write("aot", "%s", joint.forward)
    log.write("aot", "%s", joint._likely)
    return joint


def _split(gm: torch.fx.GraphModule, fakes: list[Any], recording: Recording) -> JointGraph:
    raw_tape = recording.tape
    kept_inputs = kept_by_eager(raw_tape[: recording.boundary], raw_tape[recording.boundary :])
    kept_inputs -= {index for index, _ in recording.mutations}
    position = {node: i for i, node in enumerate(raw_tape)}
    grads = _nodes(recording.gradients)
    mutated = [node for _, node in recording.mutations]
    drop_unread_statistics(raw_tape)
    tape, kept = clean(raw_tape, [*recording.raw, *mutated, *grads])
    raw, kept = kept[: len(recording.raw)], kept[len(recording.raw) :]
    mutations = [(i, node) for (i, _), node in zip(recording.mutations, kept, strict=False)]
    grads = kept[len(mutations) :]
    visible = Visible(kept_inputs, {memory_root(node) for node in raw})
    chosen = choose_saved(tape, recording.tangents, grads, visible)
    forward, saved = _build_forward(recording, tape, raw, mutations, chosen, gm)
    nodes = [one.node for one in chosen]
    likely = _build_backward(recording, tape, nodes, grads, gm)
    outputs = recording.outputs
    metas = dict(_tangent_metas(recording))
    draws = any(is_random(node) for node in tape)
    repeatable = not _reads(tape, [*raw, *nodes, *grads], {i for i, _ in mutations})
    return JointGraph(
        gm, fakes, forward, len(raw), outputs.differentiable, outputs.rules, recording.requiring, saved,
        recording.pattern, metas, draws, repeatable, likely, [position[node] for node in nodes],
    )  # fmt: skip


def _tangent_metas(recording: Recording) -> list[tuple[int, TensorMeta]]:
    wanted = [k for k, asked in enumerate(recording.pattern) if asked]
    return [(k, node.meta) for k, node in zip(wanted, recording.tangents, strict=True)]


def _build_forward(
    recording: Recording,
    tape: Tape,
    raw: list[Node],
    mutations: list[tuple[int, Node]],
    chosen: list[Saved],
    gm: torch.fx.GraphModule,
) -> tuple[AtenGraph, list[tuple[str, int]]]:
    behind = backward_nodes(tape, recording.tangents)
    recorder = Recorder()
    recorder.tape = [node for node in tape if node not in behind]
    epilogue = own_memory(recorder, Epilogue([("node", node) for node in raw], mutations))
    rules = list(epilogue.outputs)
    owner = {memory_root(rule[1]): k for k, rule in enumerate(rules)}
    saved: list[tuple[str, int]] = []
    for one in chosen:
        if one.node.op is Input and not one.copied:
            saved.append(("input", one.node.args[0]))
            continue
        saved.append(("value", len(rules)))
        rules.append(_saved_rule(recorder, one, owner, rules))
    epilogue = Epilogue(rules, epilogue.mutations)
    kept, nodes = drop_dead(recorder.tape, epilogue.nodes())
    graph = build_graph(kept, recording.inputs, epilogue.with_nodes(nodes), gm)
    return graph, saved


def _saved_rule(recorder: Recorder, one: Saved, owner: dict[Node, int], rules: list[Rule]) -> Rule:
    node = one.node
    packed = packed_meta(node)
    if packed is not None:
        return ("node", recorder.emit(aten._to_copy.default, (node,), {"dtype": packed.dtype}, packed))
    output = owner.get(node)
    if output is not None and not one.copied:
        shown = rules[output][1]
        if shown is node:
            return ("output", output)
        if shown.meta.dtype == node.meta.dtype:
            offset = node.meta.offset - shown.meta.offset
            return ("view", ("output", output), node.meta.shape, node.meta.strides, offset)
    if one.copied or output is not None:
        node = recorder.emit(aten.clone.default, (node,), meta=_own_meta(node.meta))
    return ("node", node)


def _own_meta(meta: TensorMeta) -> TensorMeta | None:
    """Metadata of a clone; None lets the recorder infer it where the memory has gaps or an offset."""
    return meta if meta.offset == 0 else None


def _build_backward(
    recording: Recording, tape: Tape, saved: list[Node], grads: list[Node], gm: torch.fx.GraphModule
) -> AtenGraph:
    """`grads`: the nodes of the gradient rules that have one, in order."""
    new, results = extract_backward(tape, saved, recording.tangents, grads)
    rest = iter(results)
    shift = len(saved)
    rules: list[Rule] = []
    for rule in recording.gradients:
        if rule[0] == "node":
            rules.append(("node", next(rest)))
        elif rule[0] == "input":
            rules.append(("input", shift + rule[1]))
        elif rule[0] == "view":
            rules.append(("view", ("input", shift + rule[1][1]), *rule[2:]))
        else:
            rules.append(rule)
    recorder = Recorder()
    recorder.tape = new
    epilogue = own_memory(recorder, Epilogue(rules, []))
    metas = [packed_meta(node) or node.meta for node in [*saved, *recording.tangents]]
    graph = build_graph(recorder.tape, [make_fake(meta) for meta in metas], epilogue, gm)
    graph.consumed = tuple(range(len(saved)))
    return graph


def _reads(tape: Tape, results: list[Node], inputs: set[int]) -> bool:
    """True if results depend on these inputs. Batch norm in training only updates its statistics."""
    live = set(results)
    for node in reversed(tape):
        if node not in live:
            continue
        if node.op is Input and node.args[0] in inputs:
            return True
        read = set(parents(node))
        if node.op is aten._native_batch_norm_legit_functional.default:
            read -= {node.args[3], node.args[4]}
        live |= read
    return False


def _nodes(rules: list[Rule]) -> list[Node]:
    return [rule[1] for rule in rules if rule[0] == "node"]
