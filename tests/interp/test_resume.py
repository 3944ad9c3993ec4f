"""`run` goes on from any place of a function: variables, cells, stack and handled exceptions come from
captures."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
import types

import pytest

from dyncomp.bytecode import spell
from dyncomp.bytecode.assemble import Layout, assemble
from dyncomp.bytecode.canonical import canonical
from dyncomp.bytecode.frame_facts import closure_names, parameters
from dyncomp.bytecode.handled import handled_slots
from dyncomp.guards.source import Local
from dyncomp.interp.emit import RunBuilder
from dyncomp.interp.resume import emit_break, is_step
from dyncomp.values.base import Value
from tests.bytecode.cutting import cut_at, every_cut, to_the_end
from tests.bytecode.programs import CALLS, outcome, rebuilt, reset


def collector(code, point):
    """Code that takes what a step takes, and returns it with the cells."""
    names, cells = parameters(code, point), closure_names(code, point.shadowed)
    loads = [spell.load_slot(name) if name in cells else spell.load_fast(name) for name in (*names, *cells)]
    body = [spell.op("RESUME"), *loads, spell.op("BUILD_TUPLE", len(loads)), spell.op("RETURN_VALUE")]
    if cells:
        body.insert(0, spell.op("COPY_FREE_VARS", len(cells)))
    flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
    return assemble(
        body, Layout("collect", "collect", "c.py", 1, flags, names, freevars=cells, argcount=len(names))
    )


def handled_now():
    return sys.exc_info()[1]


def state_at(function, point, args):
    """The real objects of the frame in front of `point`: {parameter or cell: object}."""
    code = function.__code__
    cut = rebuilt(function, cut_at(code, point, collector(code, point)))

    def apart():  # a generator keeps the exceptions being handled to itself
        yield cut(*args), handled_now()

    names = (*parameters(code, point), *closure_names(code, point.shadowed))
    values, handled = next(apart())
    return dict(zip(names, values, strict=True)), handled


def run_from(function, point, args):
    """Goes on at `point` in a `run` whose captures are the frame's objects."""
    code = function.__code__
    state, innermost = state_at(function, point, args)
    slots = handled_slots(canonical(code))[point.op]
    # each block saved the exception of the block around it
    handled = [state[f".s{slot}"] for slot in slots[1:]] + [innermost] * bool(slots)
    state |= {f"handled {i}": error for i, error in enumerate(handled)}
    values = {name: Value(Local(i, name)) for i, name in enumerate(state)}
    in_closure = closure_names(code, point.shadowed)
    builder = RunBuilder(code, function.__globals__)
    emit_break(
        builder,
        code,
        canonical(code).ops[point.op],
        {name: values[name] for name in point.bound if name in values and name not in in_closure},
        {name: values[name] for name in in_closure},
        [None if null else values[f".s{i}"] for i, null in enumerate(point.nulls)],
        [values[f"handled {i}"] for i in range(len(handled))],
    )
    run_code = builder.finish(calls_graph=False)
    objects = {values[name].source: obj for name, obj in state.items()}
    return to_the_end(run_code.make(None))(*[objects[source] for source in run_code.captures])


@pytest.mark.parametrize("function, args", CALLS)
def test_run_goes_on_anywhere(function, args):
    reset(function)
    expected = outcome(function, args)
    for point in every_cut(function, args):
        if canonical(function.__code__).ops[point.op].argval in point.shadowed:
            continue
        reset(function)
        got = outcome(lambda *real, point=point: run_from(function, point, real), args)
        assert got == expected, canonical(function.__code__).ops[point.op]


def test_outputs_are_dropped_before_the_rest_runs():
    """What `run` computed lives no longer than the frame's own variables."""
    import weakref

    class Big:
        pass

    def user(x, seen):
        seen.append(1)
        del x
        seen.append(None)
        return len(seen)

    code = user.__code__
    delete = next(op for op in canonical(code).ops if op.name == "DELETE_FAST")
    builder = RunBuilder(code, globals())

    class Node(Value):
        def reconstruct(self, builder):
            builder.load_node("n0")

    class Appended(list):
        def append(self, item):
            super().append(item if item is not None else alive())

    emit_break(builder, code, delete, {"x": Node(), "seen": Value(Local(0, "seen"))}, {}, [])
    run_code = builder.finish(calls_graph=True)
    made = []

    def graph():
        big = Big()
        made.append(weakref.ref(big))
        return (big,)

    def alive():
        return made[0]()

    seen = Appended()
    to_the_end(run_code.make(graph))(seen)
    assert seen == [None]
    steps = [const for const in run_code.code.co_consts if isinstance(const, types.CodeType)]
    assert len(steps) == 1 and is_step(steps[0])


def test_point_is_data():
    from dyncomp.bytecode.frame_point import Point

    point = Point(3, (True, False), frozenset({"a"}))
    assert copy.copy(point) == point and hash(point) == hash(dataclasses.replace(point))
