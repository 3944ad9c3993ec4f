"""A place in a frame and the frame's shape there, and how one op changes that shape.

In:  a `Point` in front of an op        Out: stack slots and variables as they are behind it
"""

from __future__ import annotations

import dataclasses

from dyncomp.bytecode.canonical import Op
from dyncomp.bytecode.stack_effect import op_effect


@dataclasses.dataclass(frozen=True)
class Point:
    """A place in a frame, and the frame's shape there.

    `op`: index into `canonical(code).ops`; `nulls`: for each stack slot, bottom first, whether it is a null;
    `bound`: the variables that have a value, cells of the closure apart; `shadowed`: variables of the closure
    whose slot an inlined comprehension uses for its own variable just now (their cells are on the stack, and
    `bound` may name them); `entered`: slots of `handled_slots` whose exception was raised and caught while
    tracing, so that it is not yet the one that a bare `raise` would raise again: `.s<i>` of these is that
    exception, not the older one; `kept`: bound variables that are passed on although nobody reads them again,
    because a program can see how long their objects live.
    """

    op: int
    nulls: tuple[bool, ...] = ()
    bound: frozenset[str] = frozenset()
    shadowed: frozenset[str] = frozenset()
    entered: tuple[int, ...] = ()
    kept: frozenset[str] = frozenset()


def nulls_after(op: Op, point: Point, closure: tuple[str, ...], jump: bool) -> tuple[bool, ...]:
    """Which stack slots are nulls after an op; loads for calls push a null, never a self."""
    nulls = point.nulls
    if op.name == "LOAD_FAST_AND_CLEAR":
        in_slot = op.argval in point.bound or (op.argval in closure and op.argval not in point.shadowed)
        return (*nulls, not in_slot)
    if op.name == "PUSH_NULL":
        return (*nulls, True)
    if op.name == "SWAP":
        swapped = list(nulls)
        swapped[-1], swapped[-op.arg] = swapped[-op.arg], swapped[-1]
        return tuple(swapped)
    if op.name == "COPY":
        return (*nulls, nulls[-op.arg])
    if op.null:
        kept = nulls[: len(nulls) + op_effect(op) - 2]
        return (*kept, op.null == "before", op.null == "after")
    depth = len(nulls) + op_effect(op, jump)
    kept = nulls[:depth]
    if op.name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):
        kept = kept[:-1]
    return kept + (False,) * (depth - len(kept))


def variables_after(op: Op, point: Point, closure: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Which variables have a value after an op, and which of the closure are shadowed."""
    name, bound, shadowed = op.argval, point.bound, point.shadowed
    if op.name == "MAKE_CELL" and name in closure:
        return bound - {name}, shadowed - {name}
    if op.name == "STORE_FAST" and point.nulls[-1]:
        return bound - {name}, shadowed
    if op.name in ("STORE_FAST", "MAKE_CELL"):
        return bound | {name}, shadowed
    if op.name in ("DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
        return bound - {name}, shadowed | ({name} & set(closure) if op.name != "DELETE_FAST" else set())
    return bound, shadowed
