"""One bytecode instruction as an object: jumps and exception handlers are links, not offsets.

Instructions compare by identity, so lists of them may be cut, copied and joined freely; `assemble` gives
them offsets again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

# (line, end line, column, end column), as `code.co_positions()` gives them
Positions = tuple[int | None, int | None, int | None, int | None]

NO_POSITIONS: Positions = (None, None, None, None)


@dataclasses.dataclass(eq=False, slots=True)
class Handler:
    """Where an exception of an instruction goes: the stack is cut to `depth`, then [lasti,] exception are
    pushed."""

    target: Instruction
    depth: int
    push_lasti: bool

    def same(self, other: Handler | None) -> bool:
        return other is not None and (self.target, self.depth, self.push_lasti) == (
            other.target,
            other.depth,
            other.push_lasti,
        )


@dataclasses.dataclass(eq=False, slots=True)
class Instruction:
    """`argval`: the name, constant, variable or target `Instruction`; `arg`: the raw operand, or what is left
    of it beside `argval` (the flag bits of LOAD_GLOBAL, LOAD_ATTR and LOAD_SUPER_ATTR)."""

    opname: str
    arg: int = 0
    argval: Any = None
    positions: Positions = NO_POSITIONS
    handler: Handler | None = None
    offset: int = -1

    @property
    def line(self) -> int | None:
        return self.positions[0]

    def __repr__(self) -> str:
        shown = f"-> {self.argval.offset}" if isinstance(self.argval, Instruction) else repr(self.argval)
        return f"<{self.offset} {self.opname} {self.arg} {shown}>"
