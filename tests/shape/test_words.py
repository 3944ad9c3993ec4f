"""Guards as a person would write them."""

import math

import pytest
import torch

import dyncomp
from dyncomp.shape.env import ShapeEnv
from dyncomp.shape.words import describe, words


def number(env, hint, name):
    return env.create_int(hint, name, duck=False)


CASES = [
    (lambda n, m: n // 2, "s0 // 2"),
    (lambda n, m: (n + 1) // (m + 3), "(s0 + 1) // (s1 + 3)"),
    (lambda n, m: n % m, "s0 % s1"),
    (lambda n, m: torch.sym_max(n, m), "max(s0, s1)"),
    (lambda n, m: n / m, "s0 / s1"),
    (lambda n, m: math.trunc(n * 1.5), "trunc(float(s0) * 1.5)"),
    (lambda n, m: torch._sym_sqrt(torch.sym_float(n)), "sqrt(float(s0))"),
    (lambda n, m: n * m + 2 * n - 1, "s0*s1 + 2*s0 - 1"),
    (lambda n, m: n << m, "s0 << s1"),
]


@pytest.mark.parametrize("number_of", range(len(CASES)))
def test_expressions(number_of):
    env = ShapeEnv()
    function, text = CASES[number_of]
    made = function(number(env, 7, "n"), number(env, 5, "m"))
    assert words(made.node.expr) == text


def test_truths():
    env = ShapeEnv()
    n, z = number(env, 8, "n"), env.create_float(0.75, "z")
    assert z > 0.5
    assert n % 4 == 0
    assert math.trunc(n * 1.5) == 12
    assert [describe(guard.truth) for guard in env.guards] == [
        "0.5 < z0", "s0 % 4 == 0", "trunc(float(4*q0) * 1.5) is defined", "trunc(float(4*q0) * 1.5) == 12"
    ]  # fmt: skip


def test_reports_hold_no_class_names():
    def function(x, f):
        half = x.shape[0] // 2
        return x[:half] * f if f > 0.25 and x.shape[1] % 3 == 0 and int(x.shape[0] * 1.7) > 5 else x

    with torch.no_grad():
        text = str(dyncomp.explain(function, dynamic=True)(torch.randn(8, 6), 0.5))
    for name in ("Op_", "FloatConstant", "FloorDiv", "Mod(", "IsZero", "IsPositive", "ToFloat"):
        assert name not in text
    assert "0.25 < L['f']" in text
    assert "L['x'].size(1) % 3 == 0" in text


def test_storage_offsets_are_reported_with_the_line_that_read_them():
    def function(x):
        return x + x.storage_offset()

    def offset_with(**options):
        with torch.no_grad():
            report = dyncomp.explain(function, **options)(torch.randn(30)[6:].view(4, 6))
        (text,) = [str(number) for graph in report.frames for number in graph.numbers if "offset" in str(number)]
        return text

    assert offset_with(dynamic=True) == "L['x'].storage_offset() = 6: symbolic, 0 and more"
    offset = offset_with()
    line = function.__code__.co_firstlineno + 1
    assert offset.startswith("L['x'].storage_offset() = 6: pinned, because of L['x'].storage_offset() == 6")
    assert f"test_words.py:{line}" in offset
    assert "cure: " in offset
