"""Caches: order, limits of life, and many threads."""

import gc
import os
import signal
import threading
import time
import types
import weakref

import pytest

from dyncomp._frame import _core


def target(x):
    return ("plain", x)


def fresh_function(body="return ('plain', x)"):
    namespace = {}
    exec(f"def fresh(x):\n    {body}", namespace)
    return namespace.pop("fresh")


def equal_to(value, run):
    nodes = [(-1, "local", 0, [("equals", value)])]
    return _core.Entry(_core.GuardTree(nodes, [0], None), run, True, str(value))


def test_most_recent_hit_comes_first(compiler, owner):
    compiler.rules["target"] = lambda func, args: equal_to(args[0], lambda x: x)
    fast = _core.Dispatcher(target, owner)
    for x in (1, 2, 3):
        fast(x)

    def order():
        return [entry.name for entry in fast.cache.entries()]

    assert order() == ["3", "2", "1"]
    fast(1)
    assert order() == ["1", "3", "2"]
    fast(1)
    assert order() == ["1", "3", "2"]
    assert fast.cache.misses == 3


def test_changing_a_cache_by_hand(owner):
    cache = _core.Cache()
    entry = equal_to(1, lambda x: "by hand")
    cache.add(entry)
    assert cache.entries() == [entry]
    assert _core.Dispatcher(target, owner, cache)(1) == "by hand"
    cache.remove(entry)
    with pytest.raises(ValueError, match="not in this cache"):
        cache.remove(entry)
    with pytest.raises(TypeError, match="expected an Entry"):
        cache.add(5)
    cache.skipped = True
    cache.clear()
    assert not cache.skipped and len(cache) == 0


@pytest.mark.parametrize("args", [(), (5, len, True), (None, len, True)])
def test_wrong_entries(args):
    with pytest.raises(TypeError):
        _core.Entry(*args)
    with pytest.raises(TypeError, match="callable"):
        _core.Entry(_core.GuardTree([], [], None), 5, True)


def test_entries_die_with_their_code(compiler, owner):
    class Marker:
        pass

    def make(func, args):
        return _core.Entry(_core.GuardTree([], [], None), lambda: "hit", True, "", info.pop())

    info = [Marker()]
    alive = weakref.ref(info[0])
    compiler.rules["fresh"] = make
    function = fresh_function()
    with _core.Region(owner):
        result = function(1)
    assert result == "hit"
    assert alive() is not None
    del function
    gc.collect()
    assert alive() is None


def test_code_freed_while_its_entry_runs(compiler, owner):
    functions = {}

    def run(x):
        functions.clear()
        gc.collect()
        return "finished", x

    compiler.rules["fresh"] = lambda func, args: equal_to(args[0], run)
    with _core.Region(owner):
        for _ in range(20):
            functions["only"] = fresh_function()
            assert functions["only"](1) == ("finished", 1)


def test_many_code_objects_come_and_go(compiler, owner):
    compiler.rules["fresh"] = lambda func, args: equal_to(args[0], lambda x: x)
    with _core.Region(owner):
        for i in range(300):
            function = fresh_function()
            assert function(i) == i
    _core.reset()


def test_reset_drops_caches_of_dispatchers_and_hook(compiler, owner):
    compiler.rules["target"] = lambda func, args: equal_to(args[0], lambda x: "compiled")
    fast = _core.Dispatcher(target, owner)
    fast(1)
    with _core.Region(owner):
        target(1)
    _core.reset()
    assert len(fast.cache) == 0
    fast(1)
    with _core.Region(owner):
        target(1)
    assert compiler.misses == ["target"] * 4


def run_threads(actions):
    """Runs them at once; raises the first error."""
    errors = []

    def guarded(action):
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("direct", [True, False])
def test_a_miss_in_many_threads_is_compiled_once(compiler, owner, direct):
    barrier = threading.Barrier(6)

    def make(func, args):
        time.sleep(0.05)
        return equal_to(args[0], lambda x: ("compiled", x))

    compiler.rules["target"] = make
    fast = _core.Dispatcher(target, owner)
    results = []

    def call():
        barrier.wait()
        if direct:
            results.append(fast(1))
        else:
            with _core.Region(owner):
                results.append(target(1))

    run_threads([call] * 6)
    assert results == [("compiled", 1)] * 6
    assert compiler.misses == ["target"]


def test_waiting_threads_run_plain_when_the_compile_gives_up(compiler, owner):
    barrier = threading.Barrier(4)
    compiler.rules["target"] = lambda func, args: time.sleep(0.05)
    fast = _core.Dispatcher(target, owner)
    results = []

    def call():
        barrier.wait()
        results.append(fast(1))

    run_threads([call] * 4)
    assert results == [("plain", 1)] * 4
    assert compiler.misses == ["target"]


def test_a_failing_compile_does_not_block_the_others(compiler, owner):
    barrier = threading.Barrier(3)
    failures = []

    def make(func, args):
        time.sleep(0.02)
        raise ValueError("no")

    compiler.rules["target"] = make
    fast = _core.Dispatcher(target, owner)

    def call():
        barrier.wait()
        try:
            fast(1)
        except ValueError as error:
            failures.append(error)

    run_threads([call] * 3)
    assert len(failures) == 3


def test_compiles_of_different_functions_run_side_by_side(compiler, owner):
    meet = threading.Barrier(2)

    def make(func, args):
        meet.wait(20)
        return equal_to(args[0], lambda x: x)

    compiler.rules["target"] = compiler.rules["fresh"] = make
    first, second = _core.Dispatcher(target, owner), _core.Dispatcher(fresh_function(), owner)
    run_threads([lambda: first(1), lambda: second(1)])


def test_recursive_call_while_compiling_runs_plain(compiler, owner):
    fast = _core.Dispatcher(target, owner)
    inside = []

    def make(func, args):
        inside.append(fast(2))
        return equal_to(args[0], lambda x: "compiled")

    compiler.rules["target"] = make
    assert fast(1) == "compiled"
    assert inside == [("plain", 2)]


def test_four_threads_call_while_a_fifth_resets_and_swaps(compiler, owner):
    compiler.rules["target"] = lambda func, args: equal_to(args[0], lambda x: ("compiled", x))
    fast = _core.Dispatcher(target, owner)
    stop = time.monotonic() + 1.5

    def call(number):
        while time.monotonic() < stop:
            for _ in range(50):
                assert fast(number) == ("compiled", number)
            with _core.Region(owner):
                assert target(number) == ("compiled", number)

    def disturb():
        while time.monotonic() < stop:
            for entry in fast.cache.entries():
                entry.set_run(lambda x: ("compiled", x))
            _core.reset()
            gc.collect(0)
            time.sleep(0.001)

    run_threads([lambda n=n: call(n) for n in range(4)] + [disturb])


def test_regions_are_of_one_thread(compiler, owner):
    compiler.rules["target"] = lambda func, args: equal_to(args[0], lambda x: "compiled")
    seen = []
    with _core.Region(owner):
        run_threads([lambda: seen.append(target(1))])
        mine = target(1)
    assert seen == [("plain", 1)] and mine == "compiled"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_during_a_compile_does_not_hang_the_child(compiler, owner):
    compiling, go_on = threading.Event(), threading.Event()

    def make(func, args):
        compiling.set()
        go_on.wait(20)
        return equal_to(args[0], lambda x: "compiled")

    compiler.rules["target"] = make
    fast = _core.Dispatcher(target, owner)
    thread = threading.Thread(target=fast, args=(1,))
    thread.start()
    assert compiling.wait(20)
    child = os.fork()
    if child == 0:
        go_on.set()
        os._exit(0 if fast(1) == "compiled" else 1)
    go_on.set()
    thread.join(20)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_signal_reaches_a_waiting_thread(compiler, owner):
    compiling, go_on = threading.Event(), threading.Event()

    def make(func, args):
        compiling.set()
        go_on.wait(20)
        return equal_to(args[0], lambda x: "compiled")

    class Alarm(Exception):
        pass

    def on_alarm(number, frame):
        raise Alarm

    compiler.rules["target"] = make
    fast = _core.Dispatcher(target, owner)
    thread = threading.Thread(target=fast, args=(1,))
    thread.start()
    assert compiling.wait(20)
    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Alarm):
            fast(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        go_on.set()
        thread.join(20)
    assert fast(1) == "compiled"


def test_code_replaced_in_place_of_itself(compiler, owner):
    """A copy of a code object starts with an empty cache."""
    compiler.rules["target"] = lambda func, args: equal_to(args[0], lambda x: "compiled")
    twin = types.FunctionType(target.__code__.replace(), globals())
    with _core.Region(owner):
        target(1)
        twin(1)
    assert compiler.misses == ["target", "target"]
