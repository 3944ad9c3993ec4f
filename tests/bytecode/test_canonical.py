"""The canonical view: one form on all Pythons, stack effects that add up, no opcode forgotten."""

from __future__ import annotations

import dis
import types

import pytest

from dyncomp.bytecode import opcodes
from dyncomp.bytecode.canonical import NAMES, NOT_IN_CODE, RENAMED, canonical
from dyncomp.bytecode.decode import decode
from dyncomp.bytecode.depth import stack_depths
from dyncomp.bytecode.liveness import live_variables
from dyncomp.bytecode.printer import to_text
from dyncomp.bytecode.stack_effect import op_effect
from tests.bytecode.programs import PROGRAMS
from tests.bytecode.test_assemble import MODULES, module_codes

CODES = [function.__code__ for function, _ in PROGRAMS]


def ops(function):
    return canonical(function.__code__).ops


def shown(function, *names):
    """(name, argval, flag) of the ops with these names."""
    return [(op.name, op.argval, op.flag) for op in ops(function) if op.name in names]


def test_every_opcode_has_a_canonical_name():
    for opname in opcodes.OPCODES.keys() - NOT_IN_CODE:
        assert opname in opcodes.OPERANDS
        raw_only = {"KW_NAMES", "PRECALL", "RETURN_CONST", "CALL_INTRINSIC_1", "CALL_INTRINSIC_2"}
        if opname not in raw_only and opname not in opcodes.PAIRS and opname not in RENAMED:
            assert NAMES & {opname, "LOAD_ATTR", "FORMAT_VALUE"}


@pytest.mark.parametrize("name", MODULES[:4])
def test_no_other_names_occur(name):
    for code in module_codes(name):
        assert {op.name for op in canonical(code).ops} <= NAMES


def test_superinstructions_are_not_in_the_names():
    assert not NAMES & (
        opcodes.PAIRS.keys() | {"RETURN_CONST", "PRECALL", "KW_NAMES", "LOAD_METHOD", "CACHE"}
    )


def test_calls():
    def f(x):
        g(x, k=1)  # noqa: F821
        x.method(1, 2)
        g(*x, **x)  # noqa: F821
        g()  # noqa: F821

    assert [(op.arg, op.kw_names) for op in ops(f) if op.name == "CALL"] == [(2, ("k",)), (2, ()), (0, ())]
    assert shown(f, "CALL_FUNCTION_EX") == [("CALL_FUNCTION_EX", None, True)]
    assert shown(f, "LOAD_ATTR") == [("LOAD_ATTR", "method", True)]
    method = next(op for op in ops(f) if op.name == "LOAD_ATTR")
    assert method.is_method and method.push_null and op_effect(method) == 1


def test_comparisons_and_operators():
    def f(a, b):
        c = a != b
        if a <= b:
            c += a in b
        return c, a is not b, a**b, -a, +a

    assert [row[1] for row in shown(f, "COMPARE_OP")] == ["!=", "<="]
    assert shown(f, "BINARY_OP") == [("BINARY_OP", "+", True), ("BINARY_OP", "**", False)]
    assert shown(f, "IS_OP", "CONTAINS_OP") == [("CONTAINS_OP", None, False), ("IS_OP", None, True)]
    assert shown(f, "UNARY_NEGATIVE", "UNARY_POSITIVE") == [
        ("UNARY_NEGATIVE", None, False),
        ("UNARY_POSITIVE", None, False),
    ]


def test_jumps():
    def f(a):
        for i in a:
            if i is None:
                continue
            while not i:
                i += 1
        return a

    names = {op.name for op in ops(f)}
    assert {"JUMP", "FOR_ITER"} <= names and not any("FORWARD" in n or "BACKWARD" in n for n in names)
    loop = next(op for op in ops(f) if op.name == "FOR_ITER")
    after = canonical(f.__code__).ops[loop.target]
    assert (after.name, after.argval) == ("LOAD_FAST", "a")


def test_formats():
    def f(a, b):
        return f"{a}{b!r:>{a}}{a!s}"

    formats = [(op.argval, op.flag) for op in ops(f) if op.name in ("FORMAT_VALUE", "CONVERT_VALUE")]
    conversions = [c for c, _ in formats if c is not None]
    assert conversions == [repr, str] and [flag for _, flag in formats].count(True) == 1


def test_closures():
    def f(a):
        def g():
            return a

        return g, [lambda: b for b in a]  # noqa: B023

    loads = [op.argval for op in ops(f) if op.name == "LOAD_CLOSURE"]
    assert loads[0] == "a"


def test_effects_add_up():
    """Following canonical effects gives the depths that the raw analysis found."""
    for code in CODES:
        view = canonical(code)
        depths = dict(zip(map(id, view.instructions), stack_depths(view.instructions), strict=True))
        for op in view.ops:
            depth = depths[id(op.raw[0])]
            if depth is None:
                continue
            if op.target >= 0:
                assert depths[id(view.ops[op.target].raw[0])] == depth + op_effect(op, jump=True)
            if op.handler is not None:
                caught = depths[id(view.ops[op.handler.target].raw[0])]
                assert caught == op.handler.depth + op.handler.push_lasti + 1


def test_depths_cover_all_reachable_code():
    for name in MODULES[:3]:
        for code in module_codes(name):
            assert max(d for d in stack_depths(decode(code)) if d is not None) <= max(code.co_stacksize, 1)


def test_canonical_is_shared_by_code_object():
    def make():
        def f():
            return 1

        return f

    assert canonical(make().__code__) is canonical(make().__code__)
    copy = make().__code__.replace()
    assert canonical(copy) is not canonical(make().__code__) and canonical(copy).code is copy


def test_lines_are_the_users():
    def f(a):
        b = a + 1
        return b

    first = f.__code__.co_firstlineno
    assert [op.line for op in ops(f) if op.name in ("BINARY_OP", "RETURN_VALUE")] == [first + 1, first + 2]


def test_liveness():
    def f(a, b):
        c = a + 1
        if b:
            return c
        try:
            d = g(c)  # noqa: F821
        except ValueError:
            d = b
        del b
        return d

    instructions = decode(f.__code__)
    live = live_variables(instructions)
    at = {(i.opname, i.argval): names for i, names in zip(instructions, live, strict=True)}
    assert at["STORE_FAST", "c"] == {"b"}
    assert at["LOAD_GLOBAL", "g"] == {"b", "c"}
    assert at["DELETE_FAST", "b"] == {"b", "d"}
    assert live[0] == {"a", "b"}


def test_text_shows_lines_targets_and_handlers():
    def f(a):
        try:
            return [x for x in a]
        finally:
            a.close()

    text = to_text(f.__code__)
    assert str(f.__code__.co_firstlineno + 2) in text and "except ->" in text and ">>" in text
    nested = [c for c in f.__code__.co_consts if isinstance(c, types.CodeType)]
    assert text.count("# ") == 1 + len(nested)


def test_tables_agree_with_dis():
    for opname, code in opcodes.OPCODES.items():
        assert dis.opname[code] == opname
