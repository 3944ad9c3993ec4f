"""Simplified indices have the values of the expressions they stand for."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp.codegen.ir.index import (
    FloorDiv,
    Mod,
    Size,
    Var,
    as_index,
    bounds,
    const,
    evaluate,
    floordiv,
    minimum,
    mod,
    substitute,
    var,
)

EXTENTS = {"a": 3, "b": 4, "c": 6}
VARS = {name: as_index(Var(name, const(extent))) for name, extent in EXTENTS.items()}


def expressions():
    """Pairs (index, function of an assignment)."""
    leaves = st.one_of(
        st.integers(-5, 12).map(lambda n: (const(n), lambda values: n)),
        st.sampled_from(sorted(VARS)).map(lambda n: (VARS[n], lambda values: values[n])),
    )

    def combine(children):
        def add(pair):
            (x, f), (y, g) = pair
            return x + y, lambda v: f(v) + g(v)

        def scale(pair):
            (x, f), n = pair
            return x * n, lambda v: f(v) * n

        def divide(pair):
            (x, f), n = pair
            return floordiv(x, const(n)), lambda v: f(v) // n

        def rest(pair):
            (x, f), n = pair
            return mod(x, const(n)), lambda v: f(v) % n

        factor, divisor = st.integers(-4, 12), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24])
        return st.one_of(
            st.tuples(children, children).map(add),
            st.tuples(children, factor).map(scale),
            st.tuples(children, divisor).map(divide),
            st.tuples(children, divisor).map(rest),
        )

    return st.recursive(leaves, combine, max_leaves=8)


@settings(max_examples=300, deadline=None)
@given(expressions())
def test_simplifying_keeps_the_value(pair):
    index, function = pair
    low, high = bounds(index)
    for a in range(EXTENTS["a"]):
        for b in range(EXTENTS["b"]):
            for c in range(EXTENTS["c"]):
                values = {"a": a, "b": b, "c": c}
                assert evaluate(index, values) == function(values)
                assert low <= evaluate(index, values) <= high


def test_division_drops_what_stays_below():
    a, b = VARS["a"], VARS["b"]
    assert (a * 4 + b) // 4 == a
    assert (a * 4 + b) % 4 == b


def test_parts_of_a_division_join_again():
    whole = var("k", 480)
    parts = 12 * ((whole // 12) % 10) + 120 * ((whole // 120) % 2) + whole % 12 + 240 * (whole // 240)
    assert parts == whole


def test_nested_divisions_become_one():
    k = var("k", 100)
    assert (k // 5) // 4 == k // 20
    assert isinstance((k // 5).terms[0][0], FloorDiv) and isinstance((k % 7).terms[0][0], Mod)


def test_substitution_simplifies():
    k, q, r = Var("k", const(24)), var("q", 4), var("r", 6)
    assert substitute(as_index(k) // 6, {k: q * 6 + r}) == q


def test_minimum_is_decided_by_ranges():
    a = VARS["a"]
    assert minimum(a, 5) == a
    assert minimum(const(64), const(100) - VARS["b"] * 64).terms


def test_symbolic_sizes_multiply():
    n, i = as_index(Size("n")), VARS["a"]
    index = (i * n + 1) * n
    assert evaluate(index, {"a": 2, "n": 7}) == (2 * 7 + 1) * 7
    assert bounds(index) is None


def test_extent_one_is_no_variable():
    assert var("x", 1) == 0
