"""`threading.local` objects and context variables in compiled code: what each thread and each context has, as in eager."""

import contextvars
import threading

import pytest
import torch

import dyncomp
from tests.support import assert_same, outcome

X = torch.arange(8.0)


def alike(make, graphs, breaks=0, calls=4, look=lambda obj: vars(obj)):
    """`make() -> (function, object to look at)`"""
    runs = []
    before = dyncomp.stats()
    for compiled in (False, True):
        function, obj = make()
        run = []
        function = dyncomp.optimize(function) if compiled else function
        for _ in range(calls):
            result, error = outcome(function, (X,))
            run.append((result, None if error is None else type(error).__name__, dict(look(obj))))
        runs.append(run)
    assert_same(runs[1], runs[0])
    after = dyncomp.stats()
    assert (after.graphs - before.graphs, after.graph_breaks - before.graph_breaks) == (graphs, breaks), after.break_reasons


class Stack(threading.local):
    limit = 5

    def __init__(self, first=2.0):
        self.items = [first]
        self.depth = 0

    @property
    def top(self):
        return self.items[-1]

    def push(self, item):
        self.items.append(item)
        self.depth += 1


def read_and_written():
    state = threading.local()
    state.scale = 2.0

    def run(x):
        y = x * state.scale
        state.scale, state.last = 3.0, y
        return y + state.last

    return run, state


def made_on_demand():
    state = threading.local()

    def run(x):
        if not hasattr(state, "calls"):
            state.calls = 0
        state.calls += 1
        state.before = x
        del state.before
        return x * 2, getattr(state, "other", 3), "calls" in vars(state)

    return run, state


def subclass():
    state = Stack()

    def run(x):
        state.push(x * 2)
        y = state.items.pop() + state.limit
        state.depth -= 1
        return y * state.top

    return run, state


def not_there():
    state = threading.local()

    def run(x):
        try:
            return x * state.missing
        except AttributeError as error:
            return x + 1, str(error)

    return run, state


@pytest.mark.parametrize(
    "make, graphs", [(read_and_written, 2), (made_on_demand, 2), (subclass, 1), (not_there, 1)], ids=lambda v: getattr(v, "__name__", "")
)
def test_thread_local(make, graphs):
    alike(make, graphs)


def test_each_thread_has_its_own():
    plain, state = threading.local(), Stack(4.0)

    def run(x):
        if hasattr(plain, "scale"):
            x = x * plain.scale
        plain.scale = 3.0
        state.push(1.0)
        return x * state.items[0] + state.depth

    fast = dyncomp.optimize(run)

    def several():
        return [fast(X) for _ in range(3)], state.depth, list(state.items)

    def eager():
        return [run(X) for _ in range(3)], state.depth, list(state.items)

    found = [_in_a_thread(several) for _ in range(3)]
    for one in (several(), *found):
        assert_same(one, _in_a_thread(eager))


def _in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


MODE = contextvars.ContextVar("mode", default=2.0)
BARE = contextvars.ContextVar("bare")


def only_read():
    return lambda x: x * MODE.get() + BARE.get(1.0)


def set_and_reset():
    def run(x):
        token = MODE.set(3.0)
        inner = BARE.set(x)
        try:
            y = x * MODE.get() + BARE.get()
        finally:
            BARE.reset(inner)
            MODE.reset(token)
        return y * MODE.get() + BARE.get(5.0)

    return run


def set_for_good():
    def run(x):
        MODE.set(MODE.get() + 1)
        BARE.set(x * 2)
        return x + BARE.get()

    return run


def token_returned():
    def run(x):
        MODE.set(7.0)
        token = MODE.set(8.0)
        return x * MODE.get(), token.var.name, token

    return run


def nothing_held():
    def run(x):
        try:
            return x * BARE.get()
        except LookupError:
            return x + 1

    return run


def look(result):
    """In the context that ran: what is held, and what a token leads back to."""
    value, *rest = result if isinstance(result, tuple) else (result,)
    if rest:
        MODE.reset(rest.pop())
    return value, rest, MODE.get(), BARE.get(None)


@pytest.mark.parametrize(
    "make, graphs",
    [(only_read, 1), (set_and_reset, 1), (set_for_good, 2), (token_returned, 1), (nothing_held, 1)],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_context_variables(make, graphs):
    before = dyncomp.stats()
    runs = []
    for compiled in (False, True):
        function = dyncomp.optimize(make()) if compiled else make()
        context = contextvars.copy_context()
        runs.append([context.run(lambda: look(function(X))) for _ in range(4)])  # noqa: B023
    assert_same(runs[1], runs[0])
    after = dyncomp.stats()
    assert (after.graphs - before.graphs, after.graph_breaks - before.graph_breaks) == (graphs, 0), after.break_reasons


def test_each_context_has_its_own():
    fast = dyncomp.optimize(lambda x: x * MODE.get() + BARE.get(0.0))
    for mode, bare in ((None, None), (3.0, None), (4.0, 1.0), (5.0, 2.0), (None, None), (6.0, None)):
        context = contextvars.copy_context()
        if mode is not None:
            context.run(MODE.set, mode)
        if bare is not None:
            context.run(BARE.set, bare)
        assert_same(context.run(fast, X), X * (mode or 2.0) + (bare or 0.0))


def test_reset_out_of_order_and_across_breaks():
    def crossed(x):
        first = MODE.set(3.0)
        second = MODE.set(4.0)
        MODE.reset(first)
        y = x * MODE.get()
        MODE.reset(second)
        return y * MODE.get()

    def broken(x):
        token = MODE.set(3.0)
        y = x * MODE.get()
        print(end="")
        y = y + MODE.get()
        MODE.reset(token)
        return y * MODE.get()

    for function in (crossed, broken):
        fast = dyncomp.optimize(function)
        for _ in range(3):
            want, held = contextvars.copy_context().run(lambda: (function(X), MODE.get()))  # noqa: B023
            got = contextvars.copy_context().run(lambda: (fast(X), MODE.get()))  # noqa: B023
            assert_same(got, (want, held))
