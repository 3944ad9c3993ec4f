"""Minimum cuts against brute force on small networks."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp.aot.mincut import INFINITE, Network

NODES = 6
EDGES = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(1, 9)), max_size=14)


def cut_value(edges, side):
    return sum(capacity for a, b, capacity in edges if side[a] and not side[b])


@settings(max_examples=200, deadline=None)
@given(EDGES)
def test_cut_is_minimal(edges):
    edges = [(a, b, c) for a, b, c in edges if a != b]
    net = Network(NODES)
    for a, b, capacity in edges:
        net.edge(a, b, capacity)
    side = net.source_side(0, NODES - 1)
    assert side is not None and side[0] and not side[NODES - 1]
    every = (cut_value(edges, (True, *middle, False)) for middle in itertools.product((False, True), repeat=NODES - 2))
    assert cut_value(edges, side) == min(every)


def test_a_cut_that_must_be_infinite():
    net = Network(3)
    net.edge(0, 1, INFINITE)
    net.edge(1, 2, INFINITE)
    assert net.source_side(0, 2) is None


def test_infinite_edges_are_never_cut():
    net = Network(4)
    net.edge(0, 1, INFINITE)
    net.edge(1, 2, 5)
    net.edge(2, 3, INFINITE)
    assert net.source_side(0, 3) == [True, True, False, False]
