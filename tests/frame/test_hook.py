"""The frame hook: what it catches, what it leaves alone, and what callers see."""

import asyncio
import copy
import gc
import sys
import traceback
import tracemalloc
import weakref

import pytest

from dyncomp._frame import _core


def add_one(x):
    return x + 1


def call_add_one(x):
    return add_one(x)


def nested(x):
    return call_add_one(x) + call_add_one(x)


def test_hit_and_fallthrough(compiler, owner):
    compiler.rule("add_one", lambda x: x * 100)
    assert call_add_one(3) == 4
    with _core.Region(owner):
        assert _core.hook_installed()
        hit = call_add_one(3)
        fell_through = sorted([3, 1, 2], key=lambda v: -v)
    assert not _core.hook_installed()
    assert (hit, fell_through) == (300, [3, 2, 1])
    assert compiler.misses == ["add_one"]
    assert call_add_one(3) == 4


def test_one_compile_serves_many_calls_and_a_failed_guard_makes_another(compiler, owner):
    compiler.rule("add_one", lambda x: ("compiled", x))
    with _core.Region(owner):
        results = [nested_pair(i) for i in (1, 2, 3.0, 4)]
    assert results == [("compiled", i) for i in (1, 2, 3.0, 4)]
    assert compiler.misses == ["add_one", "add_one"]


def nested_pair(x):
    return call_add_one(x)


def test_entries_belong_to_their_owner(compiler, core):
    first, second = type("First", (), {})(), type("Second", (), {})()
    compiler.rules["add_one"] = lambda func, args: compiler.entry([[]], lambda x: "first")
    with core.Region(first):
        a = call_add_one(1)
    compiler.rules["add_one"] = lambda func, args: compiler.entry([[]], lambda x: "second")
    with core.Region(second):
        b = call_add_one(1)
        with core.Region(first):
            c = call_add_one(1)
        d = call_add_one(1)
    assert [a, b, c, d] == ["first", "second", "first", "second"]
    assert len(compiler.misses) == 2


def test_all_kinds_of_arguments_arrive_in_slot_order(compiler, owner):
    def everything(a, /, b, c=3, *rest, d, e=5, **others):
        return "plain"

    seen = []
    compiler.rules["everything"] = lambda func, args: seen.append(args)
    with _core.Region(owner):
        everything(1, 2, d=4)
        _core.reset()
        everything(1, 2, 3, 9, 8, d=4, e=6, z=7)
    assert seen == [(1, 2, 3, 4, 5, (), {}), (1, 2, 3, 4, 6, (9, 8), {"z": 7})]


def test_none_skips_for_one_owner_only(compiler, core, owner):
    calls = []
    core.set_callback(lambda func, args, owner, cache: calls.append(func.__name__))
    other = type("Other", (), {})()
    with core.Region(owner):
        call_add_one(1), call_add_one(1)
    assert calls == ["call_add_one", "add_one"]
    with core.Region(other):
        call_add_one(1)
    assert calls == ["call_add_one", "add_one"] * 2
    core.reset()
    with core.Region(owner):
        call_add_one(1)
    assert calls == ["call_add_one", "add_one"] * 3


def test_eager_once_asks_again_and_freeze_keeps_entries(compiler, owner):
    answers = iter([_core.EAGER_ONCE, compiler.entry([[("equals", 1)]], lambda x: "one"), _core.FREEZE])
    compiler.rules["add_one"] = lambda func, args: next(answers)
    with _core.Region(owner):
        results = [add_one(1), add_one(1), add_one(2), add_one(3), add_one(1)]
    assert results == [2, "one", 3, 4, "one"]
    assert len(compiler.misses) == 3


def test_skipped_code_is_never_asked_about(compiler, owner):
    def never(x):
        return call_add_one(x)

    _core.skip(never.__code__)
    compiler.rule("never", lambda x: "wrong")
    compiler.rule("add_one", lambda x: "inner")
    with _core.Region(owner):
        result = never(1)
    _core.reset()
    with _core.Region(owner):
        again = _core.Dispatcher(never, owner)(1)
    assert (result, again) == ("inner", "inner")
    assert "never" not in compiler.misses
    with pytest.raises(TypeError, match="code object"):
        _core.skip(never)


def test_what_another_compiler_calls_is_left_to_it(compiler, owner):
    compiler.rule("add_one", lambda x: "compiled")

    def theirs(x):
        return call_add_one(x)

    direct = _core.Dispatcher(add_one, owner)
    _core.skip(theirs.__code__, calls_too=True)
    with _core.Region(owner):
        assert theirs(1) == 2 and call_add_one(1) == "compiled" and theirs(1) == 2
        compiler.rules["marked_late"] = lambda func, args: _core.skip(func.__code__, calls_too=True)
        assert marked_late(1) == 2 and marked_late(1) == 2
    assert direct(1) == "compiled"


def marked_late(x):
    return call_add_one(x)


def test_process_wide_switch(compiler, owner):
    compiler.rule("add_one", lambda x: "compiled")
    fast = _core.Dispatcher(add_one, owner)
    with _core.Region(owner):
        assert fast(1) == "compiled"
        assert _core.set_disabled(True) is False
        try:
            plain = fast(1), call_add_one(1)
        finally:
            assert _core.set_disabled(False) is True
        assert plain == (2, 2)
        assert fast(1) == "compiled"


def test_generators_and_coroutines_run_as_they_are(compiler, owner):
    def squares(n):
        for i in range(n):
            yield add_one(i)

    async def coroutine(x):
        return add_one(x)

    async def async_generator(x):
        yield add_one(x)

    async def main():
        return [await coroutine(1)] + [v async for v in async_generator(2)]

    for name in ("squares", "coroutine", "async_generator", "main"):
        compiler.rule(name, lambda *args: "wrong")
    compiler.rule("add_one", lambda x: -x)
    with _core.Region(owner):
        lazily, awaited = list(squares(3)), asyncio.run(main())
    assert lazily == [0, -1, -2] and awaited == [-1, -2]
    assert set(compiler.misses) == {"add_one"}


def test_class_and_module_bodies_run_as_they_are(compiler, owner):
    with _core.Region(owner):
        namespace = {}
        exec("class Made:\n    x = 1\n    y = [i for i in range(3)]", namespace)
    assert namespace["Made"].y == [0, 1, 2]


def test_closures_and_cells(compiler, owner):
    def outer(x):
        def inner(y):
            return x + y

        return inner

    def run(x):
        return "inner of", x

    compiler.rules["inner"] = lambda func, args: _core.Entry(
        _core.GuardTree(
            [(-1, "func", None, []), (0, "cell", 0, []), (1, "cell_contents", None, [("type", int)])],
            [2],
            None,
        ),
        run,
        True,
        "inner",
    )
    with _core.Region(owner):
        results = [outer(7)(1), outer(8)(1), outer(9.0)(1)]
    assert results[:2] == [("inner of", 7), ("inner of", 8)]


def test_region_none_and_nesting(compiler, core, owner):
    compiler.rule("add_one", lambda x: "compiled")
    with core.Region(owner):
        with core.Region(None):
            off = call_add_one(1), core.Dispatcher(add_one, owner)(1)
            with core.Region(owner):
                on = call_add_one(1)
        after = call_add_one(1)
    assert off == (2, 2) and on == after == "compiled"


def test_region_restores_on_exceptions_and_out_of_order(compiler, core, owner):
    with pytest.raises(ZeroDivisionError), core.Region(owner):
        _ = 1 / 0
    assert not core.hook_installed()
    first, second = core.Region(owner), core.Region(None)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert not core.hook_installed()
    with pytest.raises(RuntimeError, match="did not enter"):
        first.__exit__(None, None, None)


def test_callee_frames_of_a_partial_entry_are_candidates(compiler, owner):
    compiler.rule("nested", lambda x: (call_add_one(x), "after the break"), whole=False)
    compiler.rule("add_one", lambda x: "compiled")
    fast = _core.Dispatcher(nested, owner)
    assert fast(1) == ("compiled", "after the break")
    assert compiler.misses == ["nested", "add_one"]
    assert not _core.hook_installed()


def test_callee_frames_of_a_whole_entry_are_not(compiler, owner):
    compiler.rule("nested", lambda x: call_add_one(x), whole=True)
    compiler.rule("add_one", lambda x: "wrong")
    with _core.Region(owner):
        result = nested(1)
    assert result == 2


def test_without_hook(compiler, owner):
    compiler.rule("nested", _core.without_hook(lambda x: call_add_one(x)), whole=False)
    compiler.rule("add_one", lambda x: "wrong")
    assert _core.Dispatcher(nested, owner)(1) == 2
    assert _core.without_hook(add_one)(x=4) == 5
    assert _core.without_hook(lambda x: [x], single=True)(4) == 4
    assert _core.without_hook(add_one).__wrapped__ is add_one
    with pytest.raises(TypeError, match="not callable"):
        _core.without_hook(5)


@pytest.mark.parametrize("items", [(1,), [2], {3: 4}, "5", iter([6]), (), [1, 2], "ab", 7, None, iter(())])
def test_single_gives_what_unpacking_gives(items):
    def outcome(call):
        try:
            return call()
        except (TypeError, ValueError) as error:
            return type(error), str(error)

    def unpack(found):
        (item,) = found
        return item

    same = copy.copy(items)
    assert outcome(lambda: _core.without_hook(lambda: items, single=True)()) == outcome(lambda: unpack(same))


def test_single_passes_an_exception_on():
    def fails():
        raise KeyError("x")

    with pytest.raises(KeyError):
        _core.without_hook(fails, single=True)()


@pytest.mark.parametrize("direct", [False, True])
def test_captures_live_as_long_as_the_call(compiler, owner, direct):
    """What the guards reached may be dropped by the very code that runs: it keeps its arguments."""

    class Held:
        pass

    class Box:
        pass

    box = Box()
    box.held = Held()
    alive = weakref.ref(box.held)

    def run(held):
        del box.held
        return alive() is held

    def read(box):
        return box.held

    guards = _core.GuardTree(
        [(-1, "local", 0, []), (0, "instance_dict", None, []), (1, "dict_item", "held", [])], [2], _core.global_state()
    )
    callable_ = run if direct else _core.without_hook(run)
    previous = _core.set_callback(lambda *args: _core.Entry(guards, callable_, True, "read"))
    try:
        assert _core.Dispatcher(read, owner)(box) is True
    finally:
        _core.set_callback(previous)
    assert alive() is None


def test_run_that_is_the_function_itself_does_not_loop(compiler, owner):
    compiler.rule("call_add_one", call_add_one, whole=False)
    with _core.Region(owner):
        result = nested(1)
    assert result == 4
    assert compiler.misses == ["call_add_one"]


# ---- the callback --------------------------------------------------------------------------------


def test_hook_is_off_inside_the_callback(compiler, owner):
    inside = []

    def make(func, args):
        inside.append((call_add_one(1), _core.Dispatcher(add_one, owner)(1)))
        return None

    compiler.rules["nested"] = make
    compiler.rule("add_one", lambda x: "compiled")
    with _core.Region(owner):
        nested(1)
    assert inside == [(2, 2)]


def test_exception_of_the_callback_reaches_the_caller(compiler, owner):
    def make(func, args):
        raise KeyError("from the compiler")

    compiler.rules["add_one"] = make
    with _core.Region(owner):
        with pytest.raises(KeyError, match="from the compiler") as caught:
            call_add_one(1)
        assert call_add_one.__name__ in [f.name for f in traceback.extract_tb(caught.tb)]
    assert add_one(1) == 2
    with _core.Region(owner), pytest.raises(KeyError):
        call_add_one(1)


def test_wrong_answer_of_the_callback(compiler, owner):
    compiler.rules["add_one"] = lambda func, args: "nonsense"
    with _core.Region(owner), pytest.raises(TypeError, match="not an Entry or None"):
        call_add_one(1)


def test_an_entry_that_does_not_fit_its_own_call_is_reported(compiler, owner):
    compiler.rules["add_one"] = lambda func, args: compiler.entry([[("equals", "never")]], lambda x: "wrong")
    with _core.Region(owner):
        results = [call_add_one(1), call_add_one(2)]
    assert results == [2, 3]
    ((kind, detail),) = compiler.reports
    assert kind == "guards-fail-after-compile" and "expected 'never', found 1" in detail
    assert compiler.misses == ["add_one"]


def test_a_report_that_raises_reaches_the_caller(compiler, owner):
    def strict(kind, detail):
        raise AssertionError(kind)

    _core.set_report(strict)
    compiler.rules["add_one"] = lambda func, args: compiler.entry([[("equals", "never")]], lambda x: "wrong")
    with _core.Region(owner), pytest.raises(AssertionError, match="guards-fail"):
        call_add_one(1)


# ---- exceptions ----------------------------------------------------------------------------------


def raises_later(x):
    return x.missing


def builtin_that_raises(x):
    return int("not a number")


RAISERS = {"python": lambda x: 1 / 0, "builtin": _core.without_hook(builtin_that_raises)}


@pytest.mark.parametrize("kind", RAISERS)
@pytest.mark.parametrize("direct", [False, True])
def test_traceback_shows_the_users_function(compiler, owner, kind, direct):
    compiler.rule("add_one", RAISERS[kind])
    fast = _core.Dispatcher(add_one, owner) if direct else add_one
    with _core.Region(owner), pytest.raises((ZeroDivisionError, ValueError)) as caught:
        fast(1)
    frames = traceback.extract_tb(caught.tb)
    ours = [f for f in frames if f.name == "add_one"]
    if kind == "builtin":
        assert [(f.filename, f.lineno) for f in ours] == [(__file__, add_one.__code__.co_firstlineno)]
    else:
        assert ours == []  # run's own frame shows this file


def growth(action, count):
    """Bytes and objects that `count` runs leave behind."""
    for _ in range(200):
        action()
    gc.collect()
    tracemalloc.start()
    before, objects = tracemalloc.get_traced_memory()[0], len(gc.get_objects())
    for _ in range(count):
        action()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before, len(gc.get_objects()) - objects


@pytest.mark.parametrize("kind", RAISERS)
@pytest.mark.parametrize("direct", [False, True])
def test_ten_thousand_exceptions_leak_nothing(compiler, owner, kind, direct):
    compiler.rule("add_one", RAISERS[kind])
    function = _core.Dispatcher(add_one, owner) if direct else add_one
    payload = ["argument"]
    before = sys.getrefcount(payload)

    def action():
        try:
            function(payload)
        except (ZeroDivisionError, ValueError):
            pass

    with _core.Region(owner):
        leaked, objects = growth(action, 10_000)
    assert leaked < 20_000 and objects < 50
    assert sys.getrefcount(payload) == before


def test_hits_leak_nothing(compiler, owner):
    compiler.rule("add_one", lambda x: x)
    payload = ["argument"]
    before = sys.getrefcount(payload)
    with _core.Region(owner):
        leaked, objects = growth(lambda: add_one(payload), 10_000)
    assert leaked < 20_000 and objects < 50
    assert sys.getrefcount(payload) == before


# ---- recursion -----------------------------------------------------------------------------------


def depth(n):
    return n if n == 0 else depth(n - 1) + 1


def forever(n):
    return forever(n + 1)


def test_recursion_is_as_deep_as_in_plain_python(compiler, owner):
    deep = sys.getrecursionlimit() - 200
    plain = depth(deep)
    with _core.Region(owner):
        hooked = depth(deep)
        with pytest.raises(RecursionError):
            forever(0)
    assert plain == hooked == deep


@pytest.mark.parametrize("direct", [False, True])
def test_recursion_through_compiled_frames(compiler, owner, direct):
    compiler.rule("forever", lambda n: forever(n + 1), whole=False)
    call = _core.Dispatcher(forever, owner) if direct else forever
    with _core.Region(owner):
        for _ in range(3):
            with pytest.raises(RecursionError):
                call(0)


def test_a_high_recursion_limit_does_not_crash(compiler, owner):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    try:
        with _core.Region(owner), pytest.raises(RecursionError):
            forever(0)
    finally:
        sys.setrecursionlimit(limit)


# ---- tracing -------------------------------------------------------------------------------------


def test_settrace_midway_sees_the_users_lines(compiler, owner):
    compiler.rule("add_one", lambda x: "compiled")
    lines = []

    def trace(frame, event, arg):
        lines.append((frame.f_code.co_name, event))
        return trace

    before = sys.gettrace()
    with _core.Region(owner):
        first = call_add_one(1)
        sys.settrace(trace)
        try:
            second = call_add_one(1)
        finally:
            sys.settrace(before)
        third = call_add_one(1)
    assert second == 2
    assert ("add_one", "line") in lines
    if before is None:
        assert first == third == "compiled"


def test_setprofile_midway(compiler, owner):
    compiler.rule("add_one", lambda x: "compiled")
    calls = []
    with _core.Region(owner):
        sys.setprofile(lambda frame, event, arg: calls.append((frame.f_code.co_name, event)))
        try:
            result = call_add_one(1)
        finally:
            sys.setprofile(None)
        after = call_add_one(1)
    assert (result, after) == (2, "compiled")
    assert ("add_one", "call") in calls


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
@pytest.mark.parametrize("local", [False, True])
def test_monitoring_tools_see_the_users_code(compiler, owner, local):
    compiler.rule("add_one", lambda x: "compiled")
    monitoring, seen = sys.monitoring, []
    monitoring.use_tool_id(4, "test")
    monitoring.register_callback(4, monitoring.events.PY_START, lambda code, offset: seen.append(code.co_name))
    try:
        with _core.Region(owner):
            if local:
                monitoring.set_local_events(4, add_one.__code__, monitoring.events.PY_START)
            else:
                monitoring.set_events(4, monitoring.events.PY_START)
            result = call_add_one(1)
            monitoring.set_local_events(4, add_one.__code__, 0)
            monitoring.set_events(4, 0)
            after = call_add_one(1)
    finally:
        monitoring.free_tool_id(4)
    assert (result, after) == (2, "compiled")
    assert "add_one" in seen


# ---- owners --------------------------------------------------------------------------------------


def test_entries_die_with_their_owner(compiler, core):
    owner = type("Mortal", (), {})()
    run = weakref.WeakSet()

    def make(func, args):
        compiled = lambda x: "compiled"  # noqa: E731
        run.add(compiled)
        return compiler.entry([[]], compiled)

    compiler.rules["add_one"] = make
    with core.Region(owner):
        call_add_one(1)
    assert len(run) == 1
    del owner
    gc.collect()
    assert len(run) == 0


def test_an_owner_that_allows_no_weak_reference(compiler, core):
    compiler.rule("add_one", lambda x: "compiled")
    for owner in ("text", (1, 2)):
        with core.Region(owner):
            assert call_add_one(1) == "compiled"
