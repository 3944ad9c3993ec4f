"""For people: each number that a call brings, whether it stayed open, who pinned it, and what would free it.

L['x'].size(0) = 8: symbolic, 2 and more
L['x'].size(1) = 128: pinned to 128 by L['x'].size(1) == 128  (model.py:14); cure: ...
L['mask'].size(0) = 8: plain; cure: dynamic=True, dyncomp.mark_dynamic, or a call with another number
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

_PINNED = (
    "write the line so that it does not need the number itself (no loop over it, no text or key made of it, no comparison; where an "
    "operation takes plain numbers only, such as a window, a count of groups or a probability, a tensor operation that does not), or leave it"
)
_OFFSET = "dynamic=True, or a later call with another number; or clone the tensor before the call: a copy starts at 0"
_CURES = {
    "plain": "dynamic=True, dyncomp.mark_dynamic, or a later call with another number",
    "special": "0 and 1 are special: dyncomp.mark_unbacked keeps them open",
    "held": "none needed: parameters, buffers and objects around the function do not come with the call",
    "static": "remove the mark_static",
}


@dataclasses.dataclass(frozen=True)
class NumberReport:
    """`state`: symbolic, pinned (symbolic at first), or plain. `by`: the guards that pinned or narrowed it, with user lines."""

    origin: str
    value: Any
    state: str
    range: str = ""
    by: tuple[str, ...] = ()
    cure: str = ""

    def __str__(self) -> str:
        text = f"{self.origin} = {self.value}: {self.state}"
        text += f", {self.range}" if self.range else ""
        text += f", because of {'; '.join(self.by)}" if self.by else ""
        return text + (f"; cure: {self.cure}" if self.cure else "")


def plain_number(origin: Any, value: Any, why: str) -> NumberReport:
    """`why`: a key of the cures above."""
    return NumberReport(str(origin), value, "plain", cure=_CURES[why])


def pinned_offset_number(source: Any, value: int, line: tuple[str, int] | None) -> NumberReport:
    """A storage offset that the program reads and that is a plain number so far. `line`: of the program, that needed it."""
    by = f"{source}.storage_offset() == {value}" + (f"  ({line[0]}:{line[1]})" if line else "")
    return NumberReport(f"{source}.storage_offset()", value, "pinned", "", (by,), _OFFSET)


def symbolic_number(env: ShapeEnv, origin: Any, value: Any) -> NumberReport:
    known = env.explain(origin)
    by = tuple([env.named(str(guard)) for guard in known.guards])
    if known.pinned:
        return NumberReport(str(origin), value, "pinned", "", by, _PINNED)
    equal = known.equal_to is not None and known.equal_to != str(origin)
    return NumberReport(str(origin), value, "symbolic", f"equal to {known.equal_to}" if equal else known.range, by)
