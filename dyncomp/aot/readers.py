"""Which backwards read what: of the saved values, and of the outputs that the user sees.

Sets are whole numbers, a bit an element, as in `aot.ends`.
"""

from __future__ import annotations

from typing import Any

from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.record import Recording
from dyncomp.aot.tape import Node, Tape, memory_root, parents


def readers_of(backward: AtenGraph, count: int, recording: Recording, differentiable: list[bool]) -> list[list[tuple[int, int]]]:
    """By saved value pairs of (differentiable outputs, positions in `requiring`): whose gradients are computed from it. All where sizes are
    symbolic, since they may be read off it.
    """
    if backward.sizes is not None:
        return [[((1 << sum(differentiable)) - 1, (1 << len(recording.requiring)) - 1)] for _ in range(count)]
    numbers = {k: n for n, k in enumerate(k for k, yes in enumerate(differentiable) if yes)}
    given = backward.placeholders
    tangents = dict(zip(given[count:], [numbers[k] for k, yes in enumerate(recording.pattern) if yes], strict=True))
    nodes = list(backward.graph.nodes)
    above: dict[Any, int] = {}  # by node: the outputs whose gradients it depends on
    for node in nodes:
        above[node] = 1 << tangents[node] if node in tangents else 0
        for parent in node.all_input_nodes:
            above[node] |= above[parent]
    below: dict[Any, int] = dict.fromkeys(nodes, 0)  # by node: the inputs whose gradients depend on it
    for place, rule in enumerate(backward.outputs):
        while rule[0] == "output" or rule[0] == "view" and rule[1][0] == "output":
            rule = backward.outputs[rule[1] if rule[0] == "output" else rule[1][1]]
        if rule[0] != "const":
            below[rule[1] if rule[0] == "node" else given[rule[1] if rule[0] == "input" else rule[1][1]]] |= 1 << place
    outputs: dict[Any, int] = {}  # by node: the outputs whose gradients it is combined with
    for node in reversed(nodes):
        outputs[node] = above[node]
        for user in node.users:
            if user.op != "output":
                below[node] |= below[user]
                outputs[node] |= outputs[user] if not above[node] else 0
    everyone = (1 << len(numbers)) - 1
    return [[(outputs[one] or (everyone if below[one] else 0), below[one])] for one in given[:count]]


def readers_again(recording: Recording, tape: Tape, kept: list[Node], saved: list[Node]) -> list[list[tuple[int, int]]]:
    """The same for a history of eager's that is made again: a saved value is read as long as eager keeps something that follows from it.
    `kept`: the nodes of all that eager keeps, in the order of `recording.kept`.
    """
    rest = iter(kept)
    ends: dict[Node, set[tuple[int, int]]] = {}
    for (_, one), between in zip(recording.kept or (), recording.kept_ends, strict=False):
        for shown in one:
            if shown is not None:
                ends.setdefault(next(rest), set()).add(between)
    stops = set(saved)
    for node in reversed(tape):
        if node in ends and node not in stops:
            for parent in parents(node):
                ends.setdefault(parent, set()).update(ends[node])
    return [sorted(ends.get(node, ())) for node in saved]


def watched_outputs(recording: Recording) -> list[tuple[int, int, int, str]]:
    """The raw outputs that the user sees and eager keeps: (raw output, for gradients of which outputs, to which inputs, what eager calls
    it where it complains).
    """
    forward, backward = recording.tape[: recording.boundary], recording.tape[recording.boundary :]
    inside = set(forward)
    flags = recording.outputs.differentiable
    roots = {memory_root(node): k for k, node in enumerate(recording.raw[: len(recording.raw) - len(recording.rebased)]) if flags[k]}
    if not roots:
        return []
    numbers = {k: n for n, k in enumerate(k for k, yes in enumerate(flags) if yes)}
    above = {node: 1 << numbers[k] for node, k in zip(recording.tangents, [k for k, yes in enumerate(recording.pattern) if yes], strict=True)}
    for node in backward:
        for parent in parents(node):
            above[node] = above.get(node, 0) | above.get(parent, 0)
    below: dict[Node, int] = {}
    for place, rule in enumerate(recording.gradients):
        while rule[0] == "output":
            rule = recording.gradients[rule[1]]
        if rule[0] == "node":
            below[rule[1]] = below.get(rule[1], 0) | 1 << place
    met: dict[Node, int] = {}  # by node that depends on no gradient: the outputs whose gradients it is combined with
    found: dict[int, tuple[int, int]] = {}
    for node in reversed(backward):
        own = above.get(node) or met.get(node, 0)
        for parent in parents(node):
            below[parent] = below.get(parent, 0) | below.get(node, 0)
            met[parent] = met.get(parent, 0) | own
            k = roots.get(memory_root(parent)) if parent in inside else None
            if k is not None:
                outputs, inputs = found.get(k, (0, 0))
                found[k] = outputs | own, inputs | below.get(node, 0)
    return [(k, *sets, recording.origins[k]) for k, sets in sorted(found.items())]
