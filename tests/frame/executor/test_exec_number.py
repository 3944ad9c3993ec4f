"""Numbers as inputs of a plan, in registers, in operator arguments and kernels, and as results."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dyncomp._frame import _exec
from dyncomp.shape import ops
from dyncomp.shape.int_program import bits_of_float
from tests.frame.executor.exec_support import F32, LINE, Slot, plan

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = {"int": INT64, "float": FLOATS, "bool": st.booleans()}


def same(a, b):
    """Equal in type and bits."""
    return type(a) is type(b) and (struct.pack("<d", a) == struct.pack("<d", b) if type(a) is float else a == b)


def one_op(kinds, name, args, kwargs=(), outs=(15,), outputs=None):
    """A plan of one operator; register i holds input i where that is a number."""
    base, _, overload = name.partition(".")
    reads = [("number", i, i) for i, kind in enumerate(kinds) if kind != "tensor"]
    return _exec.Plan(
        inputs=kinds,
        slots=16,
        ops=[(base, overload)],
        code=[*reads, ("op", 0, args, kwargs, outs)],
        outputs=outputs or [("slot", 15)],
        single=True,
    )


@given(
    st.lists(st.sampled_from(sorted(NUMBERS)).flatmap(lambda kind: st.tuples(st.just(kind), NUMBERS[kind])), max_size=6)
)
def test_numbers_come_out_as_they_came_in(given_numbers):
    kinds = tuple(kind for kind, _ in given_numbers)
    code = [("number", i, i) for i in range(len(kinds))]
    outputs = [("f" if kind == "float" else "s", i) for i, kind in enumerate(kinds)]
    p = _exec.Plan(inputs=kinds, slots=len(kinds), code=code, outputs=outputs)
    results = p(*[value for _, value in given_numbers])
    assert all(same(a, b) for a, (_, b) in zip(results, given_numbers, strict=True))
    assert _exec.Plan(**p.data()).data() == p.data() and p.data()["inputs"] == kinds


def test_the_very_object():
    value = 0.1 + 0.2
    p = _exec.Plan(inputs=("float",), slots=1, code=[], outputs=[("input", 0)], single=True)
    assert p(value) is value


@pytest.mark.parametrize(
    ("kind", "bad", "error"),
    [
        ("int", 1.0, "must be an int, not float"),
        ("int", True, "must be an int, not bool"),
        ("float", 1, "must be a float, not int"),
        ("bool", 1, "must be a bool, not int"),
        ("tensor", 1.0, "must be a tensor, not float"),
        ("float", torch.ones(()), "must be a float, not Tensor"),
    ],
)
def test_other_types(kind, bad, error):
    p = _exec.Plan(inputs=(kind,), slots=1, code=[], outputs=[("input", 0)])
    with pytest.raises(TypeError, match=error):
        p(bad)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_ints_beyond_64_bits(value):
    p = _exec.Plan(inputs=("int",), slots=1, code=[("number", 0, 0)], outputs=[("s", 0)])
    with pytest.raises(OverflowError):
        p(value)


@pytest.mark.parametrize("value", [3, 2.5, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.bool, torch.float16])
@pytest.mark.parametrize("overload", ["Tensor", "Scalar"])
def test_arguments_promote_as_eagers(value, dtype, overload):
    kind = type(value).__name__
    register = ("f" if kind == "float" else "s", 1)
    p = one_op(("tensor", kind), f"aten::mul.{overload}", (Slot(0), register))
    x = torch.ones(3, dtype=dtype)
    got, want = p(x, value), x * value
    assert got.dtype == want.dtype and torch.equal(got, want)


def test_optional_int_and_float_arguments():
    p = one_op(("tensor", "float", "float"), "aten::clamp", (Slot(0), ("f", 1), ("f", 2)))
    x = torch.linspace(-2, 2, 9)
    assert torch.equal(p(x, -0.5, 1.5), x.clamp(-0.5, 1.5)) and torch.equal(p(x, 0.0, 0.25), x.clamp(0.0, 0.25))
    p = one_op(("tensor", "int"), "aten::leaky_relu", (Slot(0), ("s", 1)))
    assert torch.equal(p(x, 3), torch.nn.functional.leaky_relu(x, 3))
    p = one_op(("tensor", "int", "bool"), "aten::sum.dim_IntList", (Slot(0), [("s", 1)], ("s", 2)))
    x = torch.ones(2, 3)
    assert p(x, 1, True).shape == (2, 1) and p(x, 0, False).shape == (3,)


def test_lists_of_scalars_and_floats():
    p = one_op(
        ("tensor", "tensor", "float", "int"),
        "aten::_foreach_mul.ScalarList",
        ([Slot(0), Slot(1)], [("f", 2), ("s", 3)]),
        outs=(14, 15),
        outputs=[("slot", 15)],
    )
    x = torch.ones(2, dtype=torch.int64)
    assert p(x, x, 0.5, 3).dtype == torch.int64 and torch.equal(p(x, x, 0.5, 3), x * 3)
    p = one_op(("tensor", "float"), "aten::upsample_nearest2d.vec", (Slot(0), None, [("f", 1), 2.0]))
    y = torch.rand(1, 1, 2, 3)
    assert torch.equal(p(y, 3.0), torch.nn.functional.interpolate(y, scale_factor=(3.0, 2.0)))


def test_results_that_are_numbers():
    x = torch.tensor([1.5])
    p = one_op(("tensor",), "aten::_local_scalar_dense", (Slot(0),), outs=(("f", 0),), outputs=[("f", 0)])
    assert same(p(x), 1.5)
    p = one_op(("tensor",), "aten::_local_scalar_dense", (Slot(0),), outs=(("s", 0),), outputs=[("s", 0)])
    assert same(p(torch.tensor(7)), 7)
    p = one_op(("tensor", "tensor"), "aten::equal", (Slot(0), Slot(1)), outs=(("s", 0),), outputs=[("s", 0)])
    assert p(x, x) is True and p(x, x + 1) is False


def test_kernels_take_floats_by_their_bits():
    code = [
        ("number", 0, 1),
        ("alloc", 2, torch.int64, (4,), (1,), "cpu"),
        ("kernel", LINE, 4, 1, (2,), (("f", 0), 2.5)),
    ]
    p = plan(("tensor", "float"), code, [("slot", 2)], single=True)
    bits = p(torch.ones(1), -0.1)
    assert bits.dtype == torch.int64
    slope, shift = bits_of_float(-0.1), bits_of_float(2.5)
    assert bits.tolist() == [_wrapped(slope * i + shift) for i in range(4)]


def _wrapped(value):
    return (value + 2**63) % 2**64 - 2**63


def test_alpha_and_beta():
    code = [
        ("number", 0, 3),
        ("number", 1, 4),
        ("alloc", 5, F32, (2, 2), (2, 1), "cpu"),
        ("addmm", 5, 0, 1, 2, ("f", 0), ("s", 1)),
    ]
    p = _exec.Plan(
        inputs=("tensor", "tensor", "tensor", "float", "int"), slots=6, code=code, outputs=[("slot", 5)], single=True
    )
    a, b, c = torch.rand(2, 2), torch.rand(2, 3), torch.rand(3, 2)
    for beta, alpha in [(0.5, 2), (0.0, 1)]:
        torch.testing.assert_close(p(a, b, c, beta, alpha), torch.addmm(a, b, c, beta=beta, alpha=alpha))


# ---- compute

INTS = INT64 | st.integers(-20, 20)
OPERANDS = {"i": INTS, "f": FLOATS | st.integers(-8, 8).map(float)}
NATIVE = {  # (operands, result) of every operation of `dyncomp/shape/ops.py`
    **dict.fromkeys(["add", "sub", "mul", "floordiv", "mod", "min", "max", "pow", "shl", "shr"], ("ii", "s")),
    **dict.fromkeys(["bitand", "bitor", "bitxor", "eq", "lt", "and", "or"], ("ii", "s")),
    **dict.fromkeys(["fadd", "fsub", "fmul", "fdiv", "ffloordiv", "fmod", "fpow", "fmin", "fmax"], ("ff", "f")),
    **dict.fromkeys(["feq", "flt", "fle"], ("ff", "s")),
    **dict.fromkeys(["fneg", "fabs", "fsqrt", "fcos", "fcosh", "fsin", "fsinh", "ftan", "ftanh"], ("f", "f")),
    **dict.fromkeys(["fasin", "facos", "fatan", "flog2"], ("f", "f")),
    **dict.fromkeys([f"f{name}" for name in ops.OTHER_MATH], ("f", "f")),
    **dict.fromkeys(["fisint", "ffloor", "fceil", "ftrunc", "fround"], ("f", "s")),
    "not": ("i", "s"),
    "select": ("iff", "f"),
    "tofloat": ("i", "f"),
    "truediv": ("ii", "f"),
}


def test_every_operation_is_there():
    assert set(NATIVE) == set(ops.OPS)


@given(st.data(), st.sampled_from(sorted(NATIVE)))
def test_arithmetic_is_pythons(data, name):
    kinds, result = NATIVE[name]
    values = [data.draw(OPERANDS[kind]) for kind in kinds]
    reads = [("number", i, i) for i in range(len(kinds))]
    operands = tuple(("f" if kind == "f" else "s", i) for i, kind in enumerate(kinds))
    p = _exec.Plan(
        inputs=tuple("float" if kind == "f" else "int" for kind in kinds),
        slots=len(kinds),
        code=[*reads, ("compute", 9, name, operands)],
        outputs=[(result, 9)],
        single=True,
    )
    try:
        want = ops.apply(name, *values)
    except ops.Undefined:
        with pytest.raises(ArithmeticError, match=f"'{name}' of numbers"):
            p(*values)
        return
    try:
        got = p(*values)
    except ArithmeticError:
        # The native side is stricter at the ends: the least int, a rounding that leaves 64 bits.
        assert name in ("floordiv", "shl") or not math.isfinite(float(want)) or abs(want) >= 2**62
        return
    if name in ("and", "or", "not"):
        want = bool(want)
    assert same(got, want) or (math.isnan(want) and math.isnan(got))


def test_constants_and_chains():
    code = [("number", 0, 0), ("compute", 1, "fmul", (("f", 0), 2.0)), ("compute", 1, "fadd", (("f", 1), -0.0))]
    code += [("compute", 2, "flt", (("f", 1), 1.0)), ("compute", 3, "select", (("s", 2), 5, 7))]
    p = _exec.Plan(inputs=("float",), slots=1, code=code, outputs=[("f", 1), ("s", 2), ("s", 3)])
    assert p(0.25) == (0.5, True, 5) and p(2.0) == (4.0, False, 7)


@pytest.mark.parametrize(
    ("code", "outputs", "message"),
    [
        ([("number", 0, 0)], [], "input 0 is a tensor, no number"),
        ([("number", 0, 2)], [], "no input 2"),
        ([("size", 0, 1, 0)], [], "slot 1 is an input that is a number"),
        ([("write_back", 1, 0)], [], "is a number and cannot be written"),
        ([("number", 0, 1)], [("s", 0)], "holds a float"),
        ([("size", 0, 0, 0)], [("f", 0)], "holds an int"),
        ([], [("f", 0)], "register 0 is read before"),
        ([("number", 0, 1), ("int", 1, "add", ("f", 0), 1)], [], "must be an int, not the float in a register"),
        ([("compute", 0, "fadd", (1.0, 2))], [], "operand 1 of fadd must be a float"),
        ([("compute", 0, "fadd", (1.0,))], [], "fadd takes 2 operands, not 1"),
        ([("compute", 0, "add", (1, 2.0))], [], "operand 1 of add must be an int"),
        ([("compute", 0, "nothing", ())], [], "no operation 'nothing'"),
    ],
)
def test_mistakes(code, outputs, message):
    with pytest.raises(ValueError, match="instruction|output") as caught:
        _exec.Plan(inputs=("tensor", "float"), slots=4, code=code, outputs=outputs)
    assert message in str(caught.value)


def test_arguments_that_take_no_such_number():
    for name, args in [("aten::sum.dim_IntList", (Slot(0), None, ("f", 1))), ("aten::argmax", (Slot(0), ("f", 1)))]:
        with pytest.raises(ValueError, match="not the number in a register"):
            one_op(("tensor", "float"), name, args)


def test_kinds():
    with pytest.raises(ValueError, match="no kind of input 'complex'; known: tensor, int, bool, float"):
        _exec.Plan(inputs=("complex",), slots=1, code=[], outputs=[])
    with pytest.raises(ValueError, match="inputs=-1"):
        _exec.Plan(inputs=-1, slots=1, code=[], outputs=[])
