"""A Python frame executed symbolically: stack, variables, and the loop over its canonical instructions.

    Frame(trace, function, variables).run() -> Value

The loop fetches an op, calls its handler, and sends exceptions of the traced program to the handler that the
exception table names. A generator's frame runs until its next yield and keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from dyncomp import config
from dyncomp.bytecode.canonical import Op, canonical
from dyncomp.bytecode.stack_effect import op_effect
from dyncomp.errors import GraphBreak, InternalError
from dyncomp.guards.source import Source
from dyncomp.interp.handlers.registry import BREAKS, HANDLERS
from dyncomp.values.base import NotConstant, PyRaise, Tracer, Value
from dyncomp.values.exception import ExceptionValue
from dyncomp.values.function import CellValue, FunctionValue
from dyncomp.values.mapping import DictValue


class Host(Tracer, Protocol):
    """What a frame needs of the trace around it, besides what values may ask."""

    top_step: int

    def before_top_step(self, frame: Frame) -> None:
        """The top frame is about to run an instruction; raises StopTracing where tracing is to end."""

    def note_break(self, error: GraphBreak) -> None: ...
    def note_raise(self, value: ExceptionValue) -> None: ...
    def raise_value(self, value: ExceptionValue) -> NoReturn: ...
    def globals_of(self, function: FunctionValue) -> DictValue: ...
    def builtins_of(self, function: FunctionValue) -> DictValue: ...


# A generator's frame starts with the value that is sent first; the table counts the making of the generator.
_FREE_EFFECT = frozenset({"RETURN_GENERATOR"})


class NullValue(Value):
    """The null that CPython puts beside a callable."""

    def describe(self) -> str:
        return "NULL"


NULL = NullValue()


class NotQuiet(Exception):
    """A frame that may only run some instructions met another one."""


class UnreadArgument(Value):
    """An argument slot that the frame has not looked at."""

    def __init__(self, obj: Any, source: Source):
        super().__init__(source)
        self.obj = obj


class StopTracing(Exception):
    """The top frame has reached the instruction before which tracing was told to end."""


class Frame:
    """`variables`: arguments by name; cell variables among them are moved into cells by MAKE_CELL."""

    def __init__(self, trace: Host, function: FunctionValue, variables: dict[str, Value], top: bool = False):
        self.trace, self.function, self.top = trace, function, top
        self.code = function.code
        self.ops = canonical(function.code).ops
        self.ip = 0
        self.op: Op = self.ops[0]
        self.stack: list[Value] = []
        self.variables = variables
        self.cells: dict[str, CellValue] = {}
        self.handled: list[ExceptionValue] = []  # exceptions whose except blocks are running
        self.entered: list[int] = []  # for each of these, the stack slot of the exception handled before it
        self.result: Value | None = None
        self.yielded = False
        self.executed = 0
        self.only: frozenset[str] | None = None  # the instructions that may run from now on
        self.verify = config.verify_passes

    # -- stack ----------------------------------------------------------------------------------------------
    def push(self, value: Value) -> None:
        if not value.birth:
            value.birth = self.trace.top_step
        self.stack.append(value)

    def pop(self) -> Value:
        return self.stack.pop()

    def popn(self, n: int) -> list[Value]:
        if n == 0:
            return []
        items = self.stack[-n:]
        del self.stack[-n:]
        return items

    def push_callable(self, op: Op, value: Value, receiver: Value | None = None) -> None:
        """A callable with its null or its first argument, in the order of the running Python."""
        if receiver is not None:
            self.stack.append(value)
            self.stack.append(receiver)
        elif op.null == "before":
            self.stack.append(NULL)
            self.push(value)
        else:
            self.push(value)
            if op.null == "after":
                self.stack.append(NULL)

    # -- variables ------------------------------------------------------------------------------------------
    def globals(self) -> DictValue:
        return self.trace.globals_of(self.function)

    def variable(self, name: str) -> Value | None:
        value = self.variables.get(name)
        if isinstance(value, UnreadArgument):
            assert value.source is not None
            value = self.variables[name] = self.trace.wrap(value.obj, value.source)
        return value

    def jump(self, target: int) -> None:
        self.ip = target

    def return_(self, value: Value) -> None:
        self.result = value

    # -- the loop -------------------------------------------------------------------------------------------
    def run(self) -> Value:
        """Until the frame returns, or yields (`yielded`)."""
        trace, ops = self.trace, self.ops
        self.result, self.yielded = None, False
        trace.frames.append(self)
        try:
            while self.result is None:
                self.op = op = ops[self.ip]
                if self.top:
                    trace.before_top_step(self)
                if self.only is not None and op.name not in self.only:
                    raise NotQuiet
                self.ip += 1
                self.executed += 1
                self._step(op)
        finally:
            trace.frames.pop()
        return self.result

    def _step(self, op: Op) -> None:
        try:
            function = HANDLERS.get(op.name)
            if function is None:
                self._refuse(op)
            elif self.verify:
                self._checked_step(op, function)
            else:
                function(self, op)
            if op.target >= 0 and self.executed > config.unroll_limit:
                raise GraphBreak(
                    "graph-too-large", f"more than {config.unroll_limit} instructions in one frame"
                )
        except PyRaise as error:
            if not self.unwind(error.value, op):
                raise
        except GraphBreak as error:
            self.trace.note_break(error)
            raise
        except NotConstant as unknown:
            unasked = GraphBreak("data-dependent-value", f"the value of {unknown} is not known while tracing")
            self.trace.note_break(unasked)
            raise unasked from unknown

    def _checked_step(self, op: Op, function: Callable[[Any, Any], None]) -> None:
        """Every handler moves the stack as far as CPython's own table says."""
        before, at = len(self.stack), self.ip
        function(self, op)
        if self.result is not None or op.name in _FREE_EFFECT:
            return
        expected = before + op_effect(op, jump=self.ip != at)
        if len(self.stack) != expected:
            raise InternalError(f"{op.name} left the stack at {len(self.stack)} instead of {expected}")

    def _refuse(self, op: Op) -> None:
        reason, detail = BREAKS.get(op.name, ("unsupported-opcode", f"the instruction {op.name}"))
        raise GraphBreak(reason, detail)

    def unwind(self, value: Value, op: Op) -> bool:
        """Goes to this frame's handler for an exception of `op`; False if there is none."""
        assert isinstance(value, ExceptionValue)
        if self.top and value.origin is None:
            value.origin = self.trace.top_step
        self.trace.note_raise(value)
        if op.handler is None:
            return False
        del self.stack[op.handler.depth :]
        if op.handler.push_lasti:
            self.stack.append(self.trace.constant(op.raw[-1].offset))
        self.push(value)
        self.ip = op.handler.target
        return True

    # -- exceptions being handled ----------------------------------------------------------------------------
    def current_exception(self) -> ExceptionValue | None:
        """What `raise` without an exception, or an `except` block's own context, refers to."""
        for frame in reversed(self.trace.frames):
            if frame.handled:
                return frame.handled[-1]
        return None

    def where(self) -> tuple[str, int, str]:
        return self.code.co_filename, self.op.line or self.code.co_firstlineno, self.code.co_qualname


def variable_names(code: Any) -> tuple[str, ...]:
    """Names of all local slots: variables, then cells."""
    return (
        *code.co_varnames,
        *(name for name in code.co_cellvars if name not in code.co_varnames),
        *code.co_freevars,
    )
