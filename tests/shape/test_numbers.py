"""Random arithmetic on symbolic numbers: Python's results and errors, and programs that compute and guard them.

DYNCOMP_EXAMPLES=20000 HYPOTHESIS_PROFILE=search draws that many new examples for each property.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dyncomp.shape import ops
from dyncomp.shape.env import ShapeEnv
from dyncomp.shape.int_program import python_function
from dyncomp.shape.program import guard_program, value_program
from dyncomp.shape.symbolic import select
from dyncomp.shape.truths import expr_of
from tests.support import examples

usual = settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))


def round_tens(number: Any) -> Any:
    return torch.SymInt(number.node.round(-1)) if isinstance(number, torch.SymInt) else round(number, -1)


OPERATIONS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "max": torch.sym_max, "min": torch.sym_min, "<<": operator.lshift, ">>": operator.rshift,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "abs": abs, "neg": operator.neg,
    "square": lambda a: a**2, "**": operator.pow, "round": round_tens, "select": select,
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
    "and": operator.and_, "or": operator.or_, "not": torch.sym_not,
    "/": operator.truediv, "times": operator.mul, "float": torch.sym_float, "sqrt": torch.sym_sqrt,
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
}  # fmt: skip
KINDS = (torch.SymInt, torch.SymFloat, torch.SymBool)
TRUTHS = ["<", "<=", "==", "!=", ">", ">="]
NAMES, FLOATS = ["a", "b", "c"], ["y", "z"]


def trees(constants: Any, floats: list[str]) -> tuple[Any, Any]:
    """Strategies for integer expressions and for truths. Floats come in by division, or as numbers of the call."""
    leaf = st.one_of(st.sampled_from(NAMES), constants)
    real_leaf: Any = st.sampled_from([0.5, -1.5, 2.0, 0.0, 1e3])
    if floats:
        real_leaf = st.one_of(st.sampled_from(floats), real_leaf)

    def real(inner: Any) -> Any:
        half = st.one_of(
            real_leaf,
            st.tuples(st.just("/"), inner, inner),
            st.tuples(st.sampled_from(["float", "sqrt"]), inner),
        )
        return st.one_of(half, st.tuples(st.just("times"), half, half))

    def truth_of(inner: Any) -> Any:
        # Equalities of remainders and of single numbers are what substitutions come from.
        remainder = st.tuples(st.just("%"), st.one_of(st.sampled_from(NAMES), inner), st.integers(2, 5))
        relation = st.one_of(
            st.tuples(st.sampled_from(TRUTHS), inner, inner),
            st.tuples(st.just("=="), remainder, st.integers(0, 4)),
            st.tuples(st.just("=="), st.sampled_from(NAMES), inner),
            st.tuples(st.sampled_from(TRUTHS[:4]), real(inner), real(inner)),
        )
        both = st.tuples(st.sampled_from(["and", "or"]), relation, relation)
        return st.one_of(relation, relation, both, st.tuples(st.just("not"), relation))

    def grow(inner: Any) -> Any:
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "max", "min"]), inner, inner),
            st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "max", "min"]), inner, inner),
            st.tuples(st.sampled_from([">>", "&", "|", "^"]), inner, inner),
            st.tuples(st.sampled_from(["abs", "neg", "square", "round"]), inner),
            st.tuples(st.just("<<"), inner, st.integers(-1, 5)),
            st.tuples(st.sampled_from(["floor", "ceil", "trunc"]), real(inner)),
            st.tuples(st.just("trunc"), st.tuples(st.just("**"), inner, st.integers(-2, 4))),
            st.tuples(st.just("select"), truth_of(inner), inner, inner),
        )

    expressions = st.recursive(leaf, grow, max_leaves=8)
    return expressions, truth_of(expressions)


sizes, ints = st.integers(2, 40), st.integers(-12, 40)
large = st.one_of(ints, st.sampled_from([10**6, 2**40 + 7, 2**53 + 3, 2**62 + 1, -(10**12)]))
reals = st.one_of(
    st.floats(-9, 9), st.sampled_from([0.0, -0.0, 1e300, math.inf, math.nan]), st.integers(-5, 5).map(float)
)
calls = st.fixed_dictionaries({"a": sizes, "b": sizes, "c": ints})
large_calls = st.fixed_dictionaries({"a": sizes, "b": large, "c": large})
float_calls = st.fixed_dictionaries({"a": sizes, "b": ints, "c": ints, "y": reals, "z": reals})
few = st.integers(-6, 6)
many = st.one_of(few, st.sampled_from([10**9, 10**18, 2**31, 2**62, 2**63 - 1, -(2**40), 2**53 + 1]))
EXPRESSIONS, QUESTIONS = trees(few, [])
LARGE_EXPRESSIONS, LARGE_QUESTIONS = trees(many, [])
FLOAT_EXPRESSIONS, FLOAT_QUESTIONS = trees(few, FLOATS)


def plain(number: Any) -> Any:
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    return kinds[type(number)](number) if type(number) in kinds else number


def evaluate(tree: Any, values: dict[str, Any]) -> Any:
    """As the interpreter computes: what the engine refuses is asked of the numbers themselves."""
    if isinstance(tree, str):
        return values[tree]
    if not isinstance(tree, tuple):
        return tree
    operands = [evaluate(operand, values) for operand in tree[1:]]
    try:
        return OPERATIONS[tree[0]](*operands)
    except ZeroDivisionError:
        raise
    except (ArithmeticError, TypeError, ValueError, RuntimeError):
        return OPERATIONS[tree[0]](*map(plain, operands))


def outcome(tree: Any, values: dict[str, Any]) -> Any:
    """The result, or the type of Python's error."""
    try:
        return evaluate(tree, values)
    except (ArithmeticError, ValueError) as error:
        return type(error)


def same(a: Any, b: Any) -> bool:
    return a == b or isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)


def symbols(call: dict[str, Any], duck: bool) -> tuple[ShapeEnv, dict[str, Any]]:
    """The first name is a size, the others are ints and floats of the call."""
    env = ShapeEnv(duck=duck)
    made: dict[str, Any] = {}
    for name, value in call.items():
        if isinstance(value, float):
            made[name] = env.create_float(value, name)
        elif name == "a" or name == "b" and duck and 1 < value < 41:
            made[name] = env.create_int(value, name)
        else:
            made[name] = env.create_int(value, name, low=-math.inf, duck=False, special=False)
    return env, made


def near(call: dict[str, Any], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The other calls, and each with all numbers but one as in the first: these are likelier to pass guards."""
    mixed = [{**call, name: other[name]} for other in others for name in call]
    equal = [
        {n: other[name] if type(v) is type(call[name]) and v == call[name] else v for n, v in call.items()}
        for other in others
        for name in call
    ]
    return [*others, *mixed, *equal]


def check(
    questions: list[Any], trees: list[Any], call: dict[str, Any], others: list[dict[str, Any]], duck: bool
) -> None:
    """Numbers may come up that registers do not hold; such a program gives no result, and never a wrong one."""
    env, symbolic = symbols(call, duck)
    answers = [outcome(question, call) for question in questions]
    got = [plain(outcome(question, symbolic)) for question in questions]
    assert got == answers
    results = [outcome(tree, symbolic) for tree in trees]
    expected = [outcome(tree, call) for tree in trees]
    numbers = [result for result in results if not isinstance(result, type)]
    assert [result for result in results if isinstance(result, type)] == [e for e in expected if isinstance(e, type)]
    program, guards = value_program(env, [expr_of(number) for number in numbers]), guard_program(env)
    singles = [value_program(env, [expr_of(number)]) for number in numbers]
    assert guards is None or guards.run([call[name] for name in guards.inputs]) is not None
    for other in near(call, [call, *others]):
        if any(not isinstance(symbolic[name], KINDS) and other[name] != call[name] for name in call):
            continue  # the number is not symbolic, which is for other guards to hold
        if guards is not None and guards.run([other[name] for name in guards.inputs]) is None:
            continue
        assert [outcome(question, other) for question in questions] == answers
        want = [outcome(tree, other) for tree in trees]
        assert [w for w in want if isinstance(w, type)] == [r for r in results if isinstance(r, type)]
        computed = program.run([other[name] for name in program.inputs])
        values = [w for w in want if not isinstance(w, type)]
        for single, value in zip(singles, values, strict=True):
            assert same(python_function(single)(*[other[name] for name in single.inputs]), value)
        if computed is not None:  # else a step is beyond registers
            assert len(computed) == len(values) and all(map(same, computed, values))
    for number, value in zip(numbers, [e for e in expected if not isinstance(e, type)], strict=True):
        assert same(plain(number), value)


@usual
@given(
    st.lists(QUESTIONS, max_size=5),
    st.lists(EXPRESSIONS, max_size=3),
    calls,
    st.lists(calls, max_size=4),
    st.booleans(),
)
@example([("<", "a", ("//", "a", ("-", "a", ("min", ("-", 4, "a"), "a"))))], [], {"a": 3, "b": 2, "c": 2}, [], True)
def test_sizes_and_ints(questions, trees, call, others, duck):
    check(questions, trees, call, others, duck)


@usual
@given(
    st.lists(LARGE_QUESTIONS, max_size=4), st.lists(LARGE_EXPRESSIONS, max_size=2), large_calls,
    st.lists(large_calls, max_size=4), st.booleans(),
)  # fmt: skip
@example([("<", ("*", 10**17, "c"), 2**62)], [], {"a": 2, "b": 3, "c": 5}, [{"a": 2, "b": 3, "c": 47}], False)
def test_numbers_that_registers_cannot_hold(questions, trees, call, others, duck):
    check(questions, trees, call, others, duck)


@usual
@given(
    st.lists(FLOAT_QUESTIONS, max_size=4), st.lists(FLOAT_EXPRESSIONS, max_size=2), float_calls,
    st.lists(float_calls, max_size=4), st.booleans(),
)  # fmt: skip
def test_floats_of_the_call(questions, trees, call, others, duck):
    check(questions, trees, call, others, duck)


@usual
@given(sizes, sizes, st.integers(-4, 4), st.floats(-50, 50))
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
