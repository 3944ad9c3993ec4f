"""Cutting functions at every instruction and going on in a step or a resume function changes nothing."""

from __future__ import annotations

import dataclasses

import pytest
from cutting import cut_at, every_cut
from programs import CALLS, outcome, rebuilt, reset

from dyncomp.bytecode.canonical import canonical
from dyncomp.bytecode.continuation import Point, is_step, locate, origin, resume_code, step_code


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
        got = outcome(rebuilt(function, cut_at(code, point, made)), args)
        assert got == expected, (canonical(code).ops[point.op], str(canonical(made)))
