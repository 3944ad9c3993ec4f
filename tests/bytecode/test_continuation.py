"""Cutting functions at every instruction and going on in a step or a resume function changes nothing."""

from __future__ import annotations

import gc
import types
import weakref

import pytest

from dyncomp.bytecode import canonical as canonical_module
from dyncomp.bytecode import frame_facts
from dyncomp.bytecode.canonical import canonical
from dyncomp.bytecode.continuation import is_resume, is_step, locate, origin, resume_code, step_code
from dyncomp.bytecode.frame_point import Point
from tests.bytecode.cutting import cut_at, every_cut, to_the_end
from tests.bytecode.programs import CALLS, outcome, rebuilt, reset


@pytest.mark.parametrize("function, args", CALLS)
@pytest.mark.parametrize("kind", ["resume", "step", "step with resume"])
def test_cut_anywhere(function, args, kind):
    reset(function)
    expected = outcome(function, args)
    make = {
        "resume": resume_code,
        "step": step_code,
        "step with resume": lambda code, point: step_code(code, point, inline_rest=False),
    }[kind]
    reset(function)
    for point in every_cut(function, args):
        code = function.__code__
        if kind != "resume" and canonical(code).ops[point.op].argval in point.shadowed:
            continue  # a step cannot know whether it stores a value or puts the cell back
        made = make(code, point)
        assert is_step(made) is (kind != "resume")
        reset(function)
        got = outcome(to_the_end(rebuilt(function, cut_at(code, point, made))), args)
        assert got == expected, (canonical(code).ops[point.op], str(canonical(made)))


def loop(n, log):
    total = 0
    for i in range(n):
        log.append(i)
        total += i
    return total


def op_named(code, name):
    return next(op for op in canonical(code).ops if op.name == name)


def test_a_place_has_one_code_object():
    code = loop.__code__
    call = op_named(code, "FOR_ITER").index
    point = Point(call, (False,), frozenset({"n", "log", "total", "i"}))
    made = resume_code(code, point)
    assert resume_code(code, point) is made
    assert resume_code(code, Point(call, (False,), point.bound - {"n", "i"})) is made, (
        "dead variables do not count"
    )
    assert resume_code(code, Point(call, (False,), point.bound - {"total"})) is not made
    assert resume_code(code.replace(), point) is not made


def test_ops_of_a_resume_function_are_the_users():
    code = loop.__code__
    made = resume_code(code, Point(op_named(code, "FOR_ITER").index, (False,), frozenset({"total", "log"})))
    assert is_resume(made) and not is_step(made) and origin(code) is None and locate(code, 3) == (code, 3)
    mapped = [locate(made, op.index) for op in canonical(made).ops]
    for op, (user, index) in zip(canonical(made).ops, mapped, strict=True):
        if user is code:
            theirs = canonical(code).ops[index]
            assert (op.name, op.argval, op.line) == (theirs.name, theirs.argval, theirs.line)
    assert sum(user is code for user, _ in mapped) > 10


def test_names_lines_and_flags_are_the_users():
    code = loop.__code__
    for make in (resume_code, step_code):
        made = make(code, Point(op_named(code, "FOR_ITER").index, (False,), frozenset({"total", "log"})))
        assert (made.co_name, made.co_qualname, made.co_filename) == (
            code.co_name,
            code.co_qualname,
            code.co_filename,
        )
        assert made.co_firstlineno == code.co_firstlineno
        assert {line for *_, line in made.co_lines()} <= {line for *_, line in code.co_lines()}
        assert made.co_varnames[: made.co_argcount] == ("log", "total", ".s0")


def test_made_code_goes_with_the_users():
    namespace = {}
    exec("def f(a):\n    return g(a) + 1", namespace)
    code = namespace.pop("f").__code__
    made = step_code(code, Point(op_named(code, "LOAD_FAST").index, (False, True), frozenset({"a"})))
    rows = weakref.ref(code), weakref.ref(made)
    del made, code
    canonical_module._cached.cache_clear()
    frame_facts._facts_of.cache_clear()
    gc.collect()
    assert [row() for row in rows] == [None, None]


def test_generators_are_refused():
    def numbers():
        yield 1

    with pytest.raises(ValueError, match="generator"):
        resume_code(numbers.__code__, Point(2))


def test_trivial_rest_needs_no_resume_function():
    def f(x):
        x.call()

    code = f.__code__
    step = step_code(code, Point(op_named(code, "CALL").index, (True, False), frozenset({"x"})))
    assert not any(isinstance(const, types.CodeType) for const in step.co_consts)
