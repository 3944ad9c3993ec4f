"""Ahead-of-time autograd: a torch-level graph becomes a forward and a backward graph.

def f(x, w):                   forward(x, w):  m = mm(x, w); y = relu(m)      ->  y, saved: x, w, y
    return relu(x @ w)   ->    backward(x, w, y, t):  g = threshold_backward(t, y, 0)
                                                      mm(g, w.t()), mm(x.t(), g)

Which outputs get a gradient is known only when the backward runs. The graph is cut for the likely ones;
`backward(pattern)` gives the graph for any part of those, from the same saved values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from dyncomp import config, log
from dyncomp.aot.build import build_graph
from dyncomp.aot.casts import Casts, cast_inputs
from dyncomp.aot.choice import choose
from dyncomp.aot.cleanup import clean, drop_dead
from dyncomp.aot.dependence import memory_in_use, read_inputs, visible_memory
from dyncomp.aot.ends import Ends
from dyncomp.aot.epilogue import Epilogue, own_memory
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.interpret import state_restored, typed_errors
from dyncomp.aot.normalize import drop_unread_statistics
from dyncomp.aot.partition import Saved, backward_nodes, extract_backward, packed_meta
from dyncomp.aot.readers import readers_again, readers_of
from dyncomp.aot.record import Autocast, Pattern, Recording, Rule, Strides, Wanted, record
from dyncomp.aot.sizes import unread_numbers
from dyncomp.aot.store import Recorder, track_of
from dyncomp.aot.tape import Input, Node, Tape, is_random, memory_root, parents
from dyncomp.aot.verify import verify
from dyncomp.aot.watched import Watched
from dyncomp.fake.tensor import TensorMeta, make_fake
from dyncomp.shape.layout import contiguous_strides, numel
from dyncomp.shape.symbolic import is_symbolic, number_key, plain
from dyncomp.values.node_by_node import node_by_node
from dyncomp.values.saved_state import SavedState

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

aten = torch.ops.aten


@dataclasses.dataclass(eq=False)
class JointGraph:
    """`forward` returns the raw outputs, then the saved values. `saved`, in the order in which a backward
    takes them: ("input", i), or ("value", p) with p the position among what `forward` returns; after the tensors inputs that are
    numbers (`numbers`), and where sizes are symbolic the last one may be a tensor like `carrier` (see `_number_carrier`). After the saved values a backward takes the gradients of the raw outputs in its pattern; it returns one gradient
    for each input of `requiring`. `outputs`, `inner`: rules of `aot.outputs`. `random`: the forward draws.
    `repeatable`: running `gm` again on the inputs as they are afterwards gives the same results.
    `leaf_orders`: by pattern of a backward that was made, in which order eager's comes to the leaves (positions in `requiring`).
    `watched`: inputs and raw outputs that eager's history keeps, which must not be written before a backward that comes there.
    `held`: inputs that must live as long as a backward may be differentiated. Of others what eager keeps follows from the saved values
    (`aot.again`). `originals`: those among them that the program writes, of which the values before are needed. `shows`: what eager's
    nodes keep is known.
    `casts`: of weights, which are the last inputs, after those of `gm` (`aot.casts`).
    `ends`: what eager's history is like, its views by their places among `outputs`; `readers`: by saved value, for gradients of which outputs and inputs it is read.
    `rebased`: (input, raw output): the input's new value is that raw output, and so is its history; `rewrites`: by such an input how
    often eager writes it, and when through the input itself, not through another view: "last", "earlier" or "never". `sides`, by position in `requiring`: where the gradient goes; `viewed`: inputs that are taken for views (`aot.sides`).
    """

    gm: torch.fx.GraphModule
    fakes: list[Any]
    forward: AtenGraph
    raw: int
    differentiable: list[bool]
    outputs: list[Rule]
    inner: list[Rule]
    requiring: list[int]
    rebased: list[tuple[int, int]]
    saved: list[tuple[str, int]]
    numbers: list[int]
    carrier: TensorMeta | None
    pattern: Pattern
    raw_metas: list[TensorMeta]
    random: bool
    repeatable: bool
    _likely: AtenGraph | None
    positions: list[int]
    _state: SavedState
    leaf_orders: dict[Pattern, list[int]]
    watched: list[Watched]
    ends: Ends
    readers: list[list[tuple[int, int]]]
    held: list[int]
    originals: list[int]
    shows: bool
    rewrites: dict[int, tuple[int, str]]
    sides: list[str]
    viewed: tuple[int, ...]
    casts: Casts = ()
    _facts: int | None = None
    kept: dict[Any, Any] = dataclasses.field(default_factory=dict)  # of `aot.again`

    def backward(self, pattern: Pattern, autocast: Autocast = (), wanted: Wanted = None, strides: Strides = None) -> AtenGraph:
        """The backward graph for gradients of these raw outputs to the `wanted` ones of `requiring`, while `autocast` is on.
        `strides`: of these gradients; None: as `tangent_meta` says. Unsupported if it needs what was not saved.
        """
        if pattern == self.pattern and not autocast and wanted is None and strides is None and self._likely is not None:
            return self._likely
        if any(asked and not kept for asked, kept in zip(pattern, self.pattern, strict=True)):
            raise Unsupported("gradients of outputs that the forward did not prepare for")
        with typed_errors(), state_restored(), self._state.as_then():  # the forward is recorded as it was the first time
            # What was saved may have been made by the likely backward, from forward values alone.
            recording = record(self.gm, self.fakes, pattern, autocast, self.pattern, wanted, strides, self.casts, self.viewed)
            drop_unread_statistics(recording.tape)
            saved = [recording.tape[position] for position in self.positions]
            tape, kept = clean(recording.tape, [*_nodes(recording.gradients), *saved])
            count = len(kept) - len(saved)
            graph = _build_backward(recording, tape, kept[count:], kept[:count], self.numbers, self.carrier, self.gm)
            self.leaf_orders[pattern] = recording.leaf_order
        return graph

    def recorded(self) -> Recording:
        """The recording that this was made from, once more: `positions` are the saved values' places on its tape."""
        with typed_errors(), state_restored(), self._state.as_then():
            recording = record(self.gm, self.fakes, self.pattern, casts=self.casts, viewed=self.viewed)
            drop_unread_statistics(recording.tape)
        return recording

    def note_facts(self) -> None:
        """What was learned of the sizes so far will be guarded."""
        if self.forward.sizes is not None:
            self._facts = self.forward.sizes.env.facts.version

    def check_facts(self) -> None:
        """Raises Unsupported if more was learned of the sizes since the forward was made, and its guards with it."""
        sizes = self.forward.sizes
        if sizes is None:
            return
        if self._facts is None:
            self.note_facts()
        elif self._facts != sizes.env.facts.version:
            raise Unsupported("a backward that relies on more about the sizes than the forward did")


def trace_joint(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], pattern: Pattern | None = None, casts: Casts | None = None, viewed: Collection[int] = ()
) -> JointGraph:
    """Forward and backward of `gm` on inputs like these. `pattern`: raw outputs that will get a gradient. `casts`: which of the weights
    come in as casts too, after the others; None: those that are found to. `viewed`: inputs that the program writes and that are views.
    """
    with typed_errors():
        given = casts or ()
        recording = record(gm, inputs, pattern, casts=given, viewed=viewed)
        if casts is None and recording.cached:
            given = recording.cached
            inputs = [*inputs, *cast_inputs(inputs, given)]
            recording = record(gm, inputs, pattern, casts=given, viewed=viewed)
        joint = _split(gm, list(inputs), recording)
        joint.casts = given
    if config.verify_passes:
        verify(joint.forward)
        if joint._likely is not None:
            verify(joint._likely)
    if joint.originals:
        log.write("aot", "each call that autograd records copies the inputs %s before it writes them", joint.originals)
    log.write("aot", "%s", joint.forward)
    log.write("aot", "%s", joint._likely)
    return joint


def _split(gm: torch.fx.GraphModule, fakes: list[Any], recording: Recording) -> JointGraph:
    raw_tape = recording.tape
    kept_inputs, memory = read_inputs(recording), memory_in_use(recording)
    position = {node: i for i, node in enumerate(raw_tape)}
    grads = _nodes(recording.gradients)
    mutated = [node for _, node in recording.mutations]
    drop_unread_statistics(raw_tape)
    shown_to = [node for _, one in recording.kept or () for node in one if node is not None]  # what eager's nodes keep
    tape, results = clean(raw_tape, [*recording.raw, *mutated, *grads, *shown_to])
    results, shown_to = results[: len(results) - len(shown_to)], results[len(results) - len(shown_to) :]
    raw, results = results[: len(recording.raw)], results[len(recording.raw) :]
    mutations = [(i, node) for (i, _), node in zip(recording.mutations, results, strict=False)]
    grads = results[len(mutations) :]
    shown = len(raw) - len(recording.rebased)  # what an input is given is copied there: nobody sees the raw output
    visible = visible_memory(recording, memory, kept_inputs, tape, raw[:shown])
    chosen, held = choose(recording, tape, grads, visible, shown_to)
    nodes = [one.node for one in chosen]
    env = recording.env
    numbers, carrier = ([], None) if env is None else _number_carrier(env, fakes, nodes)
    rules, shown_numbers = _numbers_as_raw([*recording.outputs.rules, *recording.outputs.inner], len(raw))
    rules, inner = rules[: len(recording.outputs.rules)], rules[len(recording.outputs.rules) :]
    forward, saved = _build_forward(recording, tape, raw, shown_numbers, mutations, chosen, numbers, carrier, gm)
    likely = _build_backward(recording, tape, nodes, grads, numbers, carrier, gm)
    outputs = recording.outputs
    readers = readers_of(likely, len(saved), recording, outputs.differentiable)
    for one, ends in zip(readers, readers_again(recording, tape, shown_to, nodes), strict=False):  # numbers come after the nodes
        one.extend(ends)
    draws = any(is_random(node) for node in tape)
    read = _read_of(tape, [*raw, *nodes, *grads], {i for i, _ in [*mutations, *recording.rebased]})
    repeatable = not recording.rebased and not read
    held = list(range(len(fakes))) if held is None else held
    originals = sorted(read.intersection(held))
    return JointGraph(
        gm, fakes, forward, len(raw) + len(shown_numbers), outputs.differentiable, rules, inner, recording.requiring,
        recording.rebased, saved, numbers, carrier,
        recording.pattern, outputs.metas(), draws, repeatable, likely, [position[node] for node in nodes], SavedState(),
        {recording.pattern: recording.leaf_order}, recording.watched, recording.ends, readers,
        held, originals, recording.kept is not None, recording.rewrites, recording.sides.names, recording.sides.viewed,
    )  # fmt: skip


def _number_carrier(env: ShapeEnv, inputs: list[Any], saved: list[Node]) -> tuple[list[int], TensorMeta | None]:
    """What a backward may need of the sizes and cannot read off what is kept: inputs that are numbers, and sizes, which are
    kept as the sizes of a tensor without elements:

    kept: a of shape (s0 * s1,)      ->      also kept: empty(0, s0, s1), which has no memory
    """
    numbers, sizes = unread_numbers(env, inputs, [make_fake(packed_meta(node) or node.meta) for node in saved])
    if not sizes:
        return numbers, None
    shape = (0, *sizes)
    return numbers, TensorMeta(shape, contiguous_strides(shape), torch.uint8, torch.device("cpu"))


def _numbers_as_raw(rules: list[Rule], count: int) -> tuple[list[Rule], list[Any]]:
    """Numbers among the outputs and of views become raw outputs, after the `count` tensors: (rules, numbers)."""
    numbers: list[Any] = []
    places: dict[Any, tuple[str, int]] = {}

    def raw(number: Any) -> Any:
        number = plain(number)
        if not is_symbolic(number):
            return number
        key = number_key(number)
        if key not in places:
            places[key] = ("raw", count + len(numbers))
            numbers.append(number)
        return places[key]

    def settled(rule: Rule) -> Rule:
        if rule[0] == "number":
            number = raw(rule[1])
            return number if isinstance(number, tuple) else ("const", number)
        if rule[0] == "view":
            kind, base, sizes, strides, offset, *rest = rule
            if len(rest) > 1:
                rest[1] = tuple([(name, overload, tuple(map(argument, args)), item) for name, overload, args, item in rest[1]])
            return kind, base, tuple(map(raw, sizes)), tuple(map(raw, strides)), raw(offset), *rest
        return rule

    def argument(value: Any) -> Any:
        """Of a view that is called again."""
        return [raw(item) for item in value] if isinstance(value, (list, tuple)) else raw(value)

    return [settled(rule) for rule in rules], numbers


def _build_forward(
    recording: Recording,
    tape: Tape,
    raw: list[Node],
    shown_numbers: list[Any],
    mutations: list[tuple[int, Node]],
    chosen: list[Saved],
    numbers: list[int],
    carrier: TensorMeta | None,
    gm: torch.fx.GraphModule,
) -> tuple[AtenGraph, list[tuple[str, int]]]:
    behind = backward_nodes(tape, recording.tangents)
    recorder = Recorder(recording.env)
    recorder.tape = [node for node in tape if node not in behind]
    shared = {rule[1][1] for rule in [*recording.outputs.rules, *recording.outputs.inner] if rule[0] == "view" and rule[1][0] == "raw"}
    wholes = {k: numel(track_of(recording.outputs.raw[k]).store.meta.shape) for k in shared}
    epilogue = own_memory(recorder, Epilogue([("node", node) for node in raw], mutations, recording.writes, wholes=wholes))
    rules: list[Rule] = list(epilogue.outputs)
    owner = {memory_root(rule[1]): k for k, rule in enumerate(rules)}
    rules += [("const", number) for number in shown_numbers]
    saved: list[tuple[str, int]] = []
    for one in chosen:
        if one.node.op is Input and not one.copied:
            saved.append(("input", one.node.args[0]))
            continue
        saved.append(("value", len(rules)))
        rules.append(_saved_rule(recorder, one, owner, rules))
    saved += [("input", index) for index in numbers]
    if carrier is not None:
        saved.append(("value", len(rules)))
        options = {"dtype": carrier.dtype, "device": carrier.device, "pin_memory": False}
        rules.append(("node", recorder.emit(aten.empty.memory_format, (list(carrier.shape),), options, carrier)))
    epilogue = Epilogue(rules, epilogue.mutations, epilogue.writes)
    kept, nodes = drop_dead(recorder.tape, epilogue.nodes())
    graph = build_graph(kept, recording.inputs, epilogue.with_nodes(nodes), node_by_node(gm), recording.env)
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


def _own_meta(meta: TensorMeta) -> TensorMeta:
    """Metadata of a clone with memory of its own: laid out as the backward knows the value, gaps included, from the first element on."""
    return TensorMeta(meta.shape, meta.strides, meta.dtype, meta.device)


def _build_backward(
    recording: Recording,
    tape: Tape,
    saved: list[Node],
    grads: list[Node],
    numbers: list[int],
    carrier: TensorMeta | None,
    gm: torch.fx.GraphModule,
) -> AtenGraph:
    """`grads`: the nodes of the gradient rules that have one, in order. Numbers and the carrier come in after the saved values."""
    shift = len(saved) + len(numbers) + (carrier is not None)
    new, results = extract_backward(tape, saved, recording.tangents, grads, shift)
    rest = iter(results)
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
    recorder = Recorder(recording.env)
    recorder.tape = new
    epilogue = own_memory(recorder, Epilogue(rules, []))
    kept: list[Any] = [make_fake(packed_meta(node) or node.meta) for node in saved]
    kept += [recording.inputs[index] for index in numbers]
    kept += [make_fake(carrier)] if carrier is not None else []
    incoming = [make_fake(node.meta) for node in recording.tangents]
    graph = build_graph(recorder.tape, [*kept, *incoming], epilogue, node_by_node(gm), recording.env)
    graph.consumed = tuple(i for i, value in enumerate(kept) if isinstance(value, torch.Tensor))
    return graph


def _read_of(tape: Tape, results: list[Node], inputs: set[int]) -> set[int]:
    """Which of these inputs results depend on. Batch norm in training only updates its statistics."""
    live, found = set(results), set()
    for node in reversed(tape):
        if node not in live:
            continue
        if node.op is Input and node.args[0] in inputs:
            found.add(node.args[0])
        read = set(parents(node))
        if node.op is aten._native_batch_norm_legit_functional.default:
            read -= {node.args[3], node.args[4]}
        live |= read
    return found


def _nodes(rules: list[Rule]) -> list[Node]:
    return [rule[1] for rule in rules if rule[0] == "node"]
