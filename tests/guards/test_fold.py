"""Facts about empty entries of one dict become one check on the dict, and say the same."""

import collections

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dyncomp
from dyncomp.guards.build import build_tree, plan
from dyncomp.guards.record import GuardRecord
from dyncomp.guards.source import DictItem, InstanceDict, Local

SELF = Local(0, "self")
TABLE = InstanceDict(SELF)


def empty(name, cls=dict, kind="dict_keys", payload=()):
    return [GuardRecord(DictItem(TABLE, name), "type", cls), GuardRecord(DictItem(TABLE, name), kind, payload)]


class Holder:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def test_one_check_stands_for_many():
    records = [*empty("a"), *empty("b", collections.OrderedDict, "empty", None), *empty("c", dict, "len", 0)]
    tree = plan(records, [])
    assert [str(node.source) for node in tree.nodes] == ["L['self']", "L['self'].__dict__"]
    assert tree.nodes[1].checks == [("empty_items", (("a", dict), ("b", collections.OrderedDict), ("c", dict)))]
    native = build_tree(records, [])
    good = {"a": {}, "b": collections.OrderedDict(), "c": {}}
    for _ in range(2):  # a first look, and one by the version that passed
        assert native.check(None, (Holder(**good),))
    for name, other in [("a", {1: 2}), ("b", {}), ("c", None), ("a", collections.OrderedDict())]:
        assert not native.check(None, (Holder(**{**good, name: other}),))
        node, kind, text = native.explain(None, (Holder(**{**good, name: other}),))
        assert (node, kind) == (1, "empty_items") and repr(name) in text
    assert not native.check(None, (Holder(a={}),))
    assert native.explain(None, (Holder(a={}),))[2] == "key 'b': not there"


def test_what_is_needed_elsewhere_keeps_its_node():
    captured, related, parent = (DictItem(TABLE, name) for name in ("captured", "related", "parent"))
    records = [record for name in ("captured", "related", "parent", "gone") for record in empty(name)]
    records += [GuardRecord(related, "not_same_as", captured), GuardRecord(DictItem(parent, "x"), "id", None)]
    tree = plan(records, [captured])
    sources = [node.source for node in tree.nodes]
    assert {captured, related, parent} <= set(sources) and DictItem(TABLE, "gone") not in sources


@pytest.mark.parametrize(
    "records",
    [
        empty("a")[:1],
        empty("a", kind="dict_keys", payload=("x",)),
        [*empty("a"), GuardRecord(DictItem(TABLE, "a"), "class_attrs", (("get", dict.get),))],
        empty("a", collections.defaultdict),
        [GuardRecord(DictItem(TABLE, 3), r.kind, r.expected()) for r in empty("a")],
    ],
)
def test_other_facts_stay(records):
    assert all(kind != "empty_items" for node in plan(records, []).nodes for kind, _ in node.checks)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["fill", "drain", "swap", "drop"])), max_size=8))
def test_a_changed_dict_is_seen(steps):
    native = build_tree([record for name in "abc" for record in empty(name)], [])
    held = Holder(a={}, b={}, c={})
    for name, step in steps:
        found = held.__dict__.get(name)
        if step == "fill" and found is not None:
            found[1] = 1
        elif step == "drain" and found is not None:
            found.clear()
        elif step == "swap":
            held.__dict__[name] = {}
        elif step == "drop":
            held.__dict__.pop(name, None)
        wanted = all(type(held.__dict__.get(n)) is dict and not held.__dict__[n] for n in "abc")
        assert native.check(None, (held,)) == wanted


def test_hooks_added_and_removed_later():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    fast, x, seen = dyncomp.optimize(net, backend="eager"), torch.ones(1, 2), []
    fast(x)
    handle = net[0].register_forward_hook(lambda m, args, out: seen.append("forward") or out + 1)
    torch.testing.assert_close(fast(x), net(x))
    assert seen == ["forward"] * 2
    handle.remove()
    torch.testing.assert_close(fast(x), net(x))
    assert seen == ["forward"] * 2
