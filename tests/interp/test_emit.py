"""Generated code of `run`: objects are rebuilt once, shared where the values are, cycles included."""

from __future__ import annotations

import dataclasses
import marshal
import types

import pytest

from dyncomp.guards.source import Local
from dyncomp.interp.emit import RunBuilder, is_plain
from dyncomp.values.base import Unreconstructible, Value


class Made(Value):
    """A value rebuilt by the code that `emit` writes."""

    def __init__(self, emit):
        super().__init__()
        self.emit = emit

    def reconstruct(self, builder):
        self.emit(self, builder)


class Given(Value):
    """A captured argument."""


def constant(obj):
    return Made(lambda value, b: b.load_const(obj))


def node(name):
    return Made(lambda value, b: b.load_node(name))


def tuple_of(items):
    def emit(value, builder):
        for item in items:
            builder.load(item)
        builder.build_tuple(len(items))

    return Made(emit)


def list_of(items):
    def emit(value, builder):
        builder.build_list(0)
        builder.remember(value)
        for item in items:
            builder.load(item)
            builder.list_append()

    return Made(emit)


def dict_of(items):
    def emit(value, builder):
        builder.build_map(0)
        builder.remember(value)
        for key, item in items:
            builder.load(key)
            builder.load(item)
            builder.store_item()

    return Made(emit)


def user(a, b):
    return a


@pytest.fixture
def builder():
    return RunBuilder(user.__code__, globals(), [Local(0, "a"), Local(1, "b")])


def graph(a, b):
    return (a + b, a - b)


def test_direct_outputs(builder):
    builder.load(tuple_of([node("n0"), node("n1")]))
    run_code = builder.finish(calls_graph=True)
    assert (run_code.direct, run_code.outputs) == ("tuple", ["n0", "n1"])
    assert run_code.make(graph) is graph


def test_single_output(builder):
    builder.load(node("n0"))
    run_code = builder.finish(calls_graph=True)
    assert run_code.direct == "single"
    first = lambda a, b: graph(a, b)[0]  # noqa: E731
    assert run_code.make(graph, single=first) is first
    assert run_code.make(lambda a, b: (a * b,))(5, 3) == 15


@pytest.mark.parametrize("build", [
    lambda: tuple_of([node("n1"), node("n0"), node("n1")]),
    lambda: tuple_of([node("n0"), Given(Local(0, "a"))]),
    lambda: list_of([node("n0"), node("n1")]),
])  # fmt: skip
def test_not_direct(builder, build):
    builder.load(build())
    run_code = builder.finish(calls_graph=True)
    names = [str(n) for n in run_code.outputs]
    values = {"n0": 8, "n1": 2}
    run = run_code.make(lambda a, b: [values[name] for name in names])
    assert not run_code.direct
    assert run(5, 3) in ((2, 8, 2), (8, 5), [8, 2])


def test_no_graph(builder):
    builder.load(Given(Local(1, "b")))
    assert builder.finish(calls_graph=False).make(None)(1, 2) == 2


def test_shared_objects_stay_shared(builder):
    inner = list_of([constant(1)])
    builder.load(tuple_of([inner, inner, dict_of([(constant("k"), inner)])]))
    a, b, c = builder.finish(calls_graph=False).make(None)(0, 0)
    assert a is b is c["k"] and a == [1]


def test_each_call_builds_anew(builder):
    builder.load(list_of([]))
    run = builder.finish(calls_graph=False).make(None)
    assert run(0, 0) is not run(0, 0)


def test_cycle_through_list(builder):
    items = []
    value = list_of(items)
    items += [constant(1), value]
    builder.load(value)
    out = builder.finish(calls_graph=False).make(None)(0, 0)
    assert out[1] is out and len(out) == 2


def test_cycle_through_tuple(builder):
    inside, around = [], []
    numbers, pair = list_of(inside), tuple_of(around)
    shared = list_of([constant("s")])
    around += [shared, numbers, shared]
    inside += [constant(0), shared, pair, dict_of([(constant("pair"), pair)])]
    builder.load(pair)
    out = builder.finish(calls_graph=False).make(None)(0, 0)
    first, numbers_out, last = out
    assert first is last is numbers_out[1] and first == ["s"]
    assert numbers_out[2] is out and numbers_out[3]["pair"] is out and len(numbers_out) == 4


def test_tuple_of_itself_is_refused(builder):
    items = []
    value = tuple_of(items)
    items.append(value)
    with pytest.raises(Unreconstructible):
        builder.load(value)


def test_constants_of_any_type(builder):
    unhashable = {"a": [1]}
    builder.load(tuple_of([constant(unhashable), constant((1, "x")), constant(-0.0), constant(unhashable)]))
    run_code = builder.finish(calls_graph=False)
    out = run_code.make(None)(0, 0)
    assert out[0] is unhashable is out[3] and out[1] == (1, "x") and str(out[2]) == "-0.0"
    assert marshal.loads(marshal.dumps(run_code.code)) == run_code.code
    hash(run_code.code)


def test_plain_constants():
    assert is_plain((1, "a", (None, b"x"), frozenset({1.5})))
    assert not is_plain((1, [])) and not is_plain(type("Str", (str,), {})("x"))


def test_captures_in_order(builder):
    builder.load(tuple_of([Given(Local(2, "c")), Given(Local(0, "a")), Given(Local(2, "c"))]))
    run_code = builder.finish(calls_graph=False)
    assert run_code.captures == [Local(0, "a"), Local(1, "b"), Local(2, "c")]
    assert run_code.make(None)(1, 2, 3) == (3, 1, 3)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0

    def __setattr__(self, name, value):
        raise AssertionError("the class's own __setattr__ is not called")


def test_attributes_and_calls(builder):
    def emit(value, b):
        b.load_const(Point.__new__)
        b.load_const(Point)
        b.call(1)
        b.remember(value)
        b.load(constant(7))
        b.store_attr("x")
        b.load_const(dict)
        b.load(constant(1))
        b.load(constant(2))
        b.call(2, ("one", "two"))
        b.store_attr("y")

    builder.load(Made(emit))
    out = builder.finish(calls_graph=False).make(None)(0, 0)
    assert (out.x, out.y) == (7, {"one": 1, "two": 2})


@pytest.mark.parametrize("count", range(4))
@pytest.mark.parametrize("keywords", [(), ("k",), ("k", "m")])
def test_calls_of_every_shape(builder, count, keywords):
    def called(*args, **kwargs):
        return args, kwargs

    builder.load_const(called)
    for i in range(count + len(keywords)):
        builder.load_const(i)
    builder.call(count + len(keywords), keywords)
    expected = tuple(range(count)), {name: count + i for i, name in enumerate(keywords)}
    run = builder.finish(calls_graph=False).make(None)
    for _ in range(100):  # until specialised
        assert run(0, 0) == expected


def test_classes_and_bound_methods_are_called(builder):
    builder.load_const(str)
    builder.load_const(5)
    builder.call(1)
    builder.load_attr("join")
    builder.load_const(("a", "b"))
    builder.call(1)
    run = builder.finish(calls_graph=False).make(None)
    for _ in range(100):
        assert run(0, 0) == "a5b"


def test_items(builder):
    store = {"old": 1}
    builder.load_const(store)
    builder.load_const("new")
    builder.load_const(2)
    builder.store_item()
    builder.load_const("old")
    builder.delete_item()
    builder.load_const("new")
    builder.load_item()
    assert builder.finish(calls_graph=False).make(None)(0, 0) == 2
    assert store == {"new": 2}


def test_names_are_the_users(builder):
    builder.load_const(lambda: 1 / 0)
    builder.call(0)
    run = builder.finish(calls_graph=False).make(None)
    assert isinstance(run, types.FunctionType)
    assert (run.__name__, run.__qualname__) == (user.__name__, user.__qualname__)
    with pytest.raises(ZeroDivisionError) as info:
        run(0, 0)
    frame = info.traceback[1]
    assert (str(frame.path), frame.lineno + 1) == (user.__code__.co_filename, user.__code__.co_firstlineno)
