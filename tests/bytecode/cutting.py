"""Finds the frame shapes in a function, and cuts it in front of any instruction, for tests of what goes on
there."""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
import types

from dyncomp.bytecode import spell
from dyncomp.bytecode.assemble import Layout, assemble
from dyncomp.bytecode.canonical import canonical
from dyncomp.bytecode.continuation import is_resume, is_step
from dyncomp.bytecode.continuation_writer import make_continuation
from dyncomp.bytecode.flow import Flow
from dyncomp.bytecode.frame_facts import FIRST_ARGUMENT, closure_names, parameters
from dyncomp.bytecode.frame_point import Point, nulls_after, variables_after
from dyncomp.bytecode.instruction import Instruction


def to_the_end(function):
    """Calls the functions that a broken frame, and each step of it, returns."""

    def run(*args):
        result = function(*args)
        while isinstance(result, types.FunctionType) and (is_step(result.__code__) or is_resume(result.__code__)):
            result = result()
        return result

    return run


@functools.cache
def shapes(code, parameters_bound):
    """op index -> the frame shapes that can occur in front of it.

    Beside each shape goes, for each stack slot, the variable whose saved cell it is, or "".
    """
    view = canonical(code)
    closure = closure_names(code)
    found = {}
    work = [(Point(0, (), frozenset(parameters_bound)), ())]
    flow = Flow(view.instructions)
    while work:
        point, saved = work.pop()
        op = view.ops[point.op]
        if (point, saved) in found.setdefault(op.index, []):
            continue
        found[op.index].append((point, saved))
        if op.handler is not None:
            extra = op.handler.push_lasti + 1
            nulls = point.nulls[: op.handler.depth] + (False,) * extra
            cut = dataclasses.replace(point, op=op.handler.target, nulls=nulls)
            work.append((cut, saved[: op.handler.depth] + ("",) * extra))
        bound, shadowed = variables_after(op, point, closure)
        if op.name == "STORE_FAST" and saved[-1] == op.argval:
            bound, shadowed = bound - {op.argval}, shadowed - {op.argval}
        after = []
        if op.target >= 0:
            after.append((op.target, nulls_after(op, point, closure, True)))
        if flow.next(flow.index[id(op.raw[-1])]) is not None:
            after.append((op.index + 1, nulls_after(op, point, closure, False)))
        for target, nulls in after:
            work.append(
                (Point(target, nulls, bound, shadowed), saved_after(op, point, saved, len(nulls), closure))
            )
    return {index: [point for point, _ in rows] for index, rows in found.items()}


def saved_after(op, point, saved, depth, closure):
    if op.name == "SWAP":
        swapped = list(saved)
        swapped[-1], swapped[-op.arg] = swapped[-op.arg], swapped[-1]
        return tuple(swapped)
    if op.name == "LOAD_FAST_AND_CLEAR" and op.argval in closure and op.argval not in point.shadowed:
        return (*saved, op.argval)
    return (saved + ("",) * depth)[:depth]


def cut_at(code, point, made):
    """A copy of `code` that leaves at `point` for the function of the code object `made`."""
    view = canonical(code)
    copies = {id(raw): dataclasses.replace(raw) for raw in view.instructions}
    start = view.ops[point.op].raw[0]
    exit_ = exit_instructions(code, point, made)
    for instruction in exit_:
        instruction.positions = start.positions
    out = []
    for op in view.ops:
        for raw in op.raw:
            new = copies[id(raw)]
            if isinstance(raw.argval, Instruction):
                new.argval = exit_[0] if raw.argval is start else copies[id(raw.argval)]
            if raw.handler is not None:
                target = raw.handler.target
                new.handler = dataclasses.replace(
                    raw.handler, target=exit_[0] if target is start else copies[id(target)]
                )
            if raw is start:
                out.extend(exit_)
            if spell.pushes_null(raw):
                first, *rest = spell.with_explicit_null(new)
                new.opname, new.arg = first.opname, first.arg
                out.extend([new, *rest])
            else:
                out.append(new)
    return assemble(out, Layout.of(code))


def exit_instructions(code, point, made):
    stack = [spell.store_fast(f".s{i}") for i in reversed(range(len(point.nulls)))]
    loads = []
    for name in parameters(code, point):
        if name == FIRST_ARGUMENT:
            loads.append(spell.op("LOAD_DEREF", 0, code.co_varnames[0]))
        else:
            loads.append(spell.load_fast(name))
    call = spell.call(len(loads))
    return [
        spell.op("NOP"),
        *stack,
        *make_continuation(code, point, made),
        *loads,
        *call,
        spell.op("RETURN_VALUE"),
    ]


def first_shapes(function, args):
    """op index -> variables bound when the call first reached it; found by tracing opcodes."""
    code = function.__code__
    by_offset = {op.raw[0].offset: op.index for op in reversed(canonical(code).ops)}
    seen = {}

    def trace(frame, event, arg):
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in by_offset:
            seen.setdefault(by_offset[frame.f_lasti], frozenset(frame.f_locals))
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*copy.deepcopy(args))
    except Exception:  # noqa: BLE001  the program's own
        pass
    finally:
        sys.settrace(old)
    return seen


def bound_parameters(code):
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.co_varnames[:count]


def every_cut(function, args):
    """The frame's shape in front of each op that the call reaches."""
    code = function.__code__
    possible = shapes(code, bound_parameters(code))
    in_closure = set(closure_names(code))
    entry = next(op.index for op in canonical(code).ops if op.name == "RESUME")
    for index, bound in sorted(first_shapes(function, args).items()):
        if index <= entry:
            continue
        fitting = [p for p in possible[index] if not (p.bound ^ bound) - in_closure - set(code.co_cellvars)]
        assert fitting, (function, canonical(code).ops[index], bound, possible[index])
        yield fitting[0]
