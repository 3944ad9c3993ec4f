"""Code objects that continue a frame from the middle.

In:  a user's code object, and a `Point`: an instruction and the shape of the frame in front of it
Out: `resume_code`: a function's code that takes the frame's variables and stack and runs the rest
     `step_code`:   the same, but it runs the one instruction itself and hands the rest to resume functions

    def step(x, n, .s0, .s1):                  def resume(x, n, .s0):
        push .s0, .s1                              push .s0
        <the instruction>                          jump
        return lambda: resume(x, n, pop)           <the user's instructions that can still run>

A step does not call the resume function: it returns it, with the arguments as its defaults, and whoever began
the frame calls it (`trampoline`). So a loop with a break in it goes round in constant stack space.

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
import functools
import inspect
import types
import weakref
from collections.abc import Iterable

from dyncomp.bytecode import spell
from dyncomp.bytecode.assemble import Layout, assemble
from dyncomp.bytecode.canonical import CanonicalCode, Op, canonical
from dyncomp.bytecode.code_table import CodeKey, CodeTable
from dyncomp.bytecode.flow import Flow
from dyncomp.bytecode.instruction import Handler, Instruction, Positions
from dyncomp.bytecode.liveness import live_variables
from dyncomp.bytecode.opcodes import FOR_ITER_SKIPS
from dyncomp.bytecode.stack_effect import op_effect

# A frame that may look at its own variables keeps them all; else only those that can still be read go on.
_LOOKS_AT_ITSELF = {
    "LOAD_GLOBAL": frozenset(
        {"locals", "vars", "dir", "eval", "exec", "breakpoint", "_getframe", "currentframe"}
    ),
    "LOAD_ATTR": frozenset({"_getframe", "currentframe", "set_trace"}),
}

# Between a break and the end of a frame nothing is worth a resume function if only these are left.
_TRIVIAL = frozenset(
    "NOP POP_TOP LOAD_CONST LOAD_FAST STORE_FAST LOAD_DEREF BUILD_TUPLE SWAP COPY JUMP_FORWARD".split()
)
_TRIVIAL_LENGTH = 12

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

FIRST_ARGUMENT, THROWN = ".first", ".thrown"


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


# A constant of each code object made here, so that it tells what it is wherever it came from.
STEP_MARK, RESUME_MARK = ("dyncomp", "step"), ("dyncomp", "resume")


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


def closure_names(code: types.CodeType, shadowed: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The variables whose cells a step or resume function of `code` has as its closure."""
    return tuple(name for name in _facts(code).closure if name not in shadowed)


def parameters(code: types.CodeType, point: Point) -> tuple[str, ...]:
    """What a step of `code` at `point` takes: variables, `FIRST_ARGUMENT`, then `.s<i>` for slot i of the
    stack."""
    facts = _facts(code)
    first = (FIRST_ARGUMENT,) if facts.needs_first and code.co_varnames[0] in facts.closure else ()
    stack = (_slot(i) for i, null in enumerate(point.nulls) if not null)
    return (*first, *_passed(facts, point), *stack)


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
    facts = _facts(user)
    if facts.flow.handler(facts.raw_start(made.point.op)) is None:
        return None
    return _remembered(user, "throw", made.point)


def _remembered(code: types.CodeType, kind: str, point: Point) -> types.CodeType:
    if not can_continue(code):
        raise ValueError(f"{code.co_qualname} is a generator or coroutine")
    facts = _facts(code)
    bound = frozenset(_passed(facts, point))
    point = dataclasses.replace(point, bound=bound, kept=point.kept & bound - facts.live[facts.raw_start(point.op)])
    made = _made.get(code)
    if made is None:
        made = _made.add(code, {})
    known = made.get((kind, point))
    if known is None:
        known = made.setdefault((kind, point), _Writer(facts, point).write(kind))
    return known


# -- facts about the user's code -----------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class _Facts:
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


def _facts(code: types.CodeType) -> _Facts:
    return _facts_of(CodeKey(code))


@functools.lru_cache(maxsize=128)
def _facts_of(key: CodeKey) -> _Facts:
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
    return _Facts(
        code,
        view,
        Flow(view.instructions),
        live_variables(view.instructions),
        closure,
        tuple(slots),
        any(op.argval in _LOOKS_AT_ITSELF.get(op.name, ()) for op in view.ops),
        "__class__" in code.co_freevars and code.co_argcount > 0,
    )


def _passed(facts: _Facts, point: Point) -> tuple[str, ...]:
    """Variables worth passing on to `point`, in slot order."""
    wanted = point.bound if facts.keeps_all else point.bound & (facts.live[facts.raw_start(point.op)] | point.kept)
    if facts.needs_first:
        wanted = wanted | (point.bound & {facts.code.co_varnames[0]})
    in_closure = set(facts.closure) - point.shadowed
    return tuple(name for name in facts.slots if name in wanted and name not in in_closure)


def _slot(i: int) -> str:
    return f".s{i}"


# -- writing -------------------------------------------------------------------------------------------------


class _Writer:
    """One code object in the making."""

    def __init__(self, facts: _Facts, point: Point):
        self.facts, self.point = facts, point
        self.op: Op = facts.canonical.ops[point.op]
        self.parameters = parameters(facts.code, point)
        self.closure = closure_names(facts.code, point.shadowed)
        self.mark = RESUME_MARK
        self.place = facts.canonical.place(self.op)
        self.out: list[Instruction] = []
        self.ops: list[int] = []  # for each of `out`, the op that it comes from
        self.copies: dict[int, Instruction] = {}  # id of a user's instruction -> its copy
        self.op_of = {id(raw): op.index for op in facts.canonical.ops for raw in op.raw}

    def write(self, kind: str) -> types.CodeType:
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
        ops = self._ops_of(code)
        _origins.add(code, Origin(weakref.ref(self.facts.code), self.point, ops))
        return code

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
                self._emit([spell.op("PUSH_NULL") if null else spell.load_fast(_slot(i))])
        self._emit(spell.delete_fast(name) for name in self.parameters if name.startswith(".s"))

    def _enter_handler(self, i: int) -> None:
        """Raises the exception for real and catches it: that makes it the handled one, and saves the older in
        slot i."""
        catch = spell.op("PUSH_EXC_INFO")
        throw = spell.op("RAISE_VARARGS", 1)
        throw.handler = Handler(catch, i, False)
        self._emit([spell.load_fast(_slot(i)), throw, catch, spell.op("POP_TOP")])

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
            self._emit(spell.with_explicit_null(new) if spell.pushes_null(new) else [new])
        following = self.facts.flow.next(self.facts.flow.index[id(self.op.raw[-1])])
        if following is not None:
            self._rest(self._after(jump=False), inline_rest)
        if self.op.target >= 0:
            self._emit(arrival)
            self._rest(self._after(jump=True), inline_rest)

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
        self._emit(spell.store_fast(_slot(i)) for i in reversed(range(len(point.nulls))))
        for name in names:
            if name == FIRST_ARGUMENT:
                self._emit([spell.op("LOAD_DEREF", 0, self.facts.code.co_varnames[0])])
            else:
                self._emit([spell.load_fast(name)])
        self._emit([spell.op("BUILD_TUPLE", len(names))])
        made = resume_code(self.facts.code, point)
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


def trampoline(load_type: Instruction, load_function_type: Instruction) -> list[Instruction]:
    """[what a step returned] -> [what the frame returns], calling resume functions until there are no more.

    The two loads push `type` and `types.FunctionType`.
    """
    again, done = load_type, spell.op("NOP")
    is_function = [again, spell.op("COPY", 2), *spell.call(1), load_function_type, spell.op("IS_OP")]
    consts = [spell.op("COPY", 2), spell.load_attr("__code__"), spell.load_attr("co_consts")]
    return [
        *is_function,
        Instruction("POP_JUMP_IF_FALSE", 0, done),
        spell.load_const(RESUME_MARK),
        *consts,
        spell.op("CONTAINS_OP"),
        Instruction("POP_JUMP_IF_FALSE", 0, done),
        *spell.call(0),
        spell.jump(again),
        done,
    ]


# -- the frame's shape after an op ---------------------------------------------------------------------------


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
