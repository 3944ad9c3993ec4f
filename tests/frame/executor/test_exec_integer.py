"""int, size, stride: Python's integer arithmetic on 64 bits."""

from __future__ import annotations

import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.frame.executor.exec_support import plan

OPERATIONS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
}
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-20, 20)


def run(name: str, a: int, b: int) -> int:
    return plan(0, [("int", 0, "add", a, 0), ("int", 1, name, ("s", 0), b)], [("s", 1)], single=True)()


@given(st.sampled_from(sorted(OPERATIONS)), INT64 | SMALL, INT64 | SMALL)
def test_integers_are_pythons_or_an_error(name, a, b):
    if b == 0 and name in ("floordiv", "mod"):
        with pytest.raises(ZeroDivisionError, match="division or modulo by zero"):
            run(name, a, b)
        return
    want = OPERATIONS[name](a, b)
    if -(2**63) <= want < 2**63:
        assert run(name, a, b) == want
    else:
        with pytest.raises(OverflowError, match="64 bits"):
            run(name, a, b)


def test_sizes_and_strides_of_the_call():
    p = plan(1, [("size", 0, 0, 0), ("size", 1, 0, -1), ("stride", 2, 0, 1)], [("s", 0), ("s", 1), ("s", 2)])
    assert p(torch.empty(3, 8)[:, ::2]) == (3, 4, 2)
    with pytest.raises(IndexError):
        p(torch.ones(()))


def test_registers_belong_to_the_call():
    p = plan(1, [("size", 0, 0, 0), ("int", 0, "mul", ("s", 0), ("s", 0))], [("s", 0)], single=True)
    assert [p(torch.empty(n)) for n in (3, 4, 5)] == [9, 16, 25]


def test_mistakes():
    for code, message in [
        ([("int", 0, "add", ("s", 0), 1)], "register 0 is read before it is written"),
        ([("int", -1, "add", 1, 1)], "no register -1"),
        ([("int", 0, "add", 1, 2**64)], "does not fit in 64 bits"),
        ([("size", 0, 3, 0)], "slot 3 is read before"),
    ]:
        with pytest.raises(ValueError, match="instruction 0") as caught:
            plan(0, code, [])
        assert message in str(caught.value)
    with pytest.raises(ValueError, match="register 2 is read before"):
        plan(0, [], [("s", 2)])
