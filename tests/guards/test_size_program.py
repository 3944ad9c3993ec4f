"""Guards on sizes: what the native checker accepts is what Python's meaning of the program accepts."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dyncomp._frame import _core
from dyncomp.guards import plain
from dyncomp.guards.build import build_tree
from dyncomp.guards.number import Number
from dyncomp.guards.record import GuardRecord
from dyncomp.guards.source import Local
from dyncomp.shape import ops
from dyncomp.shape.env import ShapeEnv
from dyncomp.shape.int_program import Program
from dyncomp.shape.program import guard_program

X, N = Local(0, "x"), Local(1, "n")


def records_of(env: ShapeEnv, *extra: GuardRecord) -> list[GuardRecord]:
    program = guard_program(env)
    return [*extra, GuardRecord(program.inputs[0].source, "int_program", program)]


def open_spec(tensor: torch.Tensor) -> Any:
    return _core.tensor_spec(tensor)._replace(sizes=(None,) * tensor.ndim, strides=(None,) * tensor.ndim)


def sized() -> tuple[ShapeEnv, list[GuardRecord]]:
    env = ShapeEnv(asker=lambda: ("model.py", 5))
    rows, columns = env.create_int(6, Number(X, "size", 0)), env.create_int(4, Number(X, "size", 1))
    env.require_equal(Number(X, "stride", 0), columns)
    env.require_equal(Number(X, "stride", 1), 1)
    count = env.create_int(12, Number(N, "int"))
    assert rows * 2 == count and columns < rows
    spec = GuardRecord(X, "tensor", open_spec(torch.ones(6, 4)))
    return env, records_of(env, spec)


def test_sizes_strides_and_ints_are_compared():
    tree = build_tree(sized()[1], [X])
    assert tree.check(None, (torch.ones(6, 4), 12)) and tree.check(None, (torch.ones(9, 5), 18))
    assert not tree.check(None, (torch.ones(9, 5), 17))
    assert not tree.check(None, (torch.ones(4, 5), 8))
    assert not tree.check(None, (torch.ones(5, 9).t(), 18))
    assert not tree.check(None, (torch.ones(9, 1), 18))
    assert not tree.check(None, (torch.ones(9, 5), 18.0)) and not tree.check(None, (torch.ones(9, 5), 2**80))


def test_explain_says_what_was_expected_and_who_asked():
    tree = build_tree(sized()[1], [X])
    assert tree.explain(None, (torch.ones(4, 5), 8))[1:] == ("int_program", "sizes: expected s0 > s1  (model.py:5)")
    assert "L['x'].size(1)" in tree.explain(None, (torch.ones(4, 1), 8))[2]
    assert "cannot be read" in tree.explain(None, (torch.ones(4, 4), "8"))[2]


def test_programs_are_plain_data():
    before = sized()[1][1:]
    records, _ = plain.load(plain.export(before, []))
    assert records[0].payload == before[0].payload and str(records[0]) == str(before[0])


@pytest.mark.parametrize(
    "payload",
    [
        ((), (("add", 0, 0),), ()),
        (((0, "size", 0),), (("nothing", 0),), ()),
        (((0, "size", 0),), (("require", 0),), ()),
        (((1, "size", 0),), (), ()),
        (((0, "area", 0),), (), ()),
        (((0, "size", 0),), (("add", 0),), ()),
        (((0, "size", 0),), (("const", "1"),), ()),
        "text",
    ],
)
def test_mistakes_are_errors_when_the_tree_is_built(payload):
    with pytest.raises((ValueError, TypeError)):
        _core.GuardTree([(-1, "local", 0, [("int_program", payload)])], [])


ARITY = {"not": 1, "select": 3, "tofloat": 1, "add": 2, "truediv": 2}
INT_OPS = ["add", "sub", "mul", "floordiv", "mod", "min", "max", "pow", "shl", "shr", "bitand", "bitor", "bitxor", "eq", "lt"]
FLOAT_BINARY = ["fadd", "fsub", "fmul", "fdiv", "ffloordiv", "fmod", "fpow", "fmin", "fmax"]
FLOAT_TRUTHS = ["feq", "flt", "fle"]
FLOAT_UNARY = ["fneg", "fabs", "fsqrt", "fcos", "fcosh", "fsin", "fsinh", "ftan", "ftanh", "fasin", "facos", "fatan", "flog2"]
FLOAT_UNARY += [f"f{name}" for name in ops.OTHER_MATH]
FLOAT_TO_INT = ["ffloor", "fceil", "ftrunc", "fround"]


def native(name: str, operands: tuple[Any, ...], expected: Any) -> bool:
    """Whether the native checker computes exactly `expected`."""
    kinds = ["float" if isinstance(value, float) else "int" for value in operands]
    program = Program(tuple(Number(Local(i, "v"), kind) for i, kind in enumerate(kinds)), ((name, *range(len(operands))),))
    bits = plain_bits(expected)
    check = ("require_bits", len(operands), bits)
    program = dataclasses.replace(program, code=(*program.code, check), texts=("",))
    tree = build_tree([GuardRecord(Local(0, "v"), "int_program", program)], [])
    return tree.check(None, operands)


def plain_bits(value: Any) -> int:
    from dyncomp.shape.int_program import bits_of_float

    return bits_of_float(value) if isinstance(value, float) else int(value)


def agree(name: str, *operands: Any) -> None:
    try:
        expected = ops.apply(name, *operands)
    except ops.Undefined:
        assert not any(native(name, operands, guess) for guess in (0, 1, 0.0, 1.0, math.inf))
        return
    if isinstance(expected, float) and math.isnan(expected):
        return  # its sign is nobody's promise
    assert native(name, operands, expected), (name, operands, expected)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(INT_OPS), st.integers(-70, 70), st.integers(-9, 9), st.integers(-(2**62), 2**62))
@example("mul", 2, 5, 2**62)
def test_integer_operations(name, a, b, big):
    agree(name, a, b)
    agree(name, big, b)
    agree("tofloat", big)
    agree("truediv", a, b)
    agree("select", int(a > b), a, b)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(FLOAT_BINARY + FLOAT_TRUTHS), st.sampled_from(FLOAT_UNARY + FLOAT_TO_INT + ["fisint"]),
    st.floats(-80, 80) | st.floats(), st.floats(-4, 4) | st.integers(-4, 4).map(float) | st.floats(),
)  # fmt: skip
@example("ffloordiv", "fround", -0.0, 3.0)
@example("fmod", "fround", 2.5, -1.0)
def test_float_operations(binary, unary, a, b):
    agree(binary, a, b)
    agree(unary, a)
    agree(unary, b)
