"""Guard trees: sharing, order, merged checks, and what the native tree answers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dyncomp._frame import _core
from dyncomp.guards import plain
from dyncomp.guards.build import build_tree, plan
from dyncomp.guards.record import GuardRecord
from dyncomp.guards.source import (
    DictItem,
    Func,
    FuncGlobals,
    InstanceDict,
    ListItem,
    Local,
    attribute,
    module_member,
)

SELF, X = Local(0, "self"), Local(1, "x")


def module_records():
    return [
        GuardRecord(DictItem(FuncGlobals(Func()), "torch"), "id", torch),
        GuardRecord(SELF, "type", torch.nn.Linear),
        GuardRecord(attribute(SELF, "training"), "equals", False),
        GuardRecord(InstanceDict(SELF), "no_item", ("forward",)),
        GuardRecord(InstanceDict(SELF), "no_item", ("other",)),
    ]


def test_common_prefixes_are_shared_and_parents_come_first():
    captures = [X, module_member(SELF, "_parameters", "weight")]
    tree = plan(module_records(), captures)
    sources = [node.source for node in tree.nodes]
    assert len(sources) == len(set(sources))
    for i, node in enumerate(tree.nodes):
        assert node.parent < i
        assert (node.parent == -1) == (node.source.base is None)
    assert [tree.nodes[i].source for i in tree.captures] == captures


def test_arguments_are_checked_before_globals():
    order = [str(node.source) for node in plan(module_records(), []).nodes]
    assert order.index("L['self']") < order.index("L['self'].training") < order.index("G['torch']")


def test_checks_merge_and_implied_ones_go():
    tree = plan([*module_records(), GuardRecord(SELF, "id", SELF)], [])
    checks = {str(node.source): node.checks for node in tree.nodes}
    assert checks["L['self'].__dict__"] == [("no_item", ("forward", "other"))]
    assert checks["L['self']"] == [("id", SELF)]


def test_unhashable_class_attributes_merge():
    records = [GuardRecord(X, "class_attrs", (("a", []),)), GuardRecord(X, "class_attrs", (("b", {}),))]
    (node,) = plan(records, []).nodes
    assert node.checks == [("class_attrs", (("a", []), ("b", {})))]


def test_relations_sit_on_the_later_node():
    a, b = ListItem(X, 0), Local(0, "a")
    for record in (GuardRecord(a, "same_as", b), GuardRecord(b, "same_as", a)):
        tree = plan([record, GuardRecord(X, "type", list)], [])
        late = max(tree.index(a), tree.index(b))
        assert tree.nodes[late].checks == [("same_as", min(tree.index(a), tree.index(b)))]


def test_distinct_objects_are_one_check_on_the_last_node():
    a, b, c = ListItem(X, 0), Local(0, "a"), Local(2, "c")
    tree = plan([GuardRecord(a, "distinct", (((a,), (b,)), (c, a)))], [])
    at = {name: tree.index(source) for name, source in (("a", a), ("b", b), ("c", c))}
    last = max(at.values())
    assert tree.nodes[last].checks == [("distinct", (((at["a"],), (at["b"],)), (at["c"],)))]
    assert not any(node.checks for i, node in enumerate(tree.nodes) if i != last)
    (lone,) = plan([GuardRecord(b, "distinct", (((b,),), ()))], []).nodes
    assert not lone.checks


paths = st.recursive(
    st.sampled_from([Local(i, n) for i, n in enumerate("abc")]),
    lambda inner: (
        st.builds(ListItem, inner, st.integers(0, 2)) | st.builds(DictItem, inner, st.sampled_from("pq"))
    ),
    max_leaves=4,
)


@given(st.lists(paths, min_size=1, max_size=8), st.lists(st.tuples(paths, paths), max_size=4))
def test_any_set_of_facts_gives_a_tree_in_order(sources, related):
    records = [GuardRecord(source, "truth", True) for source in sources]
    records += [GuardRecord(a, "same_as", b) for a, b in related]
    tree = plan(records, sources)
    for i, node in enumerate(tree.nodes):
        assert node.parent < i
        assert all(check[1] < i for check in node.checks if check[0] == "same_as")
    assert [tree.nodes[i].source for i in tree.captures] == sources


def test_native_tree_holds_and_fails():
    def function(self, x):
        return torch.relu(x)

    captures = [X, module_member(SELF, "_parameters", "weight")]
    tree = build_tree(module_records(), captures)
    layer = torch.nn.Linear(2, 2).eval()
    x = torch.ones(2)
    assert tree.check(function, (layer, x))
    taken = tree.capture(function, (layer, x))
    assert taken[0] is x and taken[1] is layer.weight
    layer.train()
    assert not tree.check(function, (layer, x))
    layer.eval()
    layer.forward = None
    assert not tree.check(function, (layer, x))


def test_plain_data_round_trip():
    records = [
        *module_records(),
        GuardRecord(X, "equals", (1, -0.0, float("nan"), "s", torch.float32, 2**70, b"x", None, ...)),
        GuardRecord(X, "not_same_as", SELF),
        GuardRecord(X, "distinct", (((X, SELF), (ListItem(X, 0),)), (ListItem(X, 1),))),
        GuardRecord(
            X, "class_attrs", (("forward", torch.nn.Linear.forward), ("gone", _core.ABSENT)), ("f.py", 3)
        ),
    ]
    import json

    data = json.loads(json.dumps(plain.export(records, [X])))
    loaded, captures = plain.load(data)
    assert captures == [X]
    assert [(r.source, r.kind, r.user_line) for r in loaded] == [
        (r.source, r.kind, r.user_line) for r in records
    ]
    assert [str(r) for r in loaded] == [str(r) for r in records]


def test_objects_of_this_process_are_not_plain():
    with pytest.raises(plain.NotPlain):
        plain.export([GuardRecord(X, "id", object())], [])
