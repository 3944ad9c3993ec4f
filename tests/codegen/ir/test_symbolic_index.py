"""Index algebra over symbolic sizes: what it simplifies is equal at all sizes, what it proves is true at all sizes."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp.codegen.ir import index as ix
from dyncomp.codegen.ir import proofs
from dyncomp.codegen.ir.index import Size, Undecided, Var, as_index, const
from tests.support import examples

A, B = as_index(Size("a", 2)), as_index(Size("b", 2))
SIZES = [(2, 2), (2, 5), (3, 4), (7, 3)]
EXTENTS = {"i": A, "j": B, "k": const(5), "l": A * B, "m": A + 1}
VARS = {name: Var(name, extent) for name, extent in EXTENTS.items()}
LEAVES = st.sampled_from([A, B, const(1), const(3), *[as_index(v) for v in VARS.values()]])
DIVISORS = st.sampled_from([A, B, A * B, A + 1, const(5), (A + 1) * B, A * 4])


def _grow(inner):
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, st.sampled_from([A, B, const(2), const(-3), A * B])),
    )


SUMS = st.recursive(LEAVES, _grow, max_leaves=6)


def assignments():
    """Some values of all names, within their ranges."""
    for a, b in SIZES:
        sizes = {"a": a, "b": b}
        ends = []
        for name, extent in EXTENTS.items():
            last = ix.evaluate(extent, sizes) - 1
            ends.append([(name, v) for v in {0, last // 2, last}])
        for picked in itertools.product(*ends):
            yield {**sizes, **dict(picked)}


@given(SUMS, DIVISORS)
@settings(max_examples=examples(150), deadline=None)
def test_quotient_and_rest_are_the_numbers(num, den):
    whole, rest = num // den, num % den
    for values in assignments():
        n, d = ix.evaluate(num, values), ix.evaluate(den, values)
        assert ix.evaluate(whole, values) == n // d, f"({num}) // ({den}) -> {whole} at {values}"
        assert ix.evaluate(rest, values) == n % d, f"({num}) % ({den}) -> {rest} at {values}"
        assert ix.evaluate(whole * den + rest, values) == n
        assert ix.evaluate(ix.minimum(num, den), values) == min(n, d)


@given(SUMS)
@settings(max_examples=examples(200), deadline=None)
def test_what_is_proved_holds(index):
    if proofs.nonnegative(index):
        for values in assignments():
            assert ix.evaluate(index, values) >= 0, f"{index} at {values}"


@given(SUMS, SUMS)
@settings(max_examples=examples(100), deadline=None)
def test_comparisons_answer_for_all_sizes_or_not_at_all(a, b):
    for answer, meaning in ((lambda: a < b, int.__lt__), (lambda: a >= b, int.__ge__), (lambda: a <= b, int.__le__)):
        try:
            got = answer()
        except Undecided:
            continue
        assert all(meaning(ix.evaluate(a, v), ix.evaluate(b, v)) == got for v in assignments())


def test_rows_and_columns_come_apart():
    i, j = as_index(VARS["i"]), as_index(VARS["j"])
    flat = i * B + j
    assert (flat // B, flat % B) == (i, j)
    whole = as_index(VARS["l"])
    assert (whole // B) * B + whole % B == whole
    assert (whole // B) * B * 768 + (whole % B) * 768 == whole * 768


def test_blocks_stay_inside():
    block = as_index(Var("block", (A + 63) // 64))
    assert proofs.nonnegative(A - block * 64)
    assert proofs.upper_bound(ix.minimum(const(64), A - block * 64)) == 64


@pytest.mark.parametrize(
    "question", [lambda: A > 5, lambda: bool(A - 2), lambda: int(A), lambda: list(range(A)), lambda: float(B)]
)
def test_questions_that_sizes_decide(question):
    with pytest.raises(Undecided):
        question()


def test_quotients():
    assert proofs.quotient(A * B * 12, B * 4) == A * 3
    assert proofs.quotient(A * 12, A) == 12 and proofs.quotient(A, B) is None and proofs.quotient(12, 5) is None
    assert proofs.quotient((A + 1) * B, A + 1) == B


def test_sizes_that_may_be_negative_prove_nothing():
    n = as_index(Size("n", -5))
    assert (
        not proofs.nonnegative(n * A) and not proofs.nonnegative(as_index(VARS["i"]) * n) and proofs.nonnegative(n + 5)
    )
