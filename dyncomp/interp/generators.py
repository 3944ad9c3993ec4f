"""Generators used inside the traced code: a suspended frame behind an iterator."""

from __future__ import annotations

import types
from collections.abc import Sequence

from dyncomp.errors import GraphBreak
from dyncomp.interp.machine import Frame, NotQuiet
from dyncomp.values.base import Builder, PyRaise, Tracer, Value
from dyncomp.values.builtin_kind import builtin_method
from dyncomp.values.exception import ExceptionValue, stop_in_generator
from dyncomp.values.function import FunctionValue
from dyncomp.values.iterators import IteratorValue

# What an `except` that does not match does on its way out.
_QUIET = frozenset(
    {
        "PUSH_EXC_INFO",
        "CHECK_EXC_MATCH",
        "POP_EXCEPT",
        "RERAISE",
        "COPY",
        "SWAP",
        "POP_TOP",
        "NOP",
        "RESUME",
        "LOAD_GLOBAL",
        "LOAD_CONST",
        "LOAD_FAST",
        "STORE_FAST",
        "DELETE_FAST",
        "JUMP",
        "POP_JUMP_IF_TRUE",
        "POP_JUMP_IF_FALSE",
        "TO_BOOL",
        "RETURN_VALUE",
        "STOPITERATION_ERROR",
        "CLEANUP_THROW",
        "BUILD_TUPLE",
    }
)


class GeneratorValue(IteratorValue):
    """Generated code can rebuild it until it has started: by calling its function again with the same
    arguments."""

    cls = types.GeneratorType

    def __init__(
        self, frame: Frame, function: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]
    ):
        super().__init__()
        self.frame, self.function = frame, function
        self.args, self.kwargs = list(args), dict(kwargs)
        self.started = self.finished = self.running = False
        frame.trace.state.setdefault("generators", []).append(self)

    def describe(self) -> str:
        return f"generator {self.function.qualname}"

    def next(self, tx: Tracer) -> Value | None:
        try:
            return self.resume(tx, tx.constant(None))
        except PyRaise as error:
            if issubclass(error.value.python_type(), StopIteration) and self.finished:
                return None
            raise

    def resume(self, tx: Tracer, sent: Value) -> Value:
        """The next yielded value; raises StopIteration(result) in the program at the end."""
        if self.running:
            tx.raise_(ValueError, "generator already executing")
        if self.finished:
            tx.raise_(StopIteration)
        if not self.started:
            self.started = True
        else:
            self.frame.push(sent)
        return self._run(tx, None)

    def throw(self, tx: Tracer, error: ExceptionValue) -> Value:
        if self.finished or not self.started:
            self.finished = True
            raise PyRaise(error)
        if self.frame.handled:
            error.linked_to(tx, self.frame.handled[-1])
        return self._run(tx, error)

    def _run(self, tx: Tracer, thrown: ExceptionValue | None) -> Value:
        self.running = True
        try:
            if thrown is not None and not self.frame.unwind(thrown, self.frame.op):
                raise PyRaise(thrown)
            value = self.frame.run()
        except PyRaise as error:
            self.finished = True
            if isinstance(error.value, ExceptionValue) and issubclass(error.value.cls, StopIteration):
                raise PyRaise(stop_in_generator(tx, error.value)) from None
            raise
        finally:
            self.running = False
        if self.frame.yielded:
            return value
        self.finished = True
        if value.is_constant() and value.as_constant() is None:
            tx.raise_(StopIteration)
        tx.raise_(StopIteration, value)

    @builtin_method("__next__")
    def _next(self, tx: Tracer) -> Value:
        return self.resume(tx, tx.constant(None))

    @builtin_method("send")
    def _send(self, tx: Tracer, value: Value) -> Value:
        if not self.started and not (value.is_constant() and value.as_constant() is None):
            tx.raise_(TypeError, "can't send non-None value to a just-started generator")
        return self.resume(tx, value)

    @builtin_method("throw")
    def _throw(self, tx: Tracer, error: Value, given: Value | None = None, traceback: Value | None = None) -> Value:
        """`throw(error)`, or in the older form `throw(class, error, traceback)`, as contextlib calls it up to Python 3.11."""
        if not isinstance(error, ExceptionValue):
            if isinstance(given, ExceptionValue) and issubclass(given.python_type(), error.as_constant()):
                error = given
            elif given is None or given.is_constant() and given.as_constant() is None:
                error = tx.call(error, [])
            else:
                raise GraphBreak("generator", "throw() of a class with arguments for it")
        if not isinstance(error, ExceptionValue):
            raise GraphBreak("generator", "throw() of something that is not an exception")
        return self.throw(tx, error)

    @builtin_method("close")
    def _close(self, tx: Tracer) -> Value:
        if self.started and not self.finished:
            exit_ = ExceptionValue(GeneratorExit, [])
            try:
                self.throw(tx, exit_)
            except PyRaise as error:
                if not issubclass(error.value.python_type(), (GeneratorExit, StopIteration)):
                    raise
            else:
                tx.raise_(RuntimeError, "generator ignored GeneratorExit")
        self.finished = True
        return tx.constant(None)

    def must_be_closed(self, tx: Tracer) -> bool:
        """Whether dropping it in this state would do anything. Asked when the trace is over: it is closed to
        find out."""
        if not self.started or self.finished or self.frame.op.handler is None:
            return False
        self.frame.only = _QUIET
        try:
            self._close(tx)
        except PyRaise:
            return False  # an exception of a generator that is dropped goes nowhere
        except NotQuiet:
            return True
        return False

    def reconstruct(self, builder: Builder) -> None:
        if self.started:
            super().reconstruct(builder)
        builder.load(self.function)
        for arg in (*self.args, *self.kwargs.values()):
            builder.load(arg)
        builder.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))
