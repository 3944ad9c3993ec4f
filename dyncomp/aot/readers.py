"""Which backwards read what: of the saved values, and of the outputs that the user sees.

Sets are whole numbers, a bit an element, as in `aot.ends`.
"""

from __future__ import annotations

from typing import Any

from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.record import Recording
from dyncomp.aot.tape import Node, Tape, parents


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
