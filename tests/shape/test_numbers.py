"""Random arithmetic on symbolic numbers: Python's results, and programs that compute and guard them."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp.shape import ops
from dyncomp.shape.env import ShapeEnv, expr_of
from dyncomp.shape.program import guard_program, value_program

INT_OPS = ["+", "-", "*", "//", "%", "max", "min"]
TRUTH_OPS = ["<", "<=", "==", "!=", ">", ">="]
numbers = st.integers(2, 40)

leaf = st.one_of(st.sampled_from(["a", "b", "c"]), st.integers(-6, 6))
expressions = st.recursive(
    leaf, lambda inner: st.tuples(st.sampled_from(INT_OPS), inner, inner), max_leaves=8
)
truths = st.tuples(st.sampled_from(TRUTH_OPS), expressions, expressions)


OPERATIONS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "max": torch.sym_max, "min": torch.sym_min,
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def evaluate(tree: Any, values: dict[str, Any]) -> Any:
    if isinstance(tree, str):
        return values[tree]
    if isinstance(tree, int):
        return tree
    name, left, right = tree
    return OPERATIONS[name](evaluate(left, values), evaluate(right, values))


def outcome(tree: Any, values: dict[str, Any]) -> Any:
    try:
        return evaluate(tree, values)
    except ZeroDivisionError:
        return "division by zero"


def symbols(values: dict[str, int]) -> tuple[ShapeEnv, dict[str, Any]]:
    env = ShapeEnv()
    return env, {name: env.create_int(value, name) for name, value in values.items()}


values3 = st.fixed_dictionaries({"a": numbers, "b": numbers, "c": numbers})


@settings(max_examples=300, deadline=None)
@given(st.lists(truths, min_size=1, max_size=5), values3, st.lists(values3, min_size=1, max_size=5))
def test_answers_are_pythons_and_guards_let_only_equal_answers_through(questions, values, others):
    env, symbolic = symbols(values)
    answers = [outcome(question, values) for question in questions]
    got = [outcome(question, symbolic) for question in questions]
    assert [g if g == "division by zero" else bool(g) for g in got] == answers
    program = guard_program(env)
    assert program is not None and program.run([values[name] for name in program.inputs]) is not None
    for other in others:
        if program.run([other[name] for name in program.inputs]) is not None:
            assert [outcome(question, other) for question in questions] == answers


@settings(max_examples=300, deadline=None)
@given(st.lists(expressions, min_size=1, max_size=4), st.lists(truths, max_size=3), values3, st.lists(values3, max_size=4))
def test_value_programs_compute_what_python_does(trees, questions, values, others):
    env, symbolic = symbols(values)
    for question in questions:  # facts that the expressions are simplified with
        truth = outcome(question, symbolic)
        bool(truth)
    results = [outcome(tree, symbolic) for tree in trees]
    if "division by zero" in results:
        return
    program = value_program(env, [expr_of(result) for result in results])
    guarded = guard_program(env)
    for call in (values, *others):
        if guarded.run([call[name] for name in guarded.inputs]) is None:
            continue
        expected = [outcome(tree, call) for tree in trees]
        assert program.run([call[name] for name in program.inputs]) == expected
    assert [int(result) for result in results] == [outcome(tree, values) for tree in trees]


@settings(max_examples=200, deadline=None)
@given(numbers, numbers, st.integers(-4, 4), st.floats(-50, 50))
def test_floats_and_mixed_arithmetic(a, b, digits, factor):
    env = ShapeEnv()
    x, y = env.create_int(a, "a"), env.create_int(b, "b")
    z = env.create_float(factor, "z")
    pairs = [
        (x / y, a / b), (x * 0.5, a * 0.5), (z * x, factor * a), (z + 1, factor + 1), (x / 3 // 2, a / 3 // 2),
        (x**2, a**2), (x**0.5, a**0.5), (-z, -factor), (abs(z), abs(factor)), (abs(x - y), abs(a - b)),
    ]  # fmt: skip
    for symbolic, plain in pairs:
        program = value_program(env, [expr_of(symbolic)])
        result = program.run([{"a": a, "b": b, "z": factor}[origin] for origin in program.inputs])
        assert result == [plain] and type(result[0]) is type(plain)
    assert env.hint(x.node.round(digits).expr) == round(a, digits)
    assert math.floor(z) == math.floor(factor) and math.ceil(x / y) == math.ceil(a / b)
    assert int(z) == int(factor) and round(z) == round(factor)
    assert (z > 1) == (factor > 1) and (x < z) == (a < factor) and (z == z) == (factor == factor)
    assert guard_program(env).run([{"a": a, "b": b, "z": factor}[n] for n in guard_program(env).inputs]) is not None


def test_operations_are_pythons():
    assert ops.apply("floordiv", -7, 2) == -4 and ops.apply("mod", -7, 2) == 1 and ops.apply("fround", 2.5) == 2
