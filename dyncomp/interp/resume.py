"""What `run` does where a frame breaks: it goes on in a step function, at the instruction that broke.

In:  the frame in front of the instruction: variables, cells, stack, as symbolic values
Out: code on a `RunBuilder`

    return step        step's defaults: <variables>, <stack>; its closure: the frame's cells

Whoever began the frame calls what it returns until that is no such function (`_frame/dispatch/serve.cpp`), so that each part's
frame stands where the user's own would. The step and resume functions themselves are made by `dyncomp.bytecode.continuation`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence

from dyncomp.bytecode.canonical import Op, canonical
from dyncomp.bytecode.continuation import can_continue, is_resume, is_step, locate, step_code
from dyncomp.bytecode.frame_facts import FIRST_ARGUMENT, closure_names, parameters, slot_prefix
from dyncomp.bytecode.frame_point import Point
from dyncomp.bytecode.handled import handled_slots
from dyncomp.interp.emit import RunBuilder
from dyncomp.values.base import Value

__all__ = ["can_continue", "emit_break", "generated_code", "is_resume", "is_step", "locate"]


def generated_code(run: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a `run` and of all step and resume functions that it leads to."""
    yield run
    for constant in run.co_consts:
        if isinstance(constant, types.CodeType) and (is_step(constant) or is_resume(constant)):
            yield from generated_code(constant)


def emit_break(
    builder: RunBuilder,
    code: types.CodeType,
    op: Op,
    variables: Mapping[str, Value],
    cells: Mapping[str, Value],
    stack: Sequence[Value | None],
    handled: Sequence[Value] = (),
    kept: frozenset[str] = frozenset(),
) -> None:
    """Pushes the step function that runs `op` as Python; it returns the function that goes on behind it.

    `op` is an op of `canonical(code)`; `variables` holds the bound ones, `cells` the cell objects of all that
    have one (a variable whose slot an inlined comprehension uses at the moment has none); `stack` is bottom
    first, None for a null. `handled` holds the exceptions whose `except` or `finally` blocks were entered
    while tracing and are still running, innermost last. `kept` names variables to hold until the frame ends. Side effects must have been replayed before.
    """
    user, index = locate(code, op.index)
    shadowed = frozenset(closure_names(user)) - frozenset(cells)
    nulls = tuple(value is None for value in stack)
    slots = handled_slots(canonical(user))[index] or ()
    entered = slots[len(slots) - len(handled) :]
    stack = list(stack)
    for slot, exception in zip(entered, handled, strict=True):
        stack[slot] = exception
    point = Point(index, nulls, frozenset(variables), shadowed, entered, kept)
    step = step_code(user, point)
    builder.positions = canonical(code).place(op)
    names = parameters(user, point)
    for name in names:
        _load_parameter(builder, user, name, variables, cells, stack)
    builder.build_tuple(len(names))
    _load_function(builder, closure_names(user, shadowed), step, cells)


def _load_function(
    builder: RunBuilder, closure: tuple[str, ...], step: types.CodeType, cells: Mapping[str, Value]
) -> None:
    for name in closure:
        builder.load(cells[name])
    if closure:
        builder.build_tuple(len(closure))
    builder.load_const(step)
    builder.make_function(closure=bool(closure), defaults=True)


def _load_parameter(
    builder: RunBuilder,
    user: types.CodeType,
    name: str,
    variables: Mapping[str, Value],
    cells: Mapping[str, Value],
    stack: Sequence[Value | None],
) -> None:
    if name == FIRST_ARGUMENT:
        builder.load(cells[user.co_varnames[0]])
        builder.load_attr("cell_contents")
        return
    prefix = slot_prefix(user)
    value = stack[int(name.removeprefix(prefix))] if name.startswith(prefix) else variables[name]
    assert value is not None, "nulls are no parameters"
    builder.load(value)
