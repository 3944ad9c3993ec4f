"""Compiled functions survive what long-running programs do to them: deep recursion, many exceptions, threads, code that is
freed, torch.compile in the same process, tracers switched on midway."""

import gc
import subprocess
import sys
import threading
import tracemalloc
import weakref

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp.bytecode import canonical, frame_facts
from tests.support import check

# ---- recursion -----------------------------------------------------------------------------------


def down(x, n):
    return x if n == 0 else down(x + 1, n - 1) * 0.5


def forever(x):
    return forever(x + 1)


class Tower(torch.nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        x = x * self.weight
        return x if self.inner is None else self.inner(x)


def test_recursion_deeper_than_inlining_goes(fresh):
    with pytest.warns(RuntimeWarning, match="compiled down .* 8 times"):  # the depth is another number in each call
        check(down, torch.ones(3), 200, graphs=None, breaks=None, dynamic=False)
    check(down, torch.ones(3), 200, graphs=None, breaks=None)


@pytest.mark.parametrize("how", ["optimize", "enable"])
def test_endless_recursion_raises_as_in_plain_python(fresh, how):
    x = torch.zeros(2)
    fast = dyncomp.optimize(forever)
    for _ in range(2):
        with pytest.raises(RecursionError):
            if how == "optimize":
                fast(x)
            else:
                with dyncomp.enable():
                    forever(x)
    with dyncomp.enable():
        torch.testing.assert_close(down(x, 3), torch.full((2,), 0.375))


def test_modules_nested_deeper_than_inlining_goes(fresh):
    tower = Tower()
    for _ in range(80):
        tower = Tower(tower)
    with torch.no_grad():
        check(lambda x: tower(x), torch.rand(3), graphs=None, breaks=None)


# ---- exceptions ----------------------------------------------------------------------------------


def look_up(table, index):
    return F.embedding(index, table).sin()


def refuse(x, limit):
    y = x.sin()
    if limit < 0:
        raise ValueError(f"limit {limit}")
    return y * limit


def growth(action, count):
    """Bytes and objects that `count` runs leave behind."""
    for _ in range(50):
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


@pytest.mark.parametrize(
    ("function", "good", "bad", "error"),
    [
        (look_up, (torch.rand(4, 2), torch.tensor([1, 3])), (torch.rand(4, 2), torch.tensor([1, 9])), IndexError),
        (refuse, (torch.rand(3), 2), (torch.rand(3), -1), ValueError),
    ],
    ids=["from-a-kernel", "from-the-user"],
)
def test_ten_thousand_exceptions_leak_nothing(fresh, function, good, bad, error):
    fast = dyncomp.optimize(function)
    want = function(*good)
    tensor = bad[0]
    before = sys.getrefcount(tensor)

    def action():
        try:
            fast(*bad)
        except error:
            return
        raise AssertionError("no exception")

    leaked, objects = growth(action, 10_000)
    assert leaked < 50_000 and objects < 50
    assert sys.getrefcount(tensor) == before
    torch.testing.assert_close(fast(*good), want)


# ---- threads -------------------------------------------------------------------------------------


def curve(x, power):
    return (x.sin() * x).relu() ** power


@pytest.mark.parametrize("also_reset", [False, True])
def test_four_threads_call_while_a_fifth_recompiles(fresh, also_reset):
    fast = dyncomp.optimize(curve, recompile_limit=100)
    x = torch.rand(64)
    want = {power: curve(x, power) for power in (1, 2)}
    for power in want:
        fast(x, power)
    stop, faults = threading.Event(), []

    def watched(work):
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 - shown by the assertion below
            faults.append(fault)
            stop.set()

    def call():
        calls = 0
        while not stop.is_set() or calls < 100:
            for power, result in want.items():
                torch.testing.assert_close(fast(x, power), result)
            calls += 1

    def recompile():
        for size in range(2, 26):
            y = torch.rand(size)
            torch.testing.assert_close(fast(y, size % 3 + 1), curve(y, size % 3 + 1))
            if also_reset and size % 8 == 0:
                dyncomp.reset()
        stop.set()

    threads = [threading.Thread(target=watched, args=(work,)) for work in [call] * 4 + [recompile]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not faults and not any(thread.is_alive() for thread in threads)


def test_threads_that_meet_at_the_first_call_get_one_answer(fresh):
    fast = dyncomp.optimize(curve)
    x = torch.rand(32)
    gate, results = threading.Barrier(4), []

    def first():
        gate.wait(30)
        results.append(fast(x, 2))

    threads = [threading.Thread(target=first) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == 4
    for result in results:
        torch.testing.assert_close(result, curve(x, 2))


# ---- lifetime ------------------------------------------------------------------------------------

SOURCE = """
def made(x):
    y = x.cos() + {number}
    print_nothing(y)
    return y * 2
"""


def make(number):
    namespace = {"print_nothing": dyncomp.disable(lambda y: None)}
    exec(compile(SOURCE.format(number=number), f"<made {number}>", "exec"), namespace)
    return namespace.pop("made")


@pytest.mark.parametrize("how", ["optimize", "enable"])
def test_code_freed_while_cached(fresh, how):
    x = torch.rand(5)
    gone = []
    for number in range(8):
        function = make(number % 2)  # equal code objects that are not the same object
        want = (x.cos() + number % 2) * 2
        if how == "optimize":
            fast = dyncomp.optimize(function)
            torch.testing.assert_close(fast(x), want)
            del fast
        else:
            with dyncomp.enable():
                torch.testing.assert_close(function(x), want)
        gone.append(weakref.ref(function.__code__))
        del function
    canonical._cached.cache_clear()  # bounded caches that may hold code; nothing else does
    frame_facts._facts_of.cache_clear()
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


def test_freed_by_the_call_that_runs_it(fresh):
    x = torch.rand(5)
    holder = {}

    def suicidal(y):
        y = y.exp()
        forget()
        return y + 1

    @dyncomp.disable
    def forget():
        holder.clear()
        gc.collect()

    for _ in range(3):
        holder["fast"] = dyncomp.optimize(suicidal)
        torch.testing.assert_close(holder["fast"](x), x.exp() + 1)
        assert not holder


def test_reset_by_the_call_that_runs_it(fresh):
    x = torch.rand(5)

    def restless(y):
        y = y.exp()
        dyncomp.disable(dyncomp.reset)()
        return y + 1

    fast = dyncomp.optimize(restless)
    for _ in range(3):
        torch.testing.assert_close(fast(x), x.exp() + 1)


def test_modules_are_freed_with_their_compiled_code(fresh):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    fast = dyncomp.optimize(model)
    with torch.no_grad():
        fast(torch.rand(2, 4))
    alive = weakref.ref(model[0].weight)
    del model, fast
    gc.collect()
    assert alive() is None


# ---- beside torch.compile ------------------------------------------------------------------------

BESIDE = """
import torch, dyncomp

def f(x):
    return torch.softmax(x.sin() * 2, -1)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.linear(x).relu()

ours_early = dyncomp.optimize(f)
net = Net().eval()

def turn(ours, theirs, x):
    with torch.no_grad():
        for fast in (ours, theirs, ours):
            torch.testing.assert_close(fast(x), f(x))
        with dyncomp.enable():
            torch.testing.assert_close(theirs(x), f(x))
            torch.testing.assert_close(f(x), ours(x))

assert torch.equal(ours_early(torch.ones(2, 4)), ours_early(torch.ones(2, 4)))
theirs = torch.compile(f, backend="eager")
turn(ours_early, theirs, torch.rand(2, 4))
ours_late = dyncomp.optimize(f)
turn(ours_late, theirs, torch.rand(3, 4))
turn(ours_early, torch.compile(f, backend="aot_eager"), torch.rand(4, 4))
with torch.no_grad():
    x = torch.rand(2, 4)
    for fast in (dyncomp.optimize(net), torch.compile(net, backend="eager"), dyncomp.optimize(net)):
        torch.testing.assert_close(fast(x), net(x))

@dyncomp.optimize
def with_a_break(x):
    y = x.cos()
    [str(y.shape)].append(print(end=""))
    return f(y) + 1

theirs_outside = torch.compile(lambda x: with_a_break(x * 2) * 3, backend="eager")
x = torch.rand(2, 4)
for _ in range(2):
    torch.testing.assert_close(theirs_outside(x), (f((x * 2).cos()) + 1) * 3)
    with dyncomp.enable():
        torch.testing.assert_close(theirs_outside(x), (f((x * 2).cos()) + 1) * 3)
torch._dynamo.reset()
turn(ours_late, theirs, torch.rand(5, 4))
assert dyncomp.stats().graphs >= 5
"""


@pytest.mark.slow
def test_torch_compile_before_and_after():
    done = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]


# ---- tracers -------------------------------------------------------------------------------------


def traced_program(x):
    y = x.sin()
    y = y + 1
    return y


LINES = range(traced_program.__code__.co_firstlineno + 1, traced_program.__code__.co_firstlineno + 4)


def test_settrace_midway(fresh):
    x = torch.rand(3)
    fast = dyncomp.optimize(traced_program)
    want = traced_program(x)
    lines = []

    def tracer(frame, event, argument):
        if frame.f_code is not traced_program.__code__:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
        return tracer

    before = sys.gettrace()
    for _ in range(2):
        torch.testing.assert_close(fast(x), want)
        with dyncomp.enable():
            torch.testing.assert_close(traced_program(x), want)
            sys.settrace(tracer)
            try:
                torch.testing.assert_close(traced_program(x), want)
                torch.testing.assert_close(fast(x), want)
            finally:
                sys.settrace(before)
            torch.testing.assert_close(traced_program(x), want)
    assert set(LINES) <= set(lines)
    assert dyncomp.stats().recompiles == 0


def test_coverage_midway(fresh, tmp_path):
    coverage = pytest.importorskip("coverage")
    if sys.gettrace() is not None:
        pytest.skip("a tracer is on already")
    x = torch.rand(3)
    fast = dyncomp.optimize(traced_program)
    want = traced_program(x)
    torch.testing.assert_close(fast(x), want)
    measure = coverage.Coverage(data_file=None, include=[__file__])
    measure.start()
    try:
        with dyncomp.enable():
            torch.testing.assert_close(traced_program(x), want)
    finally:
        measure.stop()
    torch.testing.assert_close(fast(x), want)
    assert set(LINES) <= set(measure.get_data().lines(__file__))
