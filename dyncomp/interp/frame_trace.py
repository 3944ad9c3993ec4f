"""The interpreter's entry: a frame about to run becomes a graph, guards, and code that takes the frame's
place.

    trace_frame(func, args, context) -> FrameTrace

Policy for what cannot be captured is here. A frame is traced from its start; where that meets an instruction
it cannot follow (in the frame itself or in a call that it was following), it is traced again and ends before
the top frame's instruction. So nothing is ever rolled back, and what the failed instruction did leaves no
trace.

    graph break                       end before the top frame's instruction that broke
    exception nobody catches          end before the instruction that raised it: the program gets the real one
    value that code cannot rebuild    end before the instruction that made it
    SkipFrame, generators             leave the frame alone
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from dyncomp.bytecode.canonical import canonical
from dyncomp.bytecode.continuation import throw_code
from dyncomp.errors import REASONS, BreakRecord, GraphBreak, InternalError, SkipFrame
from dyncomp.guards.record import GuardRecord
from dyncomp.guards.source import Local, Source
from dyncomp.interp.emit import RunBuilder, RunCode
from dyncomp.interp.machine import NULL, Frame
from dyncomp.interp.number_nodes import settle_numbers
from dyncomp.interp.replay import replay
from dyncomp.interp.resume import can_continue, emit_break, is_step
from dyncomp.interp.sizes import Sizes
from dyncomp.interp.trace import Trace
from dyncomp.values.backward_trace import modules_of
from dyncomp.values.base import PyRaise, Unreconstructible, Value
from dyncomp.values.exception import ExceptionValue


@dataclasses.dataclass
class FrameTrace:
    """What the driver compiles. Holds nothing of the trace itself; `example_inputs` are for the compiler
    alone."""

    graph: fx.GraphModule | None = None
    example_inputs: list[Any] = dataclasses.field(default_factory=list)
    fake_inputs: list[Any] = dataclasses.field(default_factory=list)
    records: list[GuardRecord] = dataclasses.field(default_factory=list)
    breaks: list[BreakRecord] = dataclasses.field(default_factory=list)
    skipped: BreakRecord | None = None
    for_now: bool = False  # skipped for what this call brought; another one may be worth compiling
    captures: list[Source] = dataclasses.field(default_factory=list)
    run_code: RunCode | None = None
    sizes: Sizes | None = None

    @property
    def guards(self) -> list[GuardRecord]:
        """All facts; those on sizes as they stand now, since compiling the graph may learn more of them."""
        return self.records if self.sizes is None else [*self.records, *self.sizes.records()]

    @property
    def whole(self) -> bool:
        return not self.breaks and self.skipped is None

    def make_run(
        self, compiled: Callable[..., Any] | None, single: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        if self.run_code is None:
            raise InternalError("a frame that is left alone has no code to run")
        return self.run_code.make(compiled, single)


def trace_frame(func: types.FunctionType, args: tuple[Any, ...], context: Any) -> FrameTrace:
    code = func.__code__
    if is_step(code) or not can_continue(code):
        return _skip(
            _here(code, "generator", f"{code.co_qualname} is a generator or a single step of a broken frame")
        )
    stop: int | None = None
    record: BreakRecord | None = None
    duck = True
    while True:
        trace = Trace(func, args, context, stop, duck)
        try:
            result = trace.run()
            if duck and trace.sizes.took_equals_for_one():
                duck = False
                continue
            if trace.sizes.asked_late:
                continue
            if record is not None and not _worth_splitting(trace):
                return FrameTrace(skipped=record, for_now=True)
            if record is None and _is_idle(trace) and not getattr(context, "fullgraph", False):
                return _idle(trace, result)
            return _finish(trace, result, record)
        except SkipFrame as error:
            return _skip(_here(code, error.reason, error.detail, error.hint))
        except GraphBreak as error:
            step, record = trace.top_step, _break_record(trace, error.reason, error.detail, error.hint, error)
        except PyRaise as error:
            step, record = _uncaught(trace, error.value)
        except Unreconstructible as error:
            step = error.value.birth
            record = record or _break_record(
                trace, "unsupported-object", f"{error.detail} cannot be rebuilt", "", None
            )
        finally:
            trace.close()
        stop = _earlier(step, stop)
        if stop is None or _is_entry(code, stop):
            return _skip(record)


def _is_entry(code: types.CodeType, step: int) -> bool:
    """True if the top frame's instruction of this step sets the frame up: there is no way to go on in front of it."""
    ops = canonical(code).ops
    return step < len(ops) and all(op.name != "RESUME" for op in ops[:step])  # these run once, in order


def _earlier(step: int, stop: int | None) -> int | None:
    """A step before the last attempt's end, so that the attempts come to an end."""
    if stop is not None and step >= stop:
        step = stop - 1
    return step if step >= 0 else None


def _uncaught(trace: Trace, error: Value) -> tuple[int, BreakRecord]:
    assert isinstance(error, ExceptionValue)
    step = trace.top_step if error.origin is None else error.origin
    reason = "eager-error" if error.real_error is not None else "exception"
    return step, _break_record(trace, reason, f"{error.cls.__name__}: {error.message()}", "", error)


# -- records -------------------------------------------------------------------------------------------------
def _skip(record: BreakRecord) -> FrameTrace:
    return FrameTrace(skipped=record)


def _here(code: types.CodeType, reason: str, detail: str, hint: str = "") -> BreakRecord:
    return BreakRecord(
        reason, detail, code.co_filename, code.co_firstlineno, code.co_qualname, hint or REASONS[reason]
    )


def _break_record(trace: Trace, reason: str, detail: str, hint: str, carrier: Any) -> BreakRecord:
    """`carrier`: the exception or value that was told the frames it came through."""
    stack = getattr(carrier, "stack", None) or trace.last_stack()
    filename, line, function = stack[-1]
    return BreakRecord(reason, detail, filename, line, function, hint or REASONS[reason], tuple(stack))


# -- the result ----------------------------------------------------------------------------------------------
def _worth_splitting(trace: Trace) -> bool:
    """A frame that has met no tensor yet and was given none is left alone: what it calls is a candidate by
    itself."""
    met = not _is_idle(trace) or any(isinstance(real, torch.Tensor) for _, _, real, _ in trace.inputs)
    return met or reaches_tensors(trace.func, trace.args)


def reaches_tensors(func: types.FunctionType, args: Iterable[Any]) -> bool:
    """True if the arguments or the closure hold a tensor or a module."""
    return any(_has_tensors(obj) for obj in (*args, *(_contents(cell) for cell in func.__closure__ or ())))


def _idle(trace: Trace, result: Value | None) -> FrameTrace:
    """Plain Python runs such a frame fastest. The facts tell which calls are like this one, where they can be told."""
    code = trace.func.__code__
    skipped = _here(code, "nothing-to-compile", f"{code.co_qualname} runs no tensor operation")
    try:
        done = _finish(trace, result, None)
    except (GraphBreak, Unreconstructible):
        return FrameTrace(skipped=skipped, for_now=True)
    done.skipped, done.for_now = skipped, True
    return done


def _is_idle(trace: Trace) -> bool:
    """True if there is no tensor operation; what is computed of numbers alone is quicker in Python."""
    return not any(node.op not in ("placeholder", "output") and not node.meta.get("number") for node in trace.graph.nodes)


def _calls_graph(trace: Trace) -> bool:
    return any(node.op not in ("placeholder", "output") for node in trace.graph.nodes)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _has_tensors(obj: Any, depth: int = 2) -> bool:
    if isinstance(obj, torch.Tensor | torch.nn.Module):
        return True
    if depth and isinstance(obj, list | tuple):
        return any(_has_tensors(item, depth - 1) for item in obj)
    if depth and isinstance(obj, dict):
        return any(_has_tensors(item, depth - 1) for item in obj.values())
    return False


def _refuse_open_generators(trace: Trace) -> None:
    """CPython closes a generator that nobody holds; the graph cannot say when."""
    for generator in list(trace.state.get("generators", ())):
        if generator.must_be_closed(trace):
            raise Unreconstructible(generator, f"{generator.describe()}, left inside a try or with,")


def _finish(trace: Trace, result: Value | None, record: BreakRecord | None) -> FrameTrace:
    _refuse_open_generators(trace)
    trace.checks.finish()
    settle_numbers(trace.graph)
    inputs = list(trace.inputs)
    giving: set[Any] = set()  # inputs that only tell a number in which sizes of others are written
    while True:
        builder = RunBuilder(
            trace.func.__code__, trace.func.__globals__, [source for _, source, _, _ in inputs]
        )
        builder.in_front(trace.early.emit)
        replay(builder, trace.effects)
        if result is not None:
            builder.load(result)
        else:
            _emit_break(builder, trace)
        calls_graph = _calls_graph(trace)
        used = [e for e in trace.inputs if e[0].users or e[0] in builder.outputs or e[0] in giving]
        if calls_graph:
            giving |= trace.givers_of_numbers([fake for *_, fake in used])
            used = [e for e in trace.inputs if e in used or e[0] in giving]
        if [e[0] for e in used] == [e[0] for e in inputs]:
            break
        inputs = used
    trace.guard_identities()
    trace.sizes.settle()
    if (calls_graph or trace.early.may_raise) and (_failure_shows(trace) or throw_code(trace.func.__code__) is not None):
        names = trace.func.__code__.co_varnames
        slots = [Local(i, names[i]) for i in range(len(trace.args))]
        builder.rerun_on_failure(slots, trace.fake_mode.draws, trace.early.streams)
    run_code = builder.finish(calls_graph)
    done = FrameTrace(
        records=trace.guards.records(),
        sizes=trace.sizes,
        breaks=[] if record is None else [record],
        captures=run_code.captures,
        run_code=run_code,
    )
    if calls_graph:
        for node, *_ in trace.inputs:
            if all(node is not entry[0] for entry in inputs):
                trace.graph.erase_node(node)
        trace.graph.output(tuple(builder.outputs))
        done.graph = fx.GraphModule(modules_of(trace), trace.graph, "Captured")
        done.graph.meta["writes"] = trace.writes()
        done.example_inputs = [real for _, _, real, _ in inputs]
        done.fake_inputs = [fake for _, _, _, fake in inputs]
    return done


def _failure_shows(trace: Trace) -> bool:
    """True if the program could tell where the graph was when it raised: a `try` or `with` was around an operation, an object had
    been changed, or, of operations that do raise in correct programs, a tensor had been written or random numbers been drawn,
    or the error is not eager's.
    """
    raises = trace.may_fail and (trace.writes() or trace.fake_mode.draws or trace.early or trace.raises_otherwise)
    raises = raises or trace.early.may_raise or bool(trace.early) and trace.sizes.may_have_no_result()
    return bool(trace.may_be_caught or len(trace.effects) or raises or trace.checks.made or trace.checks.granted)


def _emit_break(builder: RunBuilder, trace: Trace) -> None:
    frame = trace.top
    assert isinstance(frame, Frame)
    stack = [None if value is NULL else value for value in frame.stack]
    emit_break(builder, frame.code, frame.op, frame.variables, frame.cells, stack, frame.handled, trace.kept_variables())
