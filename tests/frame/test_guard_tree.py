"""Every access and every check: holds, fails, and says why."""

import collections
import gc
import sys
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyncomp._frame import _core


def tree(*nodes, captures=()):
    return _core.GuardTree(list(nodes), list(captures), _core.global_state())


def value_of(nodes, args, func=None):
    """What the last of the nodes reaches; None if a guard fails."""
    made = tree(*nodes, captures=[len(nodes) - 1])
    return made.capture(func, args)[0] if made.check(func, args) else None


def check(kind, payload, value, earlier=()):
    """Whether a check on an argument holds, and its explanation."""
    made = tree(*earlier, (-1, "local", 0, [(kind, payload)]))
    why = made.explain(None, (value,))
    assert made.check(None, (value,)) == (why is None)
    return why


class Plain:
    def method(self):
        return self


class Slotted:
    __slots__ = ("x",)


# ---- accesses ------------------------------------------------------------------------------------


def test_roots():
    def func():
        pass

    kept = Plain()
    assert value_of([(-1, "local", 1, [])], (1, "second")) == "second"
    assert value_of([(-1, "func", None, [])], (), func) is func
    assert value_of([(-1, "const", kept, [])], ()) is kept
    assert value_of([(-1, "weak", kept, [])], ()) is kept


def test_weak_root_misses_once_the_object_is_dead():
    kept = Plain()
    made = tree((-1, "weak", kept, []))
    assert made.check(None, ())
    del kept
    assert not made.check(None, ())
    assert made.explain(None, ()) == (0, "weak", "weak: the object is gone")


def test_parts_of_functions():
    inside = 5

    def func(a, b=2, *, c=3):
        return inside

    root = (-1, "func", None, [])
    assert value_of([root, (0, "cell", 0, []), (1, "cell_contents", None, [])], (), func) == 5
    assert value_of([root, (0, "func_globals", None, [])], (), func) is globals()
    assert value_of([root, (0, "func_code", None, [])], (), func) is func.__code__
    assert value_of([root, (0, "func_default", 0, [])], (), func) == 2
    assert value_of([root, (0, "func_kwdefault", "c", [])], (), func) == 3
    assert value_of([root, (0, "func_default", 1, [])], (), func) is None
    assert value_of([root, (0, "func_kwdefault", "nope", [])], (), func) is None
    assert value_of([root, (0, "cell", 1, [])], (), func) is None


def test_empty_cell_misses():
    def func():
        return late

    made = tree((-1, "func", None, []), (0, "cell", 0, []), (1, "cell_contents", None, []))
    assert made.explain(func, ())[:2] == (2, "cell_contents")
    late = 1
    assert made.check(func, ())


def test_bound_methods():
    thing = Plain()
    root = (-1, "local", 0, [])
    assert value_of([root, (0, "method_self", None, [])], (thing.method,)) is thing
    assert value_of([root, (0, "method_func", None, [])], (thing.method,)) is Plain.method
    assert value_of([root, (0, "method_self", None, [])], (len,)) is None


def test_instance_dict_and_items():
    thing = Plain()
    thing.a, thing.b = 1, 2
    path = [(-1, "local", 0, []), (0, "instance_dict", None, []), (1, "dict_item", "b", [])]
    assert value_of(path, (thing,)) == 2
    assert value_of(path, (Plain(),)) is None
    assert value_of(path, (Slotted(),)) is None
    assert "b" not in vars(Plain())


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict, collections.defaultdict])
def test_dict_items_follow_the_dict(cls):
    mapping = cls()
    mapping.update({"a": 1, "b": 2, 3: "three"})
    by_name = tree((-1, "local", 0, []), (0, "dict_item", "b", []), captures=[1])
    by_number = tree((-1, "local", 0, []), (0, "dict_item", 3, []), captures=[1])
    for _ in range(3):
        assert by_name.capture(None, (mapping,)) == (2,)
        assert by_number.capture(None, (mapping,)) == ("three",)
    mapping["b"] = 20
    assert by_name.capture(None, (mapping,)) == (20,)
    del mapping["b"]
    assert not by_name.check(None, (mapping,))
    mapping["c"], mapping["b"] = 0, 200
    assert by_name.capture(None, (mapping,)) == (200,)
    for i in range(100):
        mapping[f"filler{i}"] = i
    assert by_name.capture(None, (mapping,)) == (200,)
    assert by_name.capture(None, ({"x": 0, "b": 7},)) == (7,)
    assert len(mapping) == 104
    mapping.clear()
    assert not by_name.check(None, (mapping,)) and not by_number.check(None, (mapping,))
    if cls is collections.defaultdict:
        assert not mapping


def test_dict_item_of_instances_whose_dict_is_not_made_yet():
    things = [Plain() for _ in range(10)]
    made = tree((-1, "local", 0, []), (0, "instance_dict", None, []), (1, "dict_item", "x", []), captures=[2])
    for i, thing in enumerate(things):
        thing.x = i
        thing.y = -i
        assert made.capture(None, (thing,)) == (i,)
        thing.x = i + 100
        assert made.capture(None, (thing,)) == (i + 100,)
        del thing.x
        assert not made.check(None, (thing,))
        assert vars(thing) == {"y": -i}


def test_dict_item_does_not_confuse_equal_hashes():
    class Same:
        def __init__(self, tag):
            self.tag = tag

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return isinstance(other, Same) and self.tag == other.tag

    mapping = {Same(i): i for i in range(5)}
    assert value_of([(-1, "local", 0, []), (0, "dict_item", Same(3), [])], (mapping,)) == 3


def test_a_key_that_raises_is_a_miss_without_an_error():
    class Angry:
        def __hash__(self):
            return hash("b")

        def __eq__(self, other):
            raise RuntimeError("compared")

    assert value_of([(-1, "local", 0, []), (0, "dict_item", "b", [])], ({Angry(): 1},)) is None


def test_positions():
    root = (-1, "local", 0, [])
    mapping = {"a": 1, "gone": 2, "c": 3}
    del mapping["gone"]
    assert value_of([root, (0, "dict_key_at", 1, [])], (mapping,)) == "c"
    assert value_of([root, (0, "dict_key_at", 2, [])], (mapping,)) is None
    assert value_of([root, (0, "list_item", 1, [])], ([1, 2],)) == 2
    assert value_of([root, (0, "list_item", 2, [])], ([1, 2],)) is None
    assert value_of([root, (0, "tuple_item", 0, [])], ((1, 2),)) == 1
    assert value_of([root, (0, "tuple_item", 0, [])], ([1, 2],)) is None
    point = collections.namedtuple("point", "x y")(3, 4)
    assert value_of([root, (0, "tuple_item", 1, [])], (point,)) == 4


def test_types_and_class_attributes():
    class Base:
        shared = 1

    class Derived(Base):
        pass

    path = [(-1, "local", 0, []), (0, "type", None, []), (1, "class_attr", "shared", [])]
    made = tree(*path, captures=[2])
    thing = Derived()
    assert made.capture(None, (thing,)) == (1,)
    assert made.capture(None, (thing,)) == (1,)
    Base.shared = 2
    assert made.capture(None, (thing,)) == (2,)
    Derived.shared = 3
    assert made.capture(None, (thing,)) == (3,)
    assert made.capture(None, (Base(),)) == (2,)
    del Base.shared, Derived.shared
    assert not made.check(None, (thing,))


def test_slots_and_calls():
    thing = Slotted()
    root = (-1, "local", 0, [])
    assert value_of([root, (0, "slot_attr", "x", [])], (thing,)) is None
    thing.x = ["kept"]
    assert value_of([root, (0, "slot_attr", "x", [])], (thing,)) is thing.x
    assert value_of([root, (0, "call", len, [])], ([1, 2],)) == 2
    assert value_of([root, (0, "call", len, [])], (5,)) is None
    fresh = tree(root, (0, "call", list, []), captures=[1, 1])
    first, second = fresh.capture(None, ("ab",))
    assert first is second == ["a", "b"]


def test_made_objects_are_released():
    thing = Slotted()
    thing.x = kept = ["kept"]
    path = [(-1, "local", 0, []), (0, "slot_attr", "x", [])]
    holds, fails = tree(*path, (1, "type", None, [])), tree(*path, (1, "list_item", 5, []))
    before = sys.getrefcount(kept)
    for _ in range(100):
        assert holds.check(None, (thing,)) and not fails.check(None, (thing,))
    assert sys.getrefcount(kept) == before


# ---- checks --------------------------------------------------------------------------------------


def test_type_and_identity():
    thing = Plain()
    assert check("type", int, 1) is None
    assert check("type", int, True) == (0, "type", "type: expected <class 'int'>, found <class 'bool'>")
    assert check("id", thing, thing) is None
    assert check("id", thing, Plain())[1] == "id"
    assert check("id", 5, 5) is None


def test_identity_holds_weakly():
    thing = Plain()
    made = tree((-1, "local", 0, [("id", thing)]))
    ref = weakref.ref(thing)
    del thing
    assert ref() is None
    assert made.explain(None, (Plain(),)) == (0, "id", "the expected object is gone")
    assert not made.check(None, (None,))


CONSTANTS = [
    0, 1, -1, 10**30, True, False, 0.0, -0.0, 1.0, float("nan"), float("inf"), 1j,
    complex(0.0, -0.0), "", "a", "\ud800", b"", b"a", None, ..., (), (1,), (True,), (1.0,), ((1, "x"), None),
    frozenset(), frozenset({1}), frozenset({True}), frozenset({1.0}), slice(1, None),
    slice(True, None), range(3),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(CONSTANTS)))
def test_constants_equal_only_themselves(i):
    def copied(value):
        return type(value)(list(value)) if isinstance(value, tuple | frozenset) else value

    for j, other in enumerate(CONSTANTS):
        assert (check("equals", CONSTANTS[i], copied(other)) is None) == (i == j), (CONSTANTS[i], other)


def test_equals_refuses_what_it_cannot_compare_in_c():
    class Pythonic:
        def __eq__(self, other):
            return True

        __hash__ = None

    for value in (Pythonic(), [1], {}, (1, [2])):
        with pytest.raises(TypeError, match="equals takes a constant"):
            tree((-1, "local", 0, [("equals", value)]))


@pytest.mark.parametrize("value", [[1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, frozenset({1, 2}), "ab", b"ab"])
def test_lengths(value):
    assert check("len", 2, value) is None
    assert check("len", 3, value) == (0, "len", "length: expected 3, found 2")
    assert check("empty", None, value)[2] == "length: expected 0, found 2"
    assert check("empty", None, type(value)()) is None
    assert check("len", 2, 5)[2] == "length of a int is not known"


def test_length_ignores_python_overrides():
    class Liar(list):
        def __len__(self):
            raise AssertionError("a guard ran Python code")

    assert check("len", 2, Liar([1, 2])) is None


def test_dict_keys_are_ordered_and_exact():
    assert check("dict_keys", ("a", 1), {"a": 0, 1: 0}) is None
    assert check("dict_keys", ("a", 1), {1: 0, "a": 0})[2] == "keys: expected ('a', 1), found [1, 'a']"
    assert check("dict_keys", ("a", 1), {"a": 0, True: 0}) is not None
    assert check("dict_keys", ("a",), {"a": 0, "b": 0}) is not None
    assert check("dict_keys", (), {}) is None
    assert check("dict_keys", (), [])[1] == "dict_keys"
    key = Plain()
    assert check("dict_keys", (key,), {key: 0}) is None
    assert check("dict_keys", (key,), {Plain(): 0}) is not None


def test_absent_items():
    assert check("no_item", ("a", "b"), {"c": 1}) is None
    assert check("no_item", ("a", "b"), {}) is None
    assert check("no_item", ("a", "b"), {"b": 1}) == (0, "no_item", "key 'b': expected absent, found present")
    assert check("no_item", ("a",), [])[2] == "expected a dict, found list"


def test_many_keys_absent_from_a_dict():
    many = tuple(f"k{i}" for i in range(50))
    assert check("no_item", many, {}) is None
    assert check("no_item", many, {"c": 1, "d": 2}) is None
    assert check("no_item", many, {"c": 1, "k49": 2}) == (0, "no_item", "key 'k49': expected absent, found present")
    assert check("no_item", many, dict.fromkeys(f"c{i}" for i in range(99))) is None
    assert check("no_item", many, dict.fromkeys(map("k{}".format, range(49, 200)))) is not None


def test_many_keys_beside_keys_that_are_no_strings():
    class Text(str):
        pass

    many = tuple(f"k{i}" for i in range(50))
    assert check("no_item", many, {1: 2, (): 3}) is None
    assert check("no_item", many, {1: 2, Text("k3"): 3}) is not None
    assert check("no_item", (1, 2, 3, 4, 5, 6), {"k": 1, 6.0: 2}) is not None


def test_class_attributes_by_version():
    class Base:
        def forward(self):
            pass

    class Derived(Base):
        pass

    made = tree((-1, "local", 0, [("class_attrs", (("forward", Base.forward), ("extra", _core.ABSENT)))]))
    thing = Derived()
    for _ in range(3):
        assert made.check(None, (thing,))
    assert made.check(None, (Base(),)) and made.check(None, (thing,))
    Derived.extra = 1
    assert made.explain(None, (thing,)) == (
        0, "class_attrs", "attribute 'extra' of class Derived: expected ABSENT, found 1",
    )  # fmt: skip
    del Derived.extra
    assert made.check(None, (thing,))
    Base.forward = lambda self: None
    assert not made.check(None, (thing,))


def test_attributes_of_a_class_itself():
    class Base:
        pass

    class Derived(Base):
        pass

    made = tree((-1, "local", 0, [("type_attrs", (("extra", _core.ABSENT), ("__eq__", object.__eq__)))]))
    for _ in range(3):
        assert made.check(None, (Derived,)) and made.check(None, (Base,))
    assert not made.check(None, (Derived(),))  # no class
    Base.extra = 1
    assert made.explain(None, (Derived,)) == (
        0, "type_attrs", "attribute 'extra' of class Derived: expected ABSENT, found 1",
    )  # fmt: skip
    del Base.extra
    assert made.check(None, (Derived,))
    Derived.__eq__ = lambda a, b: True
    assert made.check(None, (Base,)) and not made.check(None, (Derived,))


def test_class_attributes_after_very_many_changes_of_the_class():
    class Changing:
        pass

    made = tree((-1, "local", 0, [("class_attrs", (("x", _core.ABSENT),))]))
    thing = Changing()
    for i in range(2000):
        Changing.y = i
        assert made.check(None, (thing,))
        Changing.x = i
        assert not made.check(None, (thing,))
        del Changing.x


@pytest.mark.parametrize(
    ("value", "truth"),
    [(0, False), (2, True), (-(10**30), True), (0.0, False), (-0.0, False), (float("nan"), True), (0j, False),
     (1j, True), (None, False), ("", False), ("a", True), ([], False), ([0], True), ({}, False)],
)  # fmt: skip
def test_truth(value, truth):
    assert check("truth", truth, value) is None
    assert check("truth", not truth, value)[1] == "truth"


def test_truth_of_other_objects_is_not_known():
    assert check("truth", True, Plain()) is not None
    assert check("truth", False, Plain()) is not None


def test_identity_relations():
    first, second = [1], [1]
    same = tree((-1, "local", 0, []), (-1, "local", 1, [("same_as", 0)]))
    other = tree((-1, "local", 0, []), (-1, "local", 1, [("not_same_as", 0)]))
    assert same.check(None, (first, first)) and not same.check(None, (first, second))
    assert other.check(None, (first, second)) and not other.check(None, (first, first))
    assert same.explain(None, (first, second)) == (1, "same_as", "expected the same object as node 0")
    assert other.explain(None, (first, first)) == (1, "not_same_as", "expected another object than node 0")


def arguments(count, payload):
    """A tree over so many arguments with one `distinct` check on the last."""
    return tree(*[(-1, "local", i, []) for i in range(count - 1)], (-1, "local", count - 1, [("distinct", payload)]))


def test_distinct():
    a, b, c = [1], [1], [1]
    three = arguments(3, (((0,), (1,), (2,)), ()))
    assert three.check(None, (a, b, c))
    assert not any(three.check(None, args) for args in [(a, a, b), (a, b, a), (b, a, a)])
    assert three.explain(None, (a, b, a)) == (2, "distinct", "nodes 0 and 2: expected different objects")
    none_of = arguments(3, (((2,),), (0, 1)))
    assert none_of.check(None, (a, a, b)) and not none_of.check(None, (a, b, b))
    grouped = arguments(4, (((0, 1), (2,)), (3,)))
    assert grouped.check(None, (a, a, b, c)) and not grouped.check(None, (a, b, b, c))
    assert not grouped.check(None, (a, b, c, a)) and arguments(2, ((), (0, 1))).check(None, (a, a))


@given(st.data())
def test_distinct_is_what_its_words_say(data):
    objects = [Plain() for _ in range(data.draw(st.integers(1, 6)))]
    args = data.draw(st.lists(st.sampled_from(objects), min_size=1, max_size=40))
    group = data.draw(st.lists(st.integers(-1, 5), min_size=len(args), max_size=len(args)))
    members = {g: tuple(i for i, other in enumerate(group) if other == g) for g in group}
    groups = tuple(numbers for g, numbers in sorted(members.items()) if g >= 0)
    meets = any(
        args[i] is args[j] and group[i] != group[j] for i in range(len(args)) for j in range(i)
    )
    assert arguments(len(args), (groups, members.get(-1, ()))).check(None, tuple(args)) == (not meets)


def test_ranges():
    assert check("range", (2, 5), 2) is None and check("range", (2, 5), 5) is None
    assert check("range", (2, 5), 6)[2] == "range: expected an int from 2 to 5, found 6"
    assert check("range", (2, None), 10**40) is None
    assert check("range", (2, None), 1)[2] == "range: expected an int from 2 up, found 1"
    assert check("range", (2, 5), 10**40) is not None and check("range", (2, 5), -(10**40)) is not None
    assert check("range", (0, 5), True) is not None and check("range", (0, 5), 1.0) is not None
    assert check("range", (-1, -1), -1) is None


# ---- the tree ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "captures", "error"),
    [
        ([(-1, "nonsense", 0, [])], [], "unknown guard access 'nonsense'"),
        ([(-1, "local", 0, [("nonsense", 0)])], [], "unknown guard check 'nonsense'"),
        ([(-1, "local", 0, [("int_program", 0)])], [], "expected \\(inputs, code, texts\\)"),
        ([(0, "local", 0, [])], [], "bad parent 0"),
        ([(-1, "type", None, [])], [], "bad parent -1"),
        ([(-1, "local", 0, []), (1, "type", None, [])], [], "bad parent 1"),
        ([(-1, "local", -1, [])], [], "an index from 0 up"),
        ([(-1, "local", "0", [])], [], "local takes an index"),
        ([(-1, "local", 0, [])], [1], "captures takes indices of nodes"),
        ([(-1, "local", 0, [("type", 5)])], [], "type takes a class"),
        ([(-1, "local", 0, [("same_as", 0)])], [], "earlier node"),
        ([(-1, "local", 0, [("distinct", (0,))])], [], "groups, others"),
        ([(-1, "local", 0, [("distinct", (((0,), (1,)), ()))])], [], "groups, others"),
        ([(-1, "local", 0, [("distinct", (((0,),), 0))])], [], "groups, others"),
        ([(-1, "local", 0, [("truth", 1)])], [], "truth takes a bool"),
        ([(-1, "local", 0, [("class_attrs", (("x",),))])], [], "class_attrs takes"),
        ([(-1, "local", 0, [("tensor", ())])], [], "TensorSpec|without torch"),
        ([(-1, "local", 0, []), (0, "call", lambda v: v, [])], [], "a function written in C"),
        ([(-1, "weak", 5, [])], [], "weak reference"),
        ([5], [], "tuple"),
    ],
)
def test_mistakes_are_told_when_the_tree_is_built(nodes, captures, error):
    with pytest.raises((TypeError, ValueError, IndexError, RuntimeError), match=error):
        _core.GuardTree(nodes, captures, None)


def test_reading_a_slot_that_is_not_there_is_an_error():
    with pytest.raises(IndexError, match="argument slot 1 of 1"):
        tree((-1, "local", 1, [])).check(None, (1,))


def test_the_first_failure_ends_the_match():
    made = tree(
        (-1, "local", 0, [("type", list)]),
        (0, "list_item", 0, [("type", int), ("equals", 1)]),
        (0, "list_item", 1, []),
    )
    assert made.explain(None, ([1, 2],)) is None
    assert made.explain(None, ([2, 2],)) == (1, "equals", "value: expected 1, found 2")
    assert made.explain(None, ([1],)) == (2, "list_item", "list_item 1: not there")
    assert made.explain(None, (5,))[:2] == (0, "type")
    with pytest.raises(ValueError, match="do not hold"):
        made.capture(None, (5,))


def test_explain_survives_objects_without_a_repr():
    class Shy:
        def __repr__(self):
            raise RuntimeError("no")

    assert check("equals", 1, Shy())[2].endswith("found <Shy object>")
    assert len(check("equals", 1, "x" * 10_000)[2]) < 300


def test_many_nodes_and_captures():
    count = 500
    made = tree(*[(-1, "local", i, [("equals", i)]) for i in range(count)], captures=range(count))
    args = tuple(range(count))
    assert made.capture(None, args) == args
    assert made.explain(None, (*args[:-1], 0))[0] == count - 1


def test_a_tree_in_a_cycle_is_collected():
    class Holder:
        pass

    holder = Holder()
    holder.tree = tree((-1, "const", [holder], []))
    ref = weakref.ref(holder)
    del holder
    gc.collect()
    assert ref() is None


def test_values_are_held_while_a_function_makes_objects():
    thing = Slotted()
    thing.x = object()
    made = tree((-1, "local", 0, []), (0, "slot_attr", "x", []), (0, "call", id, []), captures=[0, 1, 2])
    before = sys.getrefcount(thing)
    for _ in range(1000):
        assert made.capture(None, (thing,))[1] is thing.x
    assert sys.getrefcount(thing) == before


def test_an_item_that_may_be_missing():
    assert check("item_if_any", ("mark", "0 dynamic"), {}) is None
    assert check("item_if_any", ("mark", "0 dynamic"), {"other": 1}) is None
    assert check("item_if_any", ("mark", "0 dynamic"), {"mark": "0 dynamic"}) is None
    failed = check("item_if_any", ("mark", "0 dynamic"), {"mark": "1 static"})
    assert failed == (0, "item_if_any", "key 'mark': expected absent or '0 dynamic', found another value")
    assert check("item_if_any", ("mark", "0 dynamic"), []) is not None
    for wrong in ("mark", ("mark",)):
        with pytest.raises((TypeError, ValueError), match="item_if_any"):
            tree((-1, "local", 0, [("item_if_any", wrong)]))
