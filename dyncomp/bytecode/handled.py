"""Which `except` and `finally` blocks are running, in front of each canonical op.

In:  CanonicalCode
Out: for each op the stack slots where those blocks saved the exception that was handled before, outermost
     first (None where the control never comes)

PUSH_EXC_INFO makes an exception the one being handled and saves the older one; POP_EXCEPT puts that back.
"""

from __future__ import annotations

from dyncomp.bytecode.canonical import CanonicalCode, Op
from dyncomp.bytecode.depth import stack_depths
from dyncomp.bytecode.flow import Flow

Slots = tuple[int, ...]


def handled_slots(view: CanonicalCode) -> list[Slots | None]:
    """The slots of saved exceptions before each op."""
    flow = Flow(view.instructions)
    raw_depths = stack_depths(view.instructions)
    found: list[Slots | None] = [None] * len(view.ops)
    work: list[tuple[int, Slots]] = [(0, ())]
    while work:
        index, slots = work.pop()
        if found[index] is not None:
            continue
        found[index] = slots
        op = view.ops[index]
        depth = raw_depths[flow.index[id(op.raw[0])]]
        assert depth is not None
        if op.handler is not None:
            work.append((op.handler.target, slots))
        after = _after(op, depth, slots)
        if op.target >= 0:
            work.append((op.target, after))
        if flow.next(flow.index[id(op.raw[-1])]) is not None:
            work.append((index + 1, after))
    return found


def _after(op: Op, depth: int, slots: Slots) -> Slots:
    if op.name == "PUSH_EXC_INFO":
        return (*slots, depth - 1)
    if op.name == "POP_EXCEPT":
        return slots[:-1]
    if op.name == "SWAP":
        moved = {depth - 1: depth - op.arg, depth - op.arg: depth - 1}
        return tuple(moved.get(slot, slot) for slot in slots)
    return slots
