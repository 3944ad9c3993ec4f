"""Every opcode of the running Python has a handler, or stands on the list of those that break."""

import pytest

from dyncomp.bytecode import canonical, opcodes
from dyncomp.errors import REASONS
from dyncomp.interp.handlers import BREAKS, HANDLERS
from dyncomp.interp.handlers.registry import breaks, family

# Raw opcodes that the canonical view writes in another way.
REWRITTEN = {
    "RETURN_CONST",
    "LOAD_METHOD",
    "KW_NAMES",
    "CALL_INTRINSIC_1",
    "CALL_INTRINSIC_2",
    "FORMAT_SIMPLE",
    "FORMAT_WITH_SPEC",
    *opcodes.PAIRS,
}
# Slots of the opcode table that no code object holds.
NEVER_MET = {"INSTRUMENTED_LINE", "RESERVED", "CACHE", "EXTENDED_ARG", "INTERPRETER_EXIT"}


def canonical_names():
    raw = set(opcodes.OPCODES) - REWRITTEN - NEVER_MET
    names = {canonical.RENAMED.get(name, name) for name in raw} | {
        "CALL",
        "FORMAT_VALUE",
        "LOAD_CONST",
        "RETURN_VALUE",
    }
    if "CALL_INTRINSIC_1" in opcodes.OPCODES:
        names |= {*opcodes.INTRINSICS_1.values(), *opcodes.INTRINSICS_2.values()}
    return sorted(names)


@pytest.mark.parametrize("name", canonical_names())
def test_is_known(name):
    assert (name in HANDLERS) != (name in BREAKS)


def test_break_reasons_are_known():
    assert {reason for reason, _ in BREAKS.values()} <= set(REASONS)


def test_second_handler_is_refused():
    with pytest.raises(RuntimeError, match="two handlers for LOAD_CONST"):
        family("LOAD_CONST", lambda frame, op: None)
    with pytest.raises(RuntimeError, match="two handlers"):
        breaks("generator", "again", next(iter(BREAKS)))
