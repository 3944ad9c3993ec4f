"""The table of opcode handlers. Refuses two handlers for one opcode and a function whose name is not the
opcode's.

    @handler
    def load_const(frame, op): ...            LOAD_CONST

    family("POP_JUMP_IF_TRUE", make(...))      one line an opcode, for families

A handler gets the frame and the canonical op. It raises GraphBreak for what it cannot follow and leaves
policy to the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, Any], None]

HANDLERS: dict[str, Handler] = {}

# Opcodes that always break the graph, with the reason id and what a user would call them.
BREAKS: dict[str, tuple[str, str]] = {}


def handler(function: Handler) -> Handler:
    return family(function.__name__.upper().rstrip("_"), function)


def family(opname: str, function: Handler) -> Handler:
    if opname in HANDLERS or opname in BREAKS:
        raise RuntimeError(f"two handlers for {opname}")
    HANDLERS[opname] = function
    return function


def breaks(reason: str, detail: str, *opnames: str) -> None:
    for opname in opnames:
        if opname in HANDLERS or opname in BREAKS:
            raise RuntimeError(f"two handlers for {opname}")
        BREAKS[opname] = (reason, detail)
