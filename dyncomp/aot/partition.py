"""Where a joint graph is cut into forward and backward: which forward values are kept, which computed again.

forward:  m = mm(x, w); g = gelu(m); s = g * 2             kept:  x, w, m
backward: t -> mul(t, 2) -> gelu_backward(., m) -> mm(., w), mm(x, .)

A minimum cut over bytes. Random draws, matrix products, reductions and all else that costs real work are
never computed again; views always are, from the memory they look at; pointwise results where that saves
memory and, under `config.recompute == "fused"`, only where nobody in the backward needs them in memory.

The user can see inputs and outputs and may write to them between forward and backward. Eager complains if a backward comes
to a node that kept them, and not otherwise. So they are kept by reference for gradients for which eager keeps them too:

y = clone(x) * w; z = sin(x)                               eager keeps x for z -> x, a copy of it for y -> w; and so do we
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from dyncomp import config
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.mincut import INFINITE, Network
from dyncomp.aot.tape import (
    Constant,
    Input,
    Node,
    Tape,
    aliased_parent,
    is_random,
    map_nodes,
    memory_root,
    node_facts,
    parents,
)
from dyncomp.fake.tensor import TensorMeta

aten = torch.ops.aten

# As cheap as pointwise operations, though not tagged so.
_CHEAP = frozenset({aten.clone.default, aten._to_copy.default, aten.tril.default, aten.triu.default})
# What a loop that computes its operands on the way can do.
_FUSIBLE = frozenset(
    {
        aten.sum.default,
        aten.sum.dim_IntList,
        aten.mean.default,
        aten.mean.dim,
        aten.amax.default,
        aten.amin.default,
        aten._softmax_backward_data.default,
        aten._log_softmax_backward_data.default,
    }
)


class Read(NamedTuple):
    """For the gradients of which outputs to which inputs a value is read. `around`: the inputs that eager's node which keeps it leads to."""

    outputs: int
    inputs: int
    around: int


Needs = dict[Node, set[Read]]  # by value of the forward


@dataclasses.dataclass
class Visible:
    """What the user can reach between forward and backward.

    `kept_inputs`: indices of inputs that eager keeps and nobody writes. `outputs`: the memory of the outputs.
    `keepers`: by input and output memory the sets of outputs and inputs between which nodes of eager's history lie that keep it; several
    such lists where one node stands for several memories. `unchecked`: those of which eager reads what is there then, whether it was
    written or not (`x.data`, what a custom function keeps in an attribute). `reach`: by output, the inputs that it leads to. `free`: inputs
    that live anyway.
    """

    kept_inputs: set[int]
    outputs: set[Node]
    keepers: dict[Node, list[set[tuple[int, int]]]]
    unchecked: set[Node]
    reach: list[int]
    free: set[int]

    def may_read(self, node: Node, read: Read, strict: bool) -> bool:
        """Whether eager reads the same memory for these gradients. `strict`: for each of them; else for each output, on its way to some
        of the inputs around.
        """
        if node in self.unchecked or not (node.op is Input or node in self.outputs):
            return True  # a write to what is not checked must not go unnoticed: neither value may be right
        return all(_covers(one, read, self.reach, strict) for one in self.keepers.get(node, [set()]))


@dataclasses.dataclass
class Saved:
    """One value that the forward hands to the backward; `copied`: the user may write to its memory."""

    node: Node
    copied: bool = False


def choose_saved(tape: Tape, tangents: Iterable[Node], results: list[Node], visible: Visible, needs: Needs) -> list[Saved]:
    """What to keep so that the backward part of the tape gives `results`. `needs`: all that must follow from it.

    What is the user's is read for gradients for which eager reads it, too; where that costs memory, other gradients to inputs around may
    depend on it: somebody who asks for those alone, after a write that eager does not mind, gets an error.
    """
    parts = _Parts(tape, tangents, results, visible, needs)
    strict = parts.choose(strict=True)
    if not parts.limited:
        return strict
    loose = parts.choose(strict=False)
    return strict if is_cheap(bytes_kept(strict, (), visible.free), bytes_kept(loose, (), visible.free)) else loose


def is_cheap(cost: int, other: int) -> bool:
    """Whether something that is right more often may take this memory, where another takes so much."""
    return cost <= other + other // 32


def extract_backward(
    tape: Tape, saved: list[Node], tangents: list[Node], results: list[Node], first_tangent: int
) -> tuple[Tape, list[Node]]:
    """The backward as a tape of its own: inputs are the saved values and, from `first_tangent` on, the tangents.

    Forward nodes that must be computed again come just before their first use.
    """
    made: dict[Node, Node] = {}
    new: Tape = []
    for index, node in [*enumerate(saved), *enumerate(tangents, first_tangent)]:
        entered = Node(Input, (index,), {}, packed_meta(node) or node.meta, node.line)
        new.append(entered)
        if packed_meta(node) is not None:
            entered = Node(aten._to_copy.default, (entered,), {"dtype": node.meta.dtype}, node.meta, node.line)
            new.append(entered)
        made[node] = entered
    behind = backward_nodes(tape, tangents)

    def build(node: Node) -> Node:
        for wanted in _unmet(node, made):
            if wanted not in behind and not can_recompute(wanted):
                raise Unsupported(f"a backward that needs {wanted.op} of the forward, which was not kept")
            args = map_nodes(wanted.args, made.__getitem__)
            kwargs = {name: map_nodes(value, made.__getitem__) for name, value in wanted.kwargs.items()}
            made[wanted] = Node(wanted.op, args, kwargs, wanted.meta, wanted.line)
            new.append(made[wanted])
        return made[node]

    live = _ancestors(tape, set(results))
    for node in live:
        if node in behind:
            build(node)
    return new, [build(node) for node in results]


def packed_meta(node: Node) -> TensorMeta | None:
    """How a value is kept in less memory, without loss: random masks are zeros and ones. None: as it is."""
    meta = node.meta
    if node.op is not aten.bernoulli.p or meta.dtype is torch.bool or meta.offset:
        return None
    return TensorMeta(meta.shape, meta.strides, torch.bool, meta.device)


class _Parts:
    """The readers of forward values, in parts that may read the same of what is the user's."""

    def __init__(self, tape: Tape, tangents: Iterable[Node], results: list[Node], visible: Visible, needs: Needs):
        self.tape, self.visible, self.needs = tape, visible, needs
        self.materialised = _read_in_memory(backward_nodes(tape, tangents), results)
        self.roots = {memory_root(node) for node in needs} | visible.unchecked
        self.limited: set[Node] = set()  # what is the user's and would be read too much, in the last choice

    def choose(self, strict: bool) -> list[Saved]:
        self.limited = set()
        while True:
            chosen = self._cut_all(strict)
            wrong = self._read_too_much(chosen, strict)
            if wrong <= self.limited:
                return [Saved(node, copied or node in wrong) for node, copied in chosen.items()]
            self.limited |= wrong

    def _read_too_much(self, chosen: dict[Node, bool], strict: bool) -> set[Node]:
        reads = needs_of_saved(self.tape, self.needs, chosen)
        return {
            node for node, copied in chosen.items() if not copied and not all(self.visible.may_read(node, one, strict) for one in reads[node])
        }

    def _cut_all(self, strict: bool) -> dict[Node, bool]:
        """What to save, and whether as a copy."""
        parts: dict[frozenset[Node], set[Node]] = {}  # by what they must not read
        for value, reads in self.needs.items():
            for read in reads:
                closed = frozenset(node for node in self.limited if not self.visible.may_read(node, read, strict))
                parts.setdefault(closed, set()).add(value)
        chosen: dict[Node, bool] = {}
        for closed in sorted(parts, key=len, reverse=True):
            for node in self._cut(parts[closed], closed, chosen):
                chosen[node] = chosen.get(node, False) or self._is_copied(node, closed)
        used = needs_of_saved(self.tape, self.needs, chosen)
        return {node: chosen[node] for node in self.tape if node in used}

    def _cut(self, needed: set[Node], closed: frozenset[Node], chosen: dict[Node, bool]) -> list[Node]:
        """The cheapest values from which all that is needed follows, where some are kept already."""
        forward = _ancestors(self.tape, needed)
        number = {node: i for i, node in enumerate(forward)}
        source, sink = 2 * len(forward), 2 * len(forward) + 1
        net = Network(2 * len(forward) + 2)
        for node, i in number.items():
            there = node in chosen and (chosen[node] or node not in closed)
            net.edge(2 * i, 2 * i + 1, 0.0 if there else self._price(node, closed))
            for parent in set(parents(node)):
                net.edge(2 * number[parent] + 1, 2 * i, INFINITE)
            needed_in_memory = node in self.materialised and _costs_memory(node) and not node.again
            if not can_recompute(node) or node in self.visible.unchecked or needed_in_memory:
                net.edge(source, 2 * i, INFINITE)
            if node in needed:
                net.edge(2 * i + 1, sink, INFINITE)
        side = net.source_side(source, sink)
        if side is None:
            raise Unsupported("a backward that needs a value which cannot be kept")
        return [node for node, i in number.items() if side[2 * i] and not side[2 * i + 1]]

    def _price(self, node: Node, closed: frozenset[Node]) -> float:
        """What keeping a value costs, in bytes. What eager keeps anyway is cheap if it belongs to the caller, who may have it longer."""
        if type(node.meta) is not TensorMeta or _is_view(node):
            return INFINITE
        shape = [_hint(size) for size in node.meta.shape]
        size = max(prod(shape), 1) * (packed_meta(node) or node.meta).dtype.itemsize
        if self._is_copied(node, closed):
            return 2 * size
        if node.op is Input:
            return 1e-3 * size
        return 0.1 * size if node in self.visible.outputs else size

    def _is_copied(self, node: Node, closed: frozenset[Node]) -> bool:
        if node.op is Input:
            return node in closed or node.args[0] not in self.visible.kept_inputs
        return node in self.visible.outputs and (node in closed or node not in self.roots)


def backward_nodes(tape: Tape, tangents: Iterable[Node]) -> set[Node]:
    """All that depends on a tangent."""
    behind = set(tangents)
    for node in tape:
        if any(parent in behind for parent in parents(node)):
            behind.add(node)
    return behind


def can_recompute(node: Node) -> bool:
    """True if computing it twice gives the same and costs next to nothing, or is what the program asks for (`checkpoint`)."""
    if node.op is Input or is_random(node) or node.again is False:
        return False
    if node.op is Constant or node.op is operator.getitem or _is_view(node) or _has_no_operand(node):
        return True
    if node.again and (facts := node_facts(node)) is not None and not (facts.opaque or facts.data_value or facts.data_shape):
        return True
    return config.recompute != "off" and _is_pointwise(node)


def _is_pointwise(node: Node) -> bool:
    return node.op in _CHEAP or torch.Tag.pointwise in node.op.tags


def _is_view(node: Node) -> bool:
    return aliased_parent(node) is not None


def _has_no_operand(node: Node) -> bool:
    """Constants filled in by an operation: `full`, `arange`."""
    return next(parents(node), None) is None


def _costs_memory(node: Node) -> bool:
    """False for what is free to make again wherever it is read."""
    return not (_is_view(node) or node.op is Constant or _has_no_operand(node))


def _read_in_memory(behind: set[Node], results: list[Node]) -> set[Node]:
    """Memory that operations without a loop of ours read, and gradients that are forward values."""
    if config.recompute == "more":
        return set()
    readers = [node for node in behind if node.op is not Input and not _is_fusible(node)]
    read = {memory_root(parent) for node in readers for parent in parents(node)}
    return read | {memory_root(node) for node in results if node not in behind}


def _is_fusible(node: Node) -> bool:
    return node.op is operator.getitem or _is_view(node) or node.op in _FUSIBLE or _is_pointwise(node)


def _ancestors(tape: Tape, wanted: set[Node]) -> list[Node]:
    """The wanted nodes and all they depend on, in the order of the tape."""
    live = set(wanted)
    found = []
    for node in reversed(tape):
        if node in live:
            live.update(parents(node))
            found.append(node)
    return found[::-1]


def needs_of_saved(tape: Tape, needs: Needs, saved: Collection[Node]) -> Needs:
    """For what each of the values is read from which all that is needed follows."""
    found = {node: set(reads) for node, reads in needs.items()}
    for node in reversed(tape):
        if node in found and node not in saved:
            for parent in parents(node):
                found.setdefault(parent, set()).update(found[node])
    return {node: found[node] for node in saved if node in found}


def _covers(kept: Iterable[tuple[int, int]], read: Read, reach: Sequence[int], strict: bool) -> bool:
    for k, reached in enumerate(reach):
        left = reached & read.inputs
        if not left or not read.outputs >> k & 1:
            continue
        on_the_way = [below for above, below in kept if above >> k & 1]
        if not strict:
            left = not any(below & read.around for below in on_the_way)
        for below in on_the_way if strict else ():
            left &= ~below
        if left:
            return False
    return True


def bytes_kept(chosen: Iterable[Saved], inputs: Iterable[Any], free: set[int]) -> int:
    """How much memory saved values and inputs take; nothing for inputs at the indices `free`, which live anyway."""
    memory = {memory_root(one.node): one.node.meta for one in chosen if one.copied or one.node.op is not Input or one.node.args[0] not in free}
    metas = [*memory.values(), *[one.meta for one in inputs]]
    return sum(prod(map(_hint, meta.shape)) * meta.dtype.itemsize for meta in metas)


def _hint(size: Any) -> int:
    """A size as it is in the call that is traced: costs are weighed by it, nothing else."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    known = size.node.shape_env.hint(size.node.expr)
    return 64 if known is None else int(known)


def _unmet(node: Node, made: dict[Node, Node]) -> list[Node]:
    """`node` and what it needs, as far as not made yet, in an order to make them."""
    order: list[Node] = []
    stack: list[tuple[Node, Any]] = [(node, None)]
    seen: set[Node] = set()
    while stack:
        current, rest = stack.pop()
        if current in made or (rest is None and current in seen):
            continue
        seen.add(current)
        rest = parents(current) if rest is None else rest
        for parent in rest:
            if parent not in made and parent not in seen:
                stack.append((current, rest))
                stack.append((parent, None))
                break
        else:
            order.append(current)
    return order
