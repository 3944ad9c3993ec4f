"""The direct callable: looks like the function, calls compiled code, follows changes of the function."""

import copy
import functools
import gc
import inspect
import sys
import traceback
import weakref

import pytest

from dyncomp._frame import _core


def documented(a: int, b=2, *, c=3):
    """The text."""
    return "plain", a, b, c


documented.tag = ["mark"]


def inner(x):
    return x + 1


def calls_inner(x):
    return inner(x)


@pytest.fixture
def fast(compiler, owner):
    compiler.rule("documented", lambda *slots: ("compiled", *slots), guard=lambda arg: [])
    return _core.Dispatcher(documented, owner)


def test_looks_like_the_function(fast):
    assert fast.__wrapped__ is documented
    assert (fast.__name__, fast.__qualname__, fast.__module__) == ("documented", "documented", __name__)
    assert fast.__doc__ == "The text." and fast.tag is documented.tag
    assert fast.__annotations__ == {"a": int}
    assert fast.__code__ is documented.__code__ and fast.__defaults__ == (2,)
    assert inspect.signature(fast) == inspect.signature(documented)
    assert repr(fast).startswith("<compiled <function documented")
    with pytest.raises(AttributeError, match="nope"):
        _ = fast.nope
    fast.extra = 1
    assert fast.extra == 1 and not hasattr(documented, "extra")
    assert functools.wraps(fast)(lambda: None).__name__ == "documented"
    assert callable(fast) and not inspect.isclass(fast)


def test_owner_and_cache_are_visible(fast, owner):
    assert fast.owner is owner
    assert fast.cache.entries() == [] and fast.cache.misses == 0
    fast(1)
    (entry,) = fast.cache.entries()
    assert len(fast.cache) == 1 and fast.cache.misses == 1
    assert (entry.hits, entry.whole, entry.name, entry.info) == (1, True, "documented", None)
    fast(1)
    assert entry.hits == 2


def test_all_ways_to_pass_arguments(fast):
    assert fast(1) == ("compiled", 1, 2, 3)
    assert fast(1, 5) == ("compiled", 1, 5, 3)
    assert fast(b=5, a=1, c=6) == ("compiled", 1, 5, 6)
    assert fast(*(1,), **{"c": 9}) == ("compiled", 1, 2, 9)


@pytest.mark.parametrize(
    "args", [((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"zzz": 1}), ((), {"b": 1})]
)
def test_wrong_calls_raise_as_python_does(fast, args):
    with pytest.raises(TypeError) as ours:
        fast(*args[0], **args[1])
    with pytest.raises(TypeError) as theirs:
        documented(*args[0], **args[1])
    assert str(ours.value) == str(theirs.value)


def test_defaults_are_read_at_every_call(compiler, owner):
    def changing(a=1, *, b=2):
        return None

    compiler.rule("changing", lambda a, b: (a, b), guard=lambda arg: [])
    fast = _core.Dispatcher(changing, owner)
    assert fast() == (1, 2)
    changing.__defaults__ = (10,)
    changing.__kwdefaults__ = {"b": 20}
    assert fast() == (10, 20)
    changing.__defaults__ = None
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        fast()


def test_new_code_on_the_function_is_followed(compiler, owner):
    def changing(a):
        return "old plain"

    compiler.rule("changing", lambda a: "old compiled")
    fast = _core.Dispatcher(changing, owner)
    assert fast(1) == "old compiled"
    compiler.rules.clear()
    changing.__code__ = (lambda a, b: ("new plain", a, b)).__code__
    assert fast(1, 2) == ("new plain", 1, 2)
    with pytest.raises(TypeError):
        fast(1)


def test_methods(compiler, owner):
    class Thing:
        @functools.partial(_core.Dispatcher, owner=owner)
        def method(self, x):
            return "plain"

        @functools.partial(_core.Dispatcher, owner=owner)
        def __call__(self, x):
            return "plain"

    compiler.rule("method", lambda self, x: ("method", self, x))
    compiler.rule("__call__", lambda self, x: ("call", self, x))
    thing = Thing()
    assert thing.method(1) == Thing.method(thing, 1) == ("method", thing, 1)
    assert thing(2) == ("call", thing, 2)
    bound = thing.method
    assert inspect.ismethod(bound) and bound.__self__ is thing and bound(3) == ("method", thing, 3)
    assert isinstance(Thing.method, _core.Dispatcher)


def test_plain_runs_let_callees_be_compiled(compiler, owner):
    compiler.rule("inner", lambda x: "compiled")
    assert _core.Dispatcher(calls_inner, owner)(1) == "compiled"
    assert _core.Dispatcher(calls_inner, owner, region=False)(1) == 2
    assert not _core.hook_installed()


def test_two_dispatchers_keep_their_entries_apart_unless_they_share_a_cache(compiler, owner):
    compiler.rule("inner", lambda x: "compiled")
    first, second = _core.Dispatcher(inner, owner), _core.Dispatcher(inner, owner)
    shared = _core.Dispatcher(inner, owner, first.cache)
    first(1), second(1), shared(1)
    assert compiler.misses == ["inner", "inner"]
    assert shared.cache is first.cache and second.cache is not first.cache


def test_swapping_what_an_entry_runs(compiler, owner):
    compiler.rule("inner", lambda x: "first tier")
    fast = _core.Dispatcher(inner, owner)
    assert fast(1) == "first tier"
    (entry,) = fast.cache.entries()
    entry.set_run(lambda x: "second tier")
    assert fast(1) == "second tier"
    with pytest.raises(TypeError, match="callable"):
        entry.set_run(5)

    def replaces_itself(x):
        entry.set_run(lambda x: "after")
        gc.collect()
        return "during", x

    entry.set_run(replaces_itself)
    del replaces_itself
    assert fast(7) == ("during", 7) and fast(7) == "after"


def test_an_entry_survives_a_reset_from_inside(compiler, owner):
    def run(x):
        _core.reset()
        gc.collect()
        return "finished", x

    compiler.rule("inner", run)
    fast = _core.Dispatcher(inner, owner)
    del compiler.rules["inner"], run
    compiler.rule("inner", lambda x: "new")
    compiler.rules["inner"](inner, (1,))
    assert fast(1) == "new"


def test_generator_functions_stay_generators(compiler, owner):
    def numbers(n):
        yield from range(n)

    compiler.rule("numbers", lambda n: "wrong")
    assert list(_core.Dispatcher(numbers, owner)(3)) == [0, 1, 2]
    assert compiler.misses == []


def test_captures_are_not_limited_to_arguments(compiler, owner):
    class Config:
        pass

    config = Config()
    config.scale = 3

    def scaled(x):
        return x * config.scale

    nodes = [
        (-1, "local", 0, [("type", int)]),
        (-1, "func", None, []),
        (1, "cell", 0, []),
        (2, "cell_contents", None, [("type", Config)]),
        (3, "instance_dict", None, []),
        (4, "dict_item", "scale", [("type", int)]),
    ]
    compiler.rules["scaled"] = lambda func, args: _core.Entry(
        _core.GuardTree(nodes, [5, 0], None), lambda scale, x: ("compiled", x * scale), True, "scaled"
    )
    fast = _core.Dispatcher(scaled, owner)
    assert fast(2) == ("compiled", 6)
    config.scale = 5
    assert fast(2) == ("compiled", 10)
    assert compiler.misses == ["scaled"]


@pytest.mark.parametrize("args", [(5, "owner"), (inner, "owner", 5), (inner,), (len, "owner")])
def test_wrong_arguments(args):
    with pytest.raises(TypeError):
        _core.Dispatcher(*args)


def test_freed_with_all_it_holds(compiler):
    class Owner:
        pass

    def local(x):
        return x

    compiler.rule("local", lambda x: x)
    owner = Owner()
    fast = _core.Dispatcher(local, owner)
    fast(1)
    local.self_reference = fast
    fast.__dict__["more"] = fast
    watched = [weakref.ref(fast), weakref.ref(local), weakref.ref(owner), weakref.ref(fast.cache)]
    compiler.rules.clear()
    del fast, local, owner
    gc.collect()
    assert [ref() for ref in watched] == [None] * 4


def test_copies_are_the_same_object_only_by_choice(fast):
    assert copy.copy([fast])[0] is fast


def parts(seen, last):
    """Two parts of a broken frame: each is called by who began the frame, and returns the next."""

    def second():
        seen.append(sys._getframe(1).f_code.co_name)
        return last()

    def first(following=second):
        seen.append(sys._getframe(1).f_code.co_name)
        return following

    for part in (first, second):
        _core.own(part.__code__, resumes=True)
    return first


def test_the_parts_of_a_broken_frame_stand_on_its_caller(compiler, owner):
    seen = []
    first = parts(seen, lambda: "end")
    compiler.rule("documented", lambda *slots: first, whole=False, guard=lambda arg: [])
    assert _core.Dispatcher(documented, owner)(1) == "end"
    assert seen == ["test_the_parts_of_a_broken_frame_stand_on_its_caller"] * 2
    assert first.__defaults__ is None  # its frame held them


def test_a_part_that_raises_is_all_that_a_traceback_shows(compiler, owner):
    first = parts([], lambda: 1 // 0)
    compiler.rule("documented", lambda *slots: first, whole=False, guard=lambda arg: [])
    with pytest.raises(ZeroDivisionError) as caught:
        _core.Dispatcher(documented, owner)(1)
    names = [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert names[1:] == ["second", "<lambda>"]


def test_a_function_that_a_whole_frame_returns_is_its_result(compiler, owner):
    first = parts([], lambda: "end")
    compiler.rule("documented", lambda *slots: first, guard=lambda arg: [])
    assert _core.Dispatcher(documented, owner)(1) is first
