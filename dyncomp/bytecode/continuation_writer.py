"""Writes the code of steps and resume functions, and the instructions around them.

In:  facts about a user's code, a `Point`, and which kind of continuation to write
Out: a code object, with the user's op behind each of its ops

What the kinds do is described in `continuation`, which keeps what is written here.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterable

from dyncomp.bytecode import spell
from dyncomp.bytecode.assemble import Layout, assemble
from dyncomp.bytecode.canonical import Op, canonical
from dyncomp.bytecode.frame_facts import FIRST_ARGUMENT, Facts, closure_names, parameters, slot_prefix
from dyncomp.bytecode.frame_point import Point, nulls_after, variables_after
from dyncomp.bytecode.instruction import Handler, Instruction, Positions
from dyncomp.bytecode.opcodes import FOR_ITER_SKIPS

# Between a break and the end of a frame nothing is worth a resume function if only these are left.
_TRIVIAL = frozenset(
    "NOP POP_TOP LOAD_CONST LOAD_FAST STORE_FAST LOAD_DEREF BUILD_TUPLE SWAP COPY JUMP_FORWARD".split()
)
_TRIVIAL_LENGTH = 12

THROWN = ".thrown"

# A constant of each code object made here, so that it tells what it is wherever it came from.
STEP_MARK, RESUME_MARK = ("dyncomp", "step"), ("dyncomp", "resume")


class Writer:
    """One code object in the making. `resume`: the resume code of a later point of the same code."""

    def __init__(self, facts: Facts, point: Point, resume: Callable[[types.CodeType, Point], types.CodeType]):
        self.resume = resume
        self.facts, self.point = facts, point
        self.op: Op = facts.canonical.ops[point.op]
        self.parameters = parameters(facts.code, point)
        self.slot_prefix = slot_prefix(facts.code)
        self.closure = closure_names(facts.code, point.shadowed)
        self.mark = RESUME_MARK
        self.place = facts.canonical.place(self.op)
        self.out: list[Instruction] = []
        self.ops: list[int] = []  # for each of `out`, the op that it comes from
        self.handlers: list[Instruction] = []  # of the step itself
        self.copies: dict[int, Instruction] = {}  # id of a user's instruction -> its copy
        self.op_of = {id(raw): op.index for op in facts.canonical.ops for raw in op.raw}

    def write(self, kind: str) -> tuple[types.CodeType, tuple[int, ...]]:
        """The code, and for each of its ops the op of the user's code that it comes from (-1: the entry)."""
        if kind == "throw":
            self.parameters = (*self.parameters, THROWN)
        self._enter()
        if kind == "resume":
            self._copy_reachable(self.facts.raw_start(self.op.index))
            self._emit([spell.jump(self.copies[id(self.op.raw[0])])])
        else:
            self.mark = STEP_MARK
            handler = self.facts.flow.handler(self.facts.raw_start(self.op.index))
            if handler is not None:
                self._copy_reachable(handler)
            if kind == "throw":
                self._throw()
            else:
                self._step(inline_rest=kind == "step")
        self._emit_copies()
        code = assemble(self.out, self._layout())
        return code, self._ops_of(code)

    def _layout(self) -> Layout:
        code = self.facts.code
        layout = Layout.of(code)
        layout.flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        layout.varnames = self.parameters
        layout.argcount, layout.posonlyargcount, layout.kwonlyargcount = len(self.parameters), 0, 0
        cells = (*code.co_cellvars, *code.co_freevars)
        layout.cellvars = tuple(name for name in cells if name not in self.closure)
        layout.freevars = self.closure
        # the first constant is the docstring
        layout.names, layout.consts = (), ((*code.co_consts, None)[0], self.mark)
        return layout

    def _ops_of(self, code: types.CodeType) -> tuple[int, ...]:
        """The user's op behind each canonical op of the new code."""
        view = canonical(code)
        if len(view.instructions) != len(self.out):
            raise AssertionError("an assembled list decodes to the same list")
        place = {id(raw): i for i, raw in enumerate(view.instructions)}
        return tuple(self.ops[place[id(op.raw[0])]] for op in view.ops)

    def _emit(self, instructions: Iterable[Instruction], positions: Positions | None = None) -> None:
        for instruction in instructions:
            if instruction.positions[0] is None:
                instruction.positions = positions or self.place
            self.out.append(instruction)
            self.ops.append(-1)

    # entry: what is in the parameters goes back to where the user's instructions expect it

    def _slot(self, i: int) -> str:
        return f"{self.slot_prefix}{i}"

    def _enter(self) -> None:
        code = self.facts.code
        first_line: Positions = (code.co_firstlineno, code.co_firstlineno, None, None)
        if self.closure:
            self._emit([spell.op("COPY_FREE_VARS", len(self.closure))], first_line)
        self._emit([spell.op("RESUME")], first_line)
        for i, null in enumerate(self.point.nulls):
            if i in self.point.entered:
                self._enter_handler(i)
            else:
                self._emit([spell.op("PUSH_NULL") if null else spell.load_fast(self._slot(i))])
        self._emit(spell.delete_fast(name) for name in self.parameters if name.startswith(self.slot_prefix))

    def _enter_handler(self, i: int) -> None:
        """Raises the exception for real and catches it: that makes it the handled one, and saves the older in
        slot i."""
        catch = spell.op("PUSH_EXC_INFO")
        throw = spell.op("RAISE_VARARGS", 1)
        throw.handler = Handler(catch, i, False)
        self._emit([spell.load_fast(self._slot(i)), throw, catch, spell.op("POP_TOP")])

    # copies of the user's instructions

    def _copy_reachable(self, start: int) -> None:
        instructions = self.facts.canonical.instructions
        reached = sorted(self.facts.flow.reachable(start) - self._have())
        fresh = [instructions[i] for i in reached]
        for old in fresh:
            self.copies[id(old)] = dataclasses.replace(old)
        for old in fresh:
            self._relink(self.copies[id(old)], old)

    def _have(self) -> set[int]:
        return {self.facts.flow.index[key] for key in self.copies}

    def _relink(self, new: Instruction, old: Instruction) -> None:
        if isinstance(old.argval, Instruction):
            new.argval = self.copies[id(old.argval)]
        if old.handler is not None:
            new.handler = dataclasses.replace(old.handler, target=self.copies[id(old.handler.target)])

    def _emit_copies(self) -> None:
        for old in self.facts.canonical.instructions:
            new = self.copies.get(id(old))
            if new is not None:
                self.out.append(new)
                self.ops.append(self.op_of[id(old)])

    def _throw(self) -> None:
        old = self.op.raw[0]
        throw = spell.op("RAISE_VARARGS", 1)
        assert old.handler is not None, "only asked for where there is one"
        throw.handler = dataclasses.replace(old.handler, target=self.copies[id(old.handler.target)])
        self._emit([spell.load_fast(THROWN), throw])

    # the step itself

    def _step(self, inline_rest: bool) -> None:
        # what a loop's end skips must stand where FOR_ITER jumps to
        skipped = FOR_ITER_SKIPS if self.op.name == "FOR_ITER" else ()
        arrival = [spell.op(name) for name in skipped] or [spell.op("NOP")]
        for old in self.op.raw:
            new = dataclasses.replace(old)
            if isinstance(old.argval, Instruction):
                new.argval = arrival[0]
            if old.handler is not None:
                new.handler = dataclasses.replace(old.handler, target=self.copies[id(old.handler.target)])
            if old.opname in ("LOAD_DEREF", "DELETE_DEREF") and old.argval in self.facts.code.co_cellvars:
                new.handler = self._says_local(old.argval, new.handler)
            self._emit(spell.with_explicit_null(new) if spell.pushes_null(new) else [new])
        following = self.facts.flow.next(self.facts.flow.index[id(self.op.raw[-1])])
        if following is not None:
            self._rest(self._after(jump=False), inline_rest)
        if self.op.target >= 0:
            self._emit(arrival)
            self._rest(self._after(jump=True), inline_rest)
        self._emit(self.handlers)

    def _says_local(self, name: str, outer: Handler | None) -> Handler:
        """The frame's own cell is a free variable here, and Python would say so where it is empty: raises the error of the frame's own
        variable instead, as if there had been no other."""
        catch = spell.op("PUSH_EXC_INFO")
        throw = spell.op("RAISE_VARARGS", 1)
        throw.handler = outer
        text = f"cannot access local variable '{name}' where it is not associated with a value"
        make = [spell.load_const(UnboundLocalError), spell.load_const(text), *spell.call(1)]
        self.handlers += [catch, spell.op("POP_TOP"), spell.op("POP_EXCEPT"), *make, throw]
        return Handler(catch, len(self.point.nulls), False)

    def _after(self, jump: bool) -> Point:
        nulls = nulls_after(self.op, self.point, self.facts.closure, jump)
        bound, shadowed = variables_after(self.op, self.point, self.facts.closure)
        return Point(self.op.target if jump else self.op.index + 1, nulls, bound, shadowed, kept=self.point.kept)

    def _rest(self, point: Point, inline_rest: bool) -> None:
        """Ends the frame from `point` on: in place if trivial, else by a resume function."""
        trivial = self._trivial(point) if inline_rest else None
        if trivial is not None:
            self._emit(trivial)
            return
        names = parameters(self.facts.code, point)
        self._emit(spell.store_fast(self._slot(i)) for i in reversed(range(len(point.nulls))))
        for name in names:
            if name == FIRST_ARGUMENT:
                self._emit([spell.op("LOAD_DEREF", 0, self.facts.code.co_varnames[0])])
            else:
                self._emit([spell.load_fast(name)])
        self._emit([spell.op("BUILD_TUPLE", len(names))])
        made = self.resume(self.facts.code, point)
        self._emit(make_continuation(self.facts.code, point, made, defaults=True))
        self._emit([spell.op("RETURN_VALUE")])

    def _trivial(self, point: Point) -> list[Instruction] | None:
        """Copies of the instructions from `point` to the frame's end, if they are few and do nothing."""
        out: list[Instruction] = []
        i: int | None = self.facts.raw_start(point.op)
        while i is not None and len(out) < _TRIVIAL_LENGTH:
            old = self.facts.canonical.instructions[i]
            jump = self.facts.flow.jump(i)
            if old.opname == "RETURN_VALUE":
                return [*out, dataclasses.replace(old, handler=None)]
            if old.handler is not None or old.opname not in _TRIVIAL:
                return None
            if jump is not None:
                i = jump
            else:
                out.append(dataclasses.replace(old))
                i = self.facts.flow.next(i)
        return None


def make_continuation(
    code: types.CodeType, point: Point, made: types.CodeType, defaults: bool = False
) -> list[Instruction]:
    """Pushes the function of `point`'s step or resume code, from a frame with the variables of `code`.

    `defaults`: a tuple of its arguments is on the stack, and becomes the function's defaults.
    """
    names = closure_names(code, point.shadowed)
    cells = [spell.load_slot(name) for name in names]
    closure = [*cells, spell.op("BUILD_TUPLE", len(cells))] if names else []
    return [*closure, spell.load_const(made), *spell.make_function(bool(names), defaults)]
