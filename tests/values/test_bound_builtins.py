"""A bound method on the stack while the graph breaks: known by its object and its name, so that one version serves all calls."""

import collections
import io
import threading

import pytest
import torch

import dyncomp


def add_in_place(x, n):
    y = torch.zeros_like(x)
    return y.add_(x * int(n + 1)), y


def add_with_history(x, n):
    return (x * 2).clone().add_(x * int(n))


def append(x, n):
    items = []
    items.append(x * int(n + 1))
    return items[0] * 2, items


def into_own_list(x, n):
    items = KEPT
    items.append(x * int(n + 1))
    return x + len(items)


def look_up(x, n):
    table = {1: x, 2: x * 3}
    return table.get(int(n + 1), x) + 1


def into_set(x, n):
    seen = set()
    seen.add(int(n))
    return x + len(seen), seen


def into_deque(x, n):
    queue = collections.deque([1, 2], maxlen=2)
    queue.appendleft(int(n))
    return x * queue[0], list(queue)


def into_default(x, n):
    table = collections.defaultdict(list)
    table.setdefault(int(n), []).append(x)
    return table[int(n)][0] * 2


def in_a_loop(x, n):
    y = torch.zeros_like(x)
    for k in range(3):
        y.add_(x * int(n + k), alpha=2)
    return y


KEPT = []


@pytest.mark.parametrize(
    "function",
    [add_in_place, add_with_history, append, into_own_list, look_up, into_set, into_deque, into_default, in_a_loop],
)
def test_one_version_serves_all_calls(fresh, function):
    compiled = dyncomp.optimize(function)
    graphs = []
    for call in range(5):
        x = torch.arange(3.0).requires_grad_(function is add_with_history)
        del KEPT[:]
        expected = function(x, torch.tensor(1)), list(KEPT)
        del KEPT[:]
        found = compiled(x, torch.tensor(1)), list(KEPT)
        assert _plain(found) == _plain(expected), call
        graphs.append(dyncomp.stats().graphs)
    assert graphs[1:] == graphs[1:2] * 4
    assert all("call of" not in record.detail for record in dyncomp.counters.breaks())


def test_given_as_an_argument(fresh):
    def program(x, put):
        put(x * 2)
        return x + 1

    compiled = dyncomp.optimize(program)
    x = torch.ones(2)
    for _ in range(3):
        items, queue, y = [], collections.deque(), torch.zeros(2)
        assert torch.equal(compiled(x, items.append), x + 1)
        assert torch.equal(items[0], x * 2) and len(items) == 1
        compiled(x, queue.append)
        assert torch.equal(queue[0], x * 2) and len(queue) == 1
        compiled(x, y.add_)
        assert torch.equal(y, x * 2)
        compiled(x, y.sub_)
        assert torch.equal(y, x * 0)
    assert dyncomp.stats().graphs == 4


def test_the_method_of_a_base_class_passes_by_an_override(fresh):
    class Doubling(list):
        def append(self, item):
            super().append(item)
            super().append(item)

    def program(x, put):
        put(x)
        return x + 1

    compiled = dyncomp.optimize(program)
    for make in (lambda items: items.append, lambda items: super(Doubling, items).append):
        items, expected = Doubling(), Doubling()
        program(torch.ones(2), make(expected))
        compiled(torch.ones(2), make(items))
        assert len(items) == len(expected)


def _plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return type(value)(map(_plain, value)) if isinstance(value, (list, tuple)) else value


LOCK = threading.Lock()


def locked(x, n):
    with LOCK:
        y = x * 2
    return y + n


def written(x, n):
    with io.StringIO() as file:
        file.write("ab")
        y = x * len(file.getvalue())
    return y + n


def viewed(x, n):
    with memoryview(b"abc") as view:
        y = x * view[0]
    return y + n


@pytest.mark.parametrize("program", [locked, written, viewed])
def test_blocks_of_objects_in_c_are_compiled_once(program):
    fast = dyncomp.optimize(program)
    frames = []
    for n in (1, 2, 3, 4, 5, 6):
        want = program(torch.ones(3), n)
        torch.testing.assert_close(fast(torch.ones(3), n), want, rtol=0, atol=0)
        frames.append(dyncomp.stats().frames)
    assert frames[2] == frames[-1]
