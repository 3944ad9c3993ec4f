"""Objects whose classes are written in C and are no kind of value of ours: operators on them are theirs, never identity."""

import array
import datetime
import decimal
import fractions
import ipaddress
import operator
import re

import numpy as np
import pytest
import torch

import dyncomp
from tests.support import outcome

X = torch.ones(2)
# makers of pairs of different objects, some of which are equal; `+=` changes some
PAIRS = {
    "numpy-int": lambda: (np.int64(3), 3),
    "numpy-ints": lambda: (np.int64(0), np.int32(0)),
    "numpy-float": lambda: (np.float64("nan"), np.float64("nan")),
    "numpy-bool": lambda: (np.bool_(True), True),
    "numpy-array": lambda: (np.array(3), 3),
    "numpy-dtype": lambda: (np.dtype("int64"), "int64"),
    "decimal": lambda: (decimal.Decimal("3"), 3),
    "decimal-fraction": lambda: (decimal.Decimal("0.5"), fractions.Fraction(1, 2)),
    "timedelta": lambda: (datetime.timedelta(1), datetime.timedelta(hours=24)),
    "date": lambda: (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
    "bytearray": lambda: (bytearray(b"ab"), b"ab"),
    "memoryview": lambda: (memoryview(b"ab"), b"ab"),
    "array": lambda: (array.array("i", [1]), array.array("i", [1])),
    "address": lambda: (ipaddress.ip_address("1.2.3.4"), ipaddress.ip_address("1.2.3.4")),
    "pattern": lambda: (re.compile("a+"), re.compile("a+", re.IGNORECASE)),
    "slice": lambda: (slice(1, 2), slice(1, 2)),
    "none": lambda: (np.int64(0), None),
}
OPERATIONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
    "in a tuple": lambda a, b: a in (b, "other"),
    "tuples": lambda a, b: (a, 1) == (b, 1),
    "branch": lambda a, b: "same" if a == b else "different",
    "+": operator.add,
    "%": operator.mod,
    "+=": operator.iadd,
    "caught": lambda a, b: _or_none(lambda: a - b),
}


def _or_none(function):
    try:
        return function()
    except TypeError:
        return None


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("pair", PAIRS)
def test_operators_are_those_of_the_objects(pair, operation):
    def function(x, a, b):
        return x + 1, OPERATIONS[operation](a, b), OPERATIONS[operation](b, a)

    fast = dyncomp.optimize(function, backend="eager")
    for order in (1, -1):
        want, got = outcome(function, (X, *PAIRS[pair]()[::order])), outcome(fast, (X, *PAIRS[pair]()[::order]))
        assert repr(got) == repr(want)


def test_a_remainder_of_a_numpy_number_is_compared_by_value():
    def pad(x, multiple):
        if x.shape[-1] % multiple != 0:
            return torch.nn.functional.pad(x, (0, int(multiple - x.shape[-1] % multiple)))
        return x * 2

    fast = dyncomp.optimize(pad)
    for size in (8, 6):
        x = torch.arange(float(size))
        assert torch.equal(fast(x, np.int64(4)), pad(x, np.int64(4)))


@pytest.mark.parametrize(
    "function",
    [lambda x, a: {a: 1}[a], lambda x, a: {a, 1}, lambda x, a: int | a, lambda x, a: list(range(a)), lambda x, a: (1, 2) * a],
)
@pytest.mark.parametrize("value", [slice(1, 2), torch.finfo(torch.float32), 2**70])
def test_errors_of_constants_are_the_programs(function, value):
    def program(x, a):
        return x + 1, function(x, a)

    fast = dyncomp.optimize(program, backend="eager")
    assert repr(outcome(fast, (X, value))) == repr(outcome(program, (X, value)))


def test_a_loop_over_a_long_range_that_ends_early_reads_no_further():
    def function(x):
        for i in range(10**15):
            x = x + i
            if i == 3:
                break
        return x

    assert torch.equal(dyncomp.optimize(function, backend="eager", fullgraph=True)(X), function(X))


def test_a_half_used_range_goes_on_after_a_break():
    def function(x):
        steps, sums = iter(range(5)), []
        for i in steps:
            x = x + i
            sums.append(x.sum().item())
            if i == 2:
                break
        return x, sums, list(steps)

    assert repr(dyncomp.optimize(function, backend="eager")(X)) == repr(function(X))


def test_long_sequences_are_left_to_python():
    def function(x):
        return x + len(list(range(2_000_000))), ([0] * 3_000_000)[-1]

    assert repr(dyncomp.optimize(function, backend="eager")(X)) == repr(function(X))
