"""What a call keeps for its backwards: values, and inputs that must live."""

from __future__ import annotations

from dyncomp.aot.dependence import joined, needs_of_backward, needs_of_history
from dyncomp.aot.kept import held_inputs
from dyncomp.aot.partition import Saved, Visible, backward_nodes, bytes_kept, choose_saved
from dyncomp.aot.record import Recording
from dyncomp.aot.tape import Input, Node, Tape


def choose(
    recording: Recording, tape: Tape, grads: list[Node], visible: Visible, kept: list[Node]
) -> tuple[list[Saved], list[int] | None]:
    """What to save, and which inputs must live for a backward that is differentiated; None: not known. `kept`: what eager keeps."""
    of_history = needs_of_history(recording, kept)
    needs = needs_of_backward(recording, tape, grads, of_history)
    chosen = choose_saved(tape, recording.tangents, grads, visible, needs)
    if recording.kept is None:
        return chosen, None
    behind = backward_nodes(tape, recording.tangents)
    forward = [node for node in tape if node not in behind]
    held = held_inputs(forward, kept, [one.node for one in chosen])
    free = visible.free
    if held <= free:
        return chosen, sorted(held)
    other = choose_saved(tape, recording.tangents, grads, visible, joined(needs, of_history))
    now = held_inputs(forward, kept, [one.node for one in other])
    before = {one.node.args[0] for one in chosen if one.node.op is Input and not one.copied} | free
    cost = bytes_kept(chosen, [recording.inputs[i] for i in held - before], free)
    if bytes_kept(other, [recording.inputs[i] for i in now - free], free) <= cost:
        return other, sorted(now)
    return chosen, sorted(held)
