"""What a code object says about all of its frames, and what a continuation of one of them takes from it.

In:  a user's code object and a `Point`
Out: the names of the continuation's closure and parameters
"""

from __future__ import annotations

import dataclasses
import functools
import types

from dyncomp.bytecode.canonical import CanonicalCode, canonical
from dyncomp.bytecode.code_table import CodeKey
from dyncomp.bytecode.flow import Flow
from dyncomp.bytecode.frame_point import Point
from dyncomp.bytecode.liveness import live_variables

FIRST_ARGUMENT = ".first"

# A frame that may look at its own variables keeps them all; else only those that can still be read go on.
_LOOKS_AT_ITSELF = {
    "LOAD_GLOBAL": frozenset(
        {"locals", "vars", "dir", "eval", "exec", "breakpoint", "_getframe", "currentframe"}
    ),
    "LOAD_ATTR": frozenset({"_getframe", "currentframe", "set_trace"}),
}


@dataclasses.dataclass(eq=False)
class Facts:
    code: types.CodeType
    canonical: CanonicalCode
    flow: Flow
    live: list[frozenset[str]]
    closure: tuple[str, ...]
    slots: tuple[str, ...]  # all variables, in the order of a frame's slots
    keeps_all: bool
    needs_first: bool  # super() without arguments looks for the first argument

    def raw_start(self, op: int) -> int:
        return self.flow.index[id(self.canonical.ops[op].raw[0])]


def facts_of(code: types.CodeType) -> Facts:
    return _facts_of(CodeKey(code))


@functools.lru_cache(maxsize=128)
def _facts_of(key: CodeKey) -> Facts:
    code = key.code
    view = canonical(code)
    made_at_entry = set()
    for op in view.ops:
        if op.name == "RESUME":
            break
        if op.name == "MAKE_CELL":
            made_at_entry.add(op.argval)
    # Other cells are made by inlined comprehensions: their slots are passed like any variable's.
    closure = (*(name for name in code.co_cellvars if name in made_at_entry), *code.co_freevars)
    slots = dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    return Facts(
        code,
        view,
        Flow(view.instructions),
        live_variables(view.instructions),
        closure,
        tuple(slots),
        any(op.argval in _LOOKS_AT_ITSELF.get(op.name, ()) for op in view.ops),
        "__class__" in code.co_freevars and code.co_argcount > 0,
    )


def passed(facts: Facts, point: Point) -> tuple[str, ...]:
    """Variables worth passing on to `point`, in slot order."""
    wanted = point.bound if facts.keeps_all else point.bound & (facts.live[facts.raw_start(point.op)] | point.kept)
    if facts.needs_first:
        wanted = wanted | (point.bound & {facts.code.co_varnames[0]})
    in_closure = set(facts.closure) - point.shadowed
    return tuple(name for name in facts.slots if name in wanted and name not in in_closure)


def slot_prefix(code: types.CodeType) -> str:
    """What the names of stack slots begin with: no variable's name, also where the code is a resume function whose parameters
    are stack slots themselves."""
    prefix = ".s"
    while any(name.startswith(prefix) for name in facts_of(code).slots):
        prefix += "s"
    return prefix


def closure_names(code: types.CodeType, shadowed: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The variables whose cells a step or resume function of `code` has as its closure."""
    return tuple(name for name in facts_of(code).closure if name not in shadowed)


def parameters(code: types.CodeType, point: Point) -> tuple[str, ...]:
    """What a step of `code` at `point` takes: variables, `FIRST_ARGUMENT`, then `.s<i>` (`slot_prefix`) for slot i
    of the stack."""
    facts = facts_of(code)
    first = (FIRST_ARGUMENT,) if facts.needs_first and code.co_varnames[0] in facts.closure else ()
    prefix = slot_prefix(code)
    stack = (f"{prefix}{i}" for i, null in enumerate(point.nulls) if not null)
    return (*first, *passed(facts, point), *stack)


