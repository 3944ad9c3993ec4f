"""Buffers that live at the same time never overlap, and others share."""

from hypothesis import given
from hypothesis import strategies as st

from dyncomp.codegen.memory import ALIGNMENT, Lifetime, place, shelves

LIVES = st.builds(
    lambda size, first, length: Lifetime(size, first, first + length),
    st.integers(0, 1000),
    st.integers(0, 20),
    st.integers(0, 6),
)


@given(st.lists(LIVES, max_size=25))
def test_no_overlap(lives):
    end = place(lives)
    for n, a in enumerate(lives):
        assert a.offset % ALIGNMENT == 0 and a.offset + a.size <= end
        for b in lives[:n]:
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
            assert apart or not together or 0 in (a.size, b.size)


def test_a_chain_needs_two_buffers():
    lives = [Lifetime(6400, n, n + 1) for n in range(10)]
    assert place(lives) == 12800


def test_a_hole_is_filled_best():
    lives = [Lifetime(640, 0, 9), Lifetime(128, 0, 2), Lifetime(64, 0, 9), Lifetime(128, 3, 9)]
    assert place(lives) == 640 + 128 + 64


@given(st.lists(LIVES, max_size=25))
def test_buffers_of_one_shelf_never_meet(lives):
    groups = shelves(lives)
    assert sorted(id(life) for group in groups for life in group) == sorted(map(id, lives))
    for group in groups:
        for n, a in enumerate(group):
            assert all(a.last < b.first or b.last < a.first for b in group[:n])


def test_a_chain_needs_two_shelves():
    assert len(shelves([Lifetime(6400, n, n + 1) for n in range(10)])) == 2
