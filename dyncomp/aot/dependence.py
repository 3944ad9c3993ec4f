"""Between which outputs and inputs gradients depend on values of the forward: in our backward, and in eager's.

    y = x.sin(); z = x.clone() * w; return y, z        our backward reads x for    y -> x and z -> w
                                                       eager keeps x for           y -> x, else a copy

What the user writes between forward and backward must matter to no backward but those for which eager keeps it, too: eager complains
there, and not elsewhere. Sets of outputs and inputs are whole numbers, a bit an element, as in `aot.ends`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dyncomp.aot.partition import Needs, Read, Visible
from dyncomp.aot.record import Recording
from dyncomp.aot.tape import Input, Node, Tape, memory_root, parents
from dyncomp.aot.watched import Memory


def needs_of_backward(recording: Recording, tape: Tape, grads: Sequence[Node], of_history: Needs) -> Needs:
    """What the backward on the tape reads of the forward. `grads`: the nodes of the gradient rules that have one, in order."""
    needs: Needs = {}
    keepers: Needs = {}  # by memory
    for node, reads in of_history.items():
        keepers.setdefault(memory_root(node), set()).update(reads)

    def note(node: Node, outputs: int, inputs: int) -> None:
        around = -1 if recording.kept is None else inputs
        for one in keepers.get(memory_root(node), ()):
            if one.outputs & outputs == outputs and one.inputs & inputs == inputs:
                around |= one.inputs
        needs.setdefault(node, set()).add(Read(outputs, inputs, around))

    above, below = _ends_on_tape(recording, tape, grads)
    for node in tape:
        if above[node] and below[node]:
            for parent in parents(node):
                if not above[parent]:
                    note(parent, above[node], below[node])
    for node, places in zip(grads, _places(recording), strict=True):
        if not above[node]:
            note(node, _everything(recording), places)
    return needs


def needs_of_history(recording: Recording, kept: Sequence[Node]) -> Needs:
    """What eager's nodes keep. `kept`: all that, in the order of `recording.kept`."""
    needs: Needs = {}
    rest = iter(kept)
    for (_, one), (outputs, inputs) in zip(recording.kept or (), recording.kept_ends, strict=False):
        for shown in one:
            if shown is not None:
                needs.setdefault(next(rest), set()).add(Read(outputs, inputs, inputs))
    return needs


def joined(some: Needs, others: Needs) -> Needs:
    return {node: some.get(node, set()) | others.get(node, set()) for node in [*some, *others]}


def visible_memory(recording: Recording, memory: Memory, kept_inputs: set[int], tape: Tape, raw: Sequence[Node]) -> Visible:
    """`memory`: of `memory_in_use`; `raw`: the outputs that the user sees, by the nodes that stand for them now."""
    keys = {node: [("input", node.args[0])] for node in tape if node.op is Input}
    for k, node in enumerate(raw):
        if memory_root(node).op is not Input:  # else it is copied for the output
            keys.setdefault(memory_root(node), []).append(("raw", k))
    unchecked = _unchecked(recording, memory)
    free = {i for i in recording.requiring if recording.inputs[i].is_leaf}
    return Visible(
        kept_inputs,
        {memory_root(node) for node in raw},
        {node: [memory.get(key, set()) for key in some] for node, some in keys.items()},
        {node for node, some in keys.items() if not unchecked.isdisjoint(some)},
        recording.ends.reach,
        free,
    )


def read_inputs(recording: Recording) -> set[int]:
    """The inputs whose memory eager's backward reads, and which the program does not write. To be called before the tape is changed."""
    tape, boundary = recording.tape, recording.boundary
    inside = set(tape[:boundary])
    roots = {memory_root(parent) for node in tape[boundary:] for parent in parents(node) if parent in inside}
    written = {index for index, _ in [*recording.mutations, *recording.rebased]}
    return {root.args[0] for root in roots if root.op is Input} - written


def memory_in_use(recording: Recording) -> Memory:
    """Of which inputs and raw outputs eager keeps the memory. Where a node hides what it keeps, as far as its backward reads it. To be
    called before the tape is changed.
    """
    if recording.kept is not None:
        return recording.memory
    memory = {key: set(between) for key, between in recording.memory.items()}
    tape, boundary = recording.tape, recording.boundary
    inside = set(tape[:boundary])
    shown = {memory_root(node): k for k, node in enumerate(recording.raw)}
    above, below = _ends_on_tape(recording, tape, [rule[1] for rule in recording.gradients if rule[0] == "node"])
    combined: dict[Node, int] = {}  # by node that depends on no gradient: those of which outputs it is combined with
    for node in reversed(tape[boundary:]):
        if not below[node]:
            continue
        outputs = above[node] or combined.get(node, _everything(recording))
        for parent in parents(node):
            owner = memory_root(parent)
            if parent not in inside:
                combined[parent] = combined.get(parent, 0) | outputs
            elif owner.op is Input:
                memory.setdefault(("input", owner.args[0]), set()).add((outputs, below[node]))
            elif owner in shown:
                memory.setdefault(("raw", shown[owner]), set()).add((outputs, below[node]))
    return memory


def _unchecked(recording: Recording, memory: Memory) -> set[tuple[str, int]]:
    """What eager keeps without looking at its version."""
    checked: Memory = {}
    for one in recording.watched:
        checked.setdefault((one.kind, one.index), set()).add((one.outputs, one.inputs))

    def is_checked(key: tuple[str, int], above: int, below: int) -> bool:
        return any(above & ~outputs == 0 and below & ~inputs == 0 for outputs, inputs in checked.get(key, ()))

    return {key for key, some in memory.items() if not all(is_checked(key, above, below) for above, below in some)}


def _ends_on_tape(recording: Recording, tape: Tape, grads: Sequence[Node]) -> tuple[dict[Node, int], dict[Node, int]]:
    """By node the outputs whose gradients it depends on, and the inputs whose gradients depend on it."""
    numbers = {k: number for number, k in enumerate(k for k, yes in enumerate(recording.outputs.differentiable) if yes)}
    asked = [numbers[k] for k, yes in enumerate(recording.pattern) if yes]
    above = dict.fromkeys(tape, 0)
    for tangent, number in zip(recording.tangents, asked, strict=True):
        above[tangent] = 1 << number
    for node in tape:
        for parent in parents(node):
            above[node] |= above[parent]
    below = dict.fromkeys(tape, 0)
    for node, places in zip(grads, _places(recording), strict=True):
        below[node] |= places
    for node in reversed(tape):
        if below[node]:
            for parent in parents(node):
                below[parent] |= below[node]
    return above, below


def _places(recording: Recording) -> list[int]:
    """By gradient rule that has a node: the positions in `requiring` that get it."""
    places = {position: 1 << position for position, rule in enumerate(recording.gradients) if rule[0] == "node"}
    for position, rule in enumerate(recording.gradients):
        if rule[0] == "output" and rule[1] in places:
            places[rule[1]] |= 1 << position
    return list(places.values())


def _everything(recording: Recording) -> int:
    return (1 << len(recording.ends.reach)) - 1
