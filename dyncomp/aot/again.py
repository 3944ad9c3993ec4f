"""Eager's history of a call, made again when some of its inputs are gone.

The program has run once more, on zeros in their place; here what its nodes keep is put right from what the compiled forward saved.

    put_right(joint, raw results, nodes behind them, inputs, missing, saved, used)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from dyncomp._frame import _exec
from dyncomp.aot import kept
from dyncomp.aot.cleanup import clean
from dyncomp.aot.ends import history_below
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.interpret import state_restored, typed_errors
from dyncomp.aot.joint import JointGraph
from dyncomp.aot.partition import packed_meta
from dyncomp.aot.tape import Input, Node
from dyncomp.fake.tensor import make_fake
from dyncomp.values.node_by_node import node_by_node

_OTHER = (
    "dyncomp cannot run this backward again: an input of the compiled call is gone, and eager's history of the call is another than the one "
    "that was compiled. Keep the inputs until then, or wrap the function in dyncomp.disable."
)
_WRITTEN = (
    "dyncomp cannot run this backward again: it needs a value that follows from an input of the compiled call, and that input was written "
    "since. Write it after the backward, or wrap the function in dyncomp.disable."
)


@dataclasses.dataclass
class Places:
    """A node of eager's history: which results and inputs it lies between, and by value that it keeps the result of a graph that it is
    to be (None: it is right already). None in place of all: they cannot be known any more.
    """

    name: str
    ends: tuple[int, int]
    values: list[int | None] | None


def put_right(
    joint: JointGraph,
    raw: Sequence[Any],
    behind: Sequence[Any],
    inputs: Sequence[Any],
    missing: set[int],
    saved: Sequence[Any],
    used: Sequence[int],
) -> None:
    """Makes the history of `raw` (the differentiable raw outputs), down to the nodes `behind`, what it would be if the inputs in
    `missing` were not stand-ins. `saved`: as `joint.saved`, None for what is gone. `used`: positions in `joint.ends.keepers` of nodes that
    backwards have used up. Raises RuntimeError where the history is another than the one that was compiled.
    """
    places = range(len(joint.positions))
    gone = frozenset(place for place in places if saved[place] is None)
    key = frozenset(missing), gone
    if key not in joint.kept:
        try:
            joint.kept[key] = _kept_values(joint, *key)
            joint.check_facts()
        except Unsupported as reason:
            if missing:
                raise RuntimeError(f"{_OTHER} ({reason})") from reason
            joint.kept[key] = None
    history = history_below(raw, behind)
    known = joint.kept[key]
    if known is None or [node.name() for node in history] != [node.name for node in known[1]]:
        if missing:
            raise RuntimeError(_OTHER)
        return  # all values are right as they are; only what others used up is there again
    graph, nodes = known
    values = graph.run(*inputs, *[torch.empty(0) if place in gone else saved[place] for place in places])
    ended = {joint.ends.keepers[number] for number in used}
    for node, wanted in zip(history, nodes, strict=True):
        if wanted.ends in ended:
            _exec.release_node(node)  # a backward that comes here raises, as it would in eager
        elif wanted.values is None:
            node.register_prehook(_refuse)
        elif any(place is not None for place in wanted.values):
            kept.put_right(node, [None if place is None else values[place] for place in wanted.values])


def _refuse(gradients: tuple[Any, ...]) -> None:
    raise RuntimeError(_WRITTEN)


def _kept_values(joint: JointGraph, missing: frozenset[int], gone: frozenset[int]) -> tuple[AtenGraph, list[Places]]:
    """The graph of what nodes of the history keep and must be given; its placeholders are the inputs and the saved values."""
    recording = joint.recorded()
    if recording.kept is None:
        raise Unsupported("a history that hides what it keeps")
    saved = [recording.tape[position] for position in joint.positions]
    flat = [node for _, one in recording.kept for node in one if node is not None]
    tape, results = clean(recording.tape, [*saved, *flat])
    saved, rest = results[: len(saved)], iter(results[len(saved) :])
    entered = {node.args[0]: node for node in tape if node.op is Input}
    given = [None if place in missing else entered.get(place) for place in range(len(joint.fakes))]
    given += [None if place in gone else node for place, node in enumerate(saved)]
    lost = kept.underived(tape, {node for node in given if node is not None})
    changed = kept.dependent_on(tape, set(missing))
    wanted: list[Node] = []
    nodes: list[Places] = []
    for (name, one), ends in zip(recording.kept, recording.kept_ends, strict=True):
        values = [None if node is None else next(rest) for node in one]
        if any(node in lost and node in changed for node in values):
            nodes.append(Places(name, ends, None))
            continue
        places: list[int | None] = [None] * len(values)
        for i, node in enumerate(values):
            if node is not None and node in changed:
                places[i] = len(wanted)
                wanted.append(node)
        nodes.append(Places(name, ends, places))
    fakes = [*recording.inputs, *[make_fake(packed_meta(node) or node.meta) for node in saved]]
    with typed_errors(), state_restored():
        entries = list(zip(given, fakes, strict=True))
        graph = kept.kept_graph(tape, entries, wanted, recording.env, node_by_node(joint.gm))
    return graph, nodes
