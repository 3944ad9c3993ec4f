"""Where a joint graph is cut into forward and backward: which forward values are kept, which computed again.

forward:  m = mm(x, w); g = gelu(m); s = g * 2             kept:  x, w, m
backward: t -> mul(t, 2) -> gelu_backward(., m) -> mm(., w), mm(x, .)

A minimum cut over bytes. Random draws, matrix products, reductions and all else that costs real work are
never computed again; views always are, from the memory they look at; pointwise results where that saves
memory and, under `config.recompute == "fused"`, only where nobody in the backward needs them in memory.

The user can see inputs and outputs and may write to them between forward and backward. Eager complains if it
kept them, and not otherwise. So they are kept by reference where eager keeps them too, else as a copy.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from math import prod
from typing import Any

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


@dataclasses.dataclass
class Visible:
    """What the user can reach between forward and backward.

    `kept_inputs`: indices of inputs that eager keeps and nobody writes. `outputs`: the memory of the outputs.
    """

    kept_inputs: set[int]
    outputs: set[Node]


@dataclasses.dataclass
class Saved:
    """One value that the forward hands to the backward; `copied`: the user may write to its memory."""

    node: Node
    copied: bool = False


def choose_saved(tape: Tape, tangents: Iterable[Node], results: list[Node], visible: Visible, also: Iterable[Node] = ()) -> list[Saved]:
    """What to keep so that the backward part of the tape gives `results`, and the values `also` of the forward follow from it."""
    behind = backward_nodes(tape, tangents)
    needed = _forward_needs(tape, behind, results) | set(also)
    if not needed:
        return []
    materialised = _read_in_memory(behind, results)
    forward = _ancestors(tape, needed)
    number = {node: i for i, node in enumerate(forward)}
    source, sink = 2 * len(forward), 2 * len(forward) + 1
    net = Network(2 * len(forward) + 2)
    for node, i in number.items():
        net.edge(2 * i, 2 * i + 1, _price(node, needed, visible))
        for parent in set(parents(node)):
            net.edge(2 * number[parent] + 1, 2 * i, INFINITE)
        if not can_recompute(node) or (node in materialised and _costs_memory(node)):
            net.edge(source, 2 * i, INFINITE)
        if node in needed:
            net.edge(2 * i + 1, sink, INFINITE)
    side = net.source_side(source, sink)
    if side is None:
        raise Unsupported("a backward that needs a value which cannot be kept")
    cut = [node for node, i in number.items() if side[2 * i] and not side[2 * i + 1]]
    return [Saved(node, _is_copied(node, needed, visible)) for node in cut]


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


def backward_nodes(tape: Tape, tangents: Iterable[Node]) -> set[Node]:
    """All that depends on a tangent."""
    behind = set(tangents)
    for node in tape:
        if any(parent in behind for parent in parents(node)):
            behind.add(node)
    return behind


def can_recompute(node: Node) -> bool:
    """True if computing it twice gives the same and costs next to nothing."""
    if node.op is Input or is_random(node):
        return False
    if node.op is Constant or node.op is operator.getitem or _is_view(node) or _has_no_operand(node):
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


def _forward_needs(tape: Tape, behind: set[Node], results: list[Node]) -> set[Node]:
    live = _ancestors(tape, set(results))
    needed = {parent for node in live if node in behind for parent in parents(node)}
    return (needed | set(results)) - behind


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


def _price(node: Node, needed: set[Node], visible: Visible) -> float:
    """What keeping a value costs, in bytes. What eager keeps anyway is cheap if it belongs to the caller, who may have it longer."""
    if type(node.meta) is not TensorMeta or _is_view(node):
        return INFINITE
    shape = [_hint(size) for size in node.meta.shape]
    size = max(prod(shape), 1) * (packed_meta(node) or node.meta).dtype.itemsize
    if node.op is Input:
        return 1e-3 * size if node.args[0] in visible.kept_inputs else 2 * size
    if _is_copied(node, needed, visible):
        return 2 * size
    return 0.1 * size if node in visible.outputs else size


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


def _is_copied(node: Node, needed: set[Node], visible: Visible) -> bool:
    if node.op is Input:
        return node.args[0] not in visible.kept_inputs
    return node in visible.outputs and not any(memory_root(other) is node for other in needed)


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


def kept_by_eager(forward: Tape, backward: Tape) -> set[Node]:
    """The owners of the memory that the backward, as recorded, reads of the forward: what autograd kept lies there."""
    inside = set(forward)
    read = {parent for node in backward for parent in parents(node) if parent in inside}
    return {memory_root(node) for node in read}
