"""What happens after the computation: which memory outputs share, and what mutated inputs become.

Output rules, one a user output (`AtenGraph.outputs`):
    ("node", node)        fresh tensor; the node may be a view of fresh memory that no other output shares
    ("input", i)          the input object itself
    ("output", j)         the very object of an earlier output
    ("view", ("input", i) | ("output", j), sizes, strides, offset)
                          alias (of fresh memory also where that comes later); `offset` counts elements from the base tensor's own first element
    ("detached", as "view")
        alias that is no view to autograd: it never requires grad (`x.detach()`, `x.data`)
    ("const", value)      anything else

A view of a detached input has ("detached input", i) for its base.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.aot.lazy import check_result
from dyncomp.aot.store import Recorder, Store, track_of
from dyncomp.aot.tape import Constant, Input, Node, memory_root
from dyncomp.fake.tensor import FakeTensor, TensorMeta
from dyncomp.shape.layout import is_dense, known_equal, numel

aten = torch.ops.aten
Rule = tuple[Any, ...]


@dataclasses.dataclass
class Epilogue:
    """`writes`: how often eager's version counters rise, by ("input", i), ("output", k) for fresh memory, and ("apart", k) for an alias
    with a counter of its own. `plain`: ("node", n) outputs that are no views to eager although n is a view: a copy in another shape.
    `wholes`: by ("node", n) outputs that others share memory with, how many elements that memory has.
    """

    outputs: list[Rule]
    mutations: list[tuple[int, Node]]
    writes: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    plain: frozenset[int] = frozenset()
    wholes: dict[int, Any] = dataclasses.field(default_factory=dict)

    def nodes(self) -> list[Node]:
        """The nodes that the epilogue needs, in a fixed order."""
        return [rule[1] for rule in self.outputs if rule[0] == "node"] + [node for _, node in self.mutations]

    def with_nodes(self, nodes: list[Node]) -> Epilogue:
        """The same epilogue over rewritten nodes, in the order of `nodes()`."""
        rest = iter(nodes)
        outputs = [("node", next(rest)) if rule[0] == "node" else rule for rule in self.outputs]
        return dataclasses.replace(self, outputs=outputs, mutations=[(index, next(rest)) for index, _ in self.mutations])


def plan_epilogue(recorder: Recorder, inputs: list[Any], outputs: list[Any]) -> Epilogue:
    """Rules for what the traced function returned, over the nodes of the recorder's tape."""
    rules = _output_rules(recorder, inputs, outputs)
    writes = {**writes_to(inputs), **_writes_to_outputs(inputs, outputs, rules)}
    fresh = [i for i, rule in enumerate(rules) if rule[0] == "node" and not track_of(outputs[i]).chain]
    plain = frozenset(i for i in fresh if memory_root(rules[i][1]) is not rules[i][1])
    shared = {rule[1][1] for rule in rules if rule[0] in ("view", "detached") and rule[1][0] == "output"}
    wholes = {i: numel(track_of(outputs[i]).store.meta.shape) for i in shared}
    return Epilogue(rules, _mutations(inputs), writes, plain, wholes)


def writes_to(inputs: list[Any]) -> dict[tuple[str, int], int]:
    """By ("input", i) how often its version counter rises."""
    counts = {("input", i): track_of(fake).writes.count for i, fake in enumerate(inputs) if type(fake) is FakeTensor}
    return {key: count for key, count in counts.items() if count}


def _writes_to_outputs(inputs: list[Any], outputs: list[Any], rules: list[Rule]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for position, (rule, value) in enumerate(zip(rules, outputs, strict=True)):
        if rule[0] == "node" and (count := track_of(value).writes.count):
            found["output", position] = count
        elif rule[0] == "detached" or rule[0] == "view" and rule[1][0] == "detached input":
            kind, index = rule[1]
            base = outputs[index] if kind == "output" else inputs[index]
            if track_of(base).writes is not (writes := track_of(value).writes):  # `x.data`
                found["apart", position] = writes.count
    return found


def _mutations(inputs: list[Any]) -> list[tuple[int, Node]]:
    fakes = [(i, fake) for i, fake in enumerate(inputs) if type(fake) is FakeTensor]
    mutations = []
    for index, fake in fakes:
        store = track_of(fake).store
        if store.version == 0:
            continue
        if any(other.fake_storage is fake.fake_storage for i, other in fakes if i != index):
            raise Unsupported("an in-place write to an input that shares memory with another input")
        check_written(fake.meta)
        mutations.append((index, store.value))
    return mutations


def check_written(meta: TensorMeta) -> None:
    """Some operations write to expanded tensors, which cannot be copied to."""
    for size, stride in zip(meta.shape, meta.strides, strict=True):
        if type(stride) is int and stride == 0 and not (type(size) is int and size <= 1):
            raise Unsupported("an in-place write to an input whose elements share memory")


def _output_rules(recorder: Recorder, inputs: list[Any], outputs: list[Any]) -> list[Rule]:
    input_index = {id(fake): i for i, fake in enumerate(inputs) if type(fake) is FakeTensor}
    seen: dict[int, int] = {}
    owners = _owners(outputs)
    rules: list[Rule] = []
    for position, value in enumerate(outputs):
        if not isinstance(value, torch.Tensor):
            rules.append(("const", value))
        elif id(value) in input_index:
            rules.append(("input", input_index[id(value)]))
        elif id(value) in seen:
            rules.append(("output", seen[id(value)]))
        elif type(value) is not FakeTensor:
            rules.append(("const", value))
        else:
            seen[id(value)] = position
            store = track_of(value).store
            owner = owners[id(store)]
            shared = outputs[owner] if owner != position else None
            rules.append(_tensor_rule(recorder, inputs, value, store, owner, shared))
    return rules


def _owners(outputs: list[Any]) -> dict[int, int]:
    """By store the position of the output that others are views of: the one that is no view itself, or else the first."""
    owners: dict[int, int] = {}
    for whole in (True, False):
        for position, value in enumerate(outputs):
            if type(value) is FakeTensor and not (whole and track_of(value).chain):
                owners.setdefault(id(track_of(value).store), position)
    return owners


def _tensor_rule(
    recorder: Recorder,
    inputs: list[Any],
    fake: FakeTensor,
    store: Store,
    owner: int,
    shared: FakeTensor | None,
) -> Rule:
    if store.input is not None:
        return _alias(("input", store.input), inputs[store.input].meta, fake)
    if store.frozen:
        if track_of(fake).chain:
            raise Unsupported("an output that is a view of a constant")
        return ("const", store.value.args[0])
    if shared is not None:
        if not store.exact:
            raise Unsupported("outputs that share memory with gaps that was written in place")
        return _alias(("output", owner), shared.meta, fake)
    return ("node", exact_node(recorder, fake))


def _alias(base: tuple[str, int], base_meta: TensorMeta, fake: FakeTensor) -> Rule:
    meta = fake.meta
    if meta.dtype != base_meta.dtype:
        raise Unsupported("an output that aliases memory under another dtype")
    chain = [step.op for step in track_of(fake).chain]
    kind = "view"
    if chain and chain[-1] is aten.detach.default:
        kind = "detached"
    elif aten.detach.default in chain and base[0] == "input":
        base = ("detached input", base[1])
    return (kind, base, meta.shape, meta.strides, meta.offset - base_meta.offset)


def exact_node(recorder: Recorder, fake: FakeTensor) -> Node:
    """The node of an output, laid out as in eager."""
    check_result(fake)
    node, meta = recorder.read(fake), fake.meta
    if node.meta.strides == meta.strides:
        return node
    if is_dense(meta.shape, meta.strides):
        node = recorder.in_layout(node, meta)
        if node.meta.strides != meta.strides:  # equal but for dimensions of size 1
            node = recorder.emit(aten.as_strided.default, (node, list(meta.shape), list(meta.strides)))
        return node
    raise Unsupported("an output with gaps in memory that was written in place")


def _covers(have: Any, wanted: Any) -> bool:
    return have >= wanted if type(have) is type(wanted) is int else known_equal(have, wanted)


def own_memory(recorder: Recorder, epilogue: Epilogue) -> Epilogue:
    """Gives each fresh output memory of its own, and each mutation a value that no earlier write-back
    changes.

    Cleaning up may have left an output that is an input (after dropping a clone), or two that are one node.
    """
    mutated = {index for index, _ in epilogue.mutations}
    taken: set[int] = set()
    outputs = []
    for position, rule in enumerate(epilogue.outputs):
        if rule[0] == "node":
            root = memory_root(rule[1])
            whole = epilogue.wholes.get(position)
            if whole is not None and not _covers(numel(root.meta.shape), whole):
                raise Unsupported("outputs that share memory of which only parts are computed")
            if root.op is Input or root.op is Constant or id(root) in taken:
                rule = ("node", _on_copy(recorder, rule[1], root))
            taken.add(id(memory_root(rule[1])))
        outputs.append(rule)
    mutations = []
    for index, node in epilogue.mutations:
        root = memory_root(node)
        if root.op is Input and root.args[0] in mutated:
            node = _on_copy(recorder, node, root)
        mutations.append((index, node))
    return dataclasses.replace(epilogue, outputs=outputs, mutations=mutations)


def _on_copy(recorder: Recorder, node: Node, root: Node) -> Node:
    """The same chain of views over a copy of its root."""
    chain: list[Node] = []
    step = node
    while step is not root:
        chain.append(step)
        step = step.args[0]  # of a view, and of an item of several views
    copied: Node = recorder.emit(aten.clone.default, (root,))
    moved = copied.meta.offset != root.meta.offset
    if copied.meta.strides != root.meta.strides or moved and any(s.op is aten.as_strided.default for s in chain):
        return recorder.emit(aten.clone.default, (node,))  # the same views of the copy would show other elements
    for step in reversed(chain):
        # An input may begin anywhere in its memory, a copy begins where its memory does.
        meta = None if moved else step.meta
        if moved and step.op is operator.getitem:
            meta = copied.meta[step.args[1]]
        copied = recorder.emit(step.op, (copied, *step.args[1:]), step.kwargs, meta)
    return copied
