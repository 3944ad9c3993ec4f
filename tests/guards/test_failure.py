"""The words about a failed check name the values that it compared."""

import types

import torch

import dyncomp
from dyncomp.guards.failure import in_words
from dyncomp.guards.source import Local

PLACES = (Local(0, "x"), Local(1, "rate"))


def test_a_check_is_told_with_the_value_it_looked_at():
    assert in_words((1, "type", "type: expected <int>, found <str>"), PLACES) == "L['rate']: expected <int>, found <str>"
    assert in_words((0, "tensor", "sizes: expected (2,), found (3,)"), PLACES) == "L['x']: sizes: expected (2,), found (3,)"


def test_relations_name_both_values():
    assert in_words((1, "same_as", "expected the same object as node 0"), PLACES) == (
        "L['rate']: expected the same object as L['x']"
    )
    assert in_words((1, "distinct", "nodes 0 and 1: expected different objects"), PLACES) == (
        "L['rate']: L['x'] and L['rate']: expected different objects"
    )


def test_what_is_no_nodes_keeps_its_text():
    assert in_words((-1, "state", "grad mode: expected True, found False"), PLACES) == (
        "grad mode: expected True, found False"
    )
    assert in_words((9, "type", "node 9 is new"), PLACES) == "node 9 is new"


def test_a_recompile_names_the_attribute_that_changed():
    def f(x, holder):
        return x * 2 if holder.settings.kind is None else x * 3

    fast = dyncomp.optimize(f)
    reasons = []
    dyncomp.api.context_of(fast).observers.append(lambda record: reasons.append(record.recompile_reason))
    holder = types.SimpleNamespace(settings=types.SimpleNamespace(kind=None))
    fast(torch.ones(2), holder)
    holder.settings.kind = "other"
    assert torch.equal(fast(torch.ones(2), holder), torch.full((2,), 3.0))
    assert any("settings.kind" in str(reason) for reason in reasons), reasons
