"""decode + assemble gives the same code object back, for the standard library and for generated functions."""

from __future__ import annotations

import importlib
import inspect
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp.bytecode import spell
from dyncomp.bytecode.assemble import Layout, assemble
from dyncomp.bytecode.decode import decode
from dyncomp.bytecode.instruction import Instruction
from tests.bytecode.programs import CALLS, outcome, rebuilt, reset

MODULES = [
    "argparse",
    "ast",
    "contextlib",
    "dataclasses",
    "inspect",
    "tarfile",
    "typing",
    "asyncio.base_events",
]
SAME = ("co_code", "co_names", "co_varnames", "co_cellvars", "co_freevars", "co_flags", "co_exceptiontable")


def all_codes(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from all_codes(const)


def module_codes(name):
    path = inspect.getsourcefile(importlib.import_module(name))
    with open(path, encoding="utf-8") as file:
        return list(all_codes(compile(file.read(), path, "exec")))


def assert_same(code, new):
    for attribute in SAME:
        assert getattr(new, attribute) == getattr(code, attribute), (code.co_qualname, attribute)
    assert list(new.co_positions()) == list(code.co_positions())
    assert new.co_consts == code.co_consts
    assert new.co_stacksize >= code.co_stacksize


@pytest.mark.parametrize("name", MODULES)
def test_standard_library_comes_back(name):
    for code in module_codes(name):
        assert_same(code, assemble(decode(code, split=False), Layout.of(code)))


@pytest.mark.parametrize("function, args", CALLS)
def test_split_forms_run_alike(function, args):
    reset(function)
    expected = outcome(function, args)
    reset(function)
    assert (
        outcome(rebuilt(function, assemble(decode(function.__code__), Layout.of(function.__code__))), args)
        == expected
    )


def function_of(source):
    namespace: dict = {}
    exec(source, namespace)
    return namespace["f"]


def again(function):
    code = assemble(decode(function.__code__), Layout.of(function.__code__))
    return types.FunctionType(code, function.__globals__)


names = st.sampled_from("abcd")
atoms = st.one_of(names, st.integers(-3, 300).map(str))
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, st.sampled_from(["<", "==", ">="]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} and {t[1]})"),
        st.lists(inner, max_size=3).map(lambda t: f"len([{', '.join(t)}])"),
        inner.map(lambda e: f"sum([i + {e} for i in range(2)])"),
    ),
    max_leaves=6,
)


def indent(lines):
    return ["    " + line for line in lines]


def blocks(inner):
    body = st.lists(inner, min_size=1, max_size=3).map(
        lambda parts: [line for part in parts for line in part]
    )
    return st.one_of(
        st.tuples(expressions, body, body).map(
            lambda t: [f"if {t[0]}:", *indent(t[1]), "else:", *indent(t[2])]
        ),
        body.map(lambda b: ["for i in range(3):", *indent(b), "    if a > 500: break"]),
        st.tuples(body, body).map(
            lambda t: ["try:", *indent(t[0]), "    1 // b", "except ZeroDivisionError:", *indent(t[1])]
        ),
        st.tuples(body, body).map(lambda t: ["try:", *indent(t[0]), "finally:", *indent(t[1])]),
    )


statements = st.recursive(
    st.tuples(names, expressions).map(lambda t: [f"{t[0]} = {t[1]}"]), blocks, max_leaves=6
)
programs = st.lists(statements, min_size=1, max_size=4).map(
    lambda parts: "\n".join(
        [
            "def f(a, b, c=1, d=2):",
            *indent([line for part in parts for line in part]),
            "    return a, b, c, d",
        ]
    )
)


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(-2, 2), st.integers(-2, 2))
def test_generated_functions_behave_alike(source, a, b):
    function = function_of(source)
    assert_same(
        function.__code__, assemble(decode(function.__code__, split=False), Layout.of(function.__code__))
    )

    def result(f):
        try:
            return f(a, b, 1, 2)
        except ZeroDivisionError as error:
            return str(error), error.__traceback__.tb_next.tb_lineno

    assert result(again(function)) == result(function)


@pytest.mark.parametrize("padding", [10, 200, 300, 70_000])
def test_jumps_of_every_length(padding):
    """A loop over `padding` instructions: operands of one, two and three bytes, forward and back."""
    start, end = spell.op("NOP"), spell.op("NOP")
    one = spell.load_const(1)
    out = [
        spell.op("RESUME"),
        start,
        spell.load_fast("n"),
        *jump_if_false(end),
        *(spell.op("NOP") for _ in range(padding)),
        spell.load_fast("n"),
        one,
        spell.op("BINARY_OP", 10),  # minus
        spell.store_fast("n"),
        spell.jump(start),
        end,
        spell.load_const("done"),
        spell.op("RETURN_VALUE"),
    ]
    code = assemble(out, Layout("f", "f", "f.py", 1, 3, varnames=("n",), argcount=1))
    assert types.FunctionType(code, {})(3) == "done"
    assert [i.opname for i in decode(code)] == [i.opname for i in out]


def jump_if_false(end):
    """Jumps to `end` if the top of the stack is false."""
    to_bool = [spell.op("TO_BOOL")] if "TO_BOOL" in spell.OPCODES else []
    return [*to_bool, Instruction("POP_JUMP_IF_FALSE", 0, end)]


def test_many_names_and_constants():
    lines = [f"    v{i} = {i} + g{i % 300}.a{i}" for i in range(600)]
    function = function_of("\n".join(["def f():", *lines, "    return v599"]))
    assert_same(
        function.__code__, assemble(decode(function.__code__, split=False), Layout.of(function.__code__))
    )


def test_impossible_jump_is_refused():
    top = spell.op("NOP")
    out = [
        spell.op("RESUME"),
        top,
        spell.load_const(()),
        spell.op("GET_ITER"),
        Instruction("FOR_ITER", 0, top),
    ]
    with pytest.raises(ValueError, match="backward"):
        assemble([*out, spell.op("RETURN_VALUE")], Layout("f", "f", "f.py", 1, 3))
