"""Sources: equality, hashing, and how they read."""

import weakref

from dyncomp.guards import source as s


def layer_weight(slot=0):
    self_value = s.Local(slot, "self")
    layers = s.module_member(self_value, "_modules", "layers")
    first = s.module_member(layers, "_modules", "0")
    return s.module_member(first, "_parameters", "weight")


def test_reads_like_python():
    assert str(layer_weight()) == "L['self'].layers[0].weight"
    assert str(s.attribute(s.Local(0, "self"), "training")) == "L['self'].training"
    assert str(s.DictItem(s.FuncGlobals(s.Func()), "torch")) == "G['torch']"
    assert str(s.Type(s.ListItem(s.Local(1, "xs"), 2))) == "type(L['xs'][2])"
    assert str(s.CellContents(s.Cell(s.Func(), 0))) == "F.__closure__[0].cell_contents"


def test_equal_paths_are_equal_and_hash_alike():
    assert layer_weight() == layer_weight()
    assert hash(layer_weight()) == hash(layer_weight())
    assert layer_weight() != layer_weight(slot=1)
    assert s.ListItem(s.Local(0, "x"), 0) != s.TupleItem(s.Local(0, "x"), 0)


def test_held_objects_count_by_identity():
    first, second = [], []
    assert s.Const(first) == s.Const(first)
    assert s.Const(first) != s.Const(second)


def test_dict_keys_never_run_user_code():
    class Key:
        def __eq__(self, other):
            raise AssertionError("compared")

        def __hash__(self):
            return 1

    a, b = Key(), Key()
    table = s.Local(0, "d")
    assert s.DictItem(table, a) == s.DictItem(table, a)
    assert s.DictItem(table, a) != s.DictItem(table, b)


def test_weak_does_not_hold():
    class Thing:
        pass

    thing = Thing()
    source = s.Weak(weakref.ref(thing))
    assert source.arg is thing
    del thing
    assert source.arg is None


def test_every_access_has_one_row():
    assert len(s.ROWS) == 21
    assert all(row.access == name for name, row in s.ROWS.items())
