"""Code objects that continue a frame from the middle.

In:  a user's code object, and a `Point`: an instruction and the shape of the frame in front of it
Out: `resume_code`: a function's code that takes the frame's variables and stack and runs the rest
     `step_code`:   the same, but it runs the one instruction itself and hands the rest to resume functions

    def step(x, n, .s0, .s1):                  def resume(x, n, .s0):
        push .s0, .s1                              push .s0
        <the instruction>                          jump
        return lambda: resume(x, n, pop)           <the user's instructions that can still run>

A step does not call the resume function: it returns it, with the arguments as its defaults, and whoever began
the frame calls it (`_frame/dispatch/serve.cpp`). So a loop with a break in it goes round in constant stack space.

A step also holds the user's instructions that can run if its own instruction raises inside a `try`: they are
not compiled again, the frame just goes on as plain Python. Frames of steps are never captured, frames of
resume functions are captured like any other. A mark among the constants tells which is which.

Cells are shared, not copied: both kinds have the frame's cells as their closure, in the order of
`closure_names`. Same code and same point give the same code object, and a point inside a resume function is
the same point of the user's code, so a loop with a break makes a fixed number of code objects, each with its
own cache. Lines, names and flags are the user's; `self` stays the first argument, so that `super()` works.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import weakref

from dyncomp.bytecode.code_table import CodeTable
from dyncomp.bytecode.continuation_writer import RESUME_MARK, STEP_MARK, Writer
from dyncomp.bytecode.frame_facts import facts_of, passed
from dyncomp.bytecode.frame_point import Point

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a generated code object was made from. `ops` maps its ops to ops of `code` (-1: the entry)."""

    code: weakref.ref[types.CodeType]
    point: Point
    ops: tuple[int, ...]


_origins: CodeTable[Origin] = CodeTable()
_made: CodeTable[dict[tuple[str, Point], types.CodeType]] = CodeTable()


def origin(code: types.CodeType) -> Origin | None:
    """None for code that was not made here."""
    return _origins.get(code)


def is_step(code: types.CodeType) -> bool:
    """True for the frames that must run as they are."""
    return code.co_consts[1:2] == (STEP_MARK,)


def is_resume(code: types.CodeType) -> bool:
    return code.co_consts[1:2] == (RESUME_MARK,)


def locate(code: types.CodeType, op: int) -> tuple[types.CodeType, int]:
    """The user's code object and op behind an op of a resume function; any other op is itself."""
    made = _origins.get(code)
    user = made.code() if made is not None else None
    if made is None or user is None or made.ops[op] < 0:
        return code, op
    return user, made.ops[op]


def can_continue(code: types.CodeType) -> bool:
    """Generators and coroutines cannot be cut: their frames outlive a call."""
    return not code.co_flags & _GENERATORS


def step_code(code: types.CodeType, point: Point, inline_rest: bool = True) -> types.CodeType:
    """Runs the op at `point`, then returns the resume function (`inline_rest`: or the result, if the rest is
    trivial)."""
    return _remembered(code, "step" if inline_rest else "step!", point)


def resume_code(code: types.CodeType, point: Point) -> types.CodeType:
    """Runs the frame's rest, the op at `point` first."""
    return _remembered(code, "resume", point)


def throw_code(resume: types.CodeType) -> types.CodeType | None:
    """For an error that is not the user's own, raised where a resume function's frame begins: takes the function's arguments and the
    error, and runs the handlers around that place. None if there are none."""
    made = _origins.get(resume)
    user = made.code() if made is not None else None
    if made is None or user is None:
        return None
    facts = facts_of(user)
    if facts.flow.handler(facts.raw_start(made.point.op)) is None:
        return None
    return _remembered(user, "throw", made.point)


def _remembered(code: types.CodeType, kind: str, point: Point) -> types.CodeType:
    if not can_continue(code):
        raise ValueError(f"{code.co_qualname} is a generator or coroutine")
    facts = facts_of(code)
    bound = frozenset(passed(facts, point))
    point = dataclasses.replace(point, bound=bound, kept=point.kept & bound - facts.live[facts.raw_start(point.op)])
    made = _made.get(code)
    if made is None:
        made = _made.add(code, {})
    known = made.get((kind, point))
    if known is None:
        written, ops = Writer(facts, point, resume_code).write(kind)
        _origins.add(written, Origin(weakref.ref(code), point, ops))
        known = made.setdefault((kind, point), written)
    return known
