"""Objects end where they end in eager: generators left by a `break`, `__del__`, weak references, dead variables that hold something."""

import gc
import weakref

import pytest
import torch

import dyncomp

BACKENDS = ("eager", "codegen")


class Counted:
    """Counts the ends of its instances."""

    ended = 0

    def __init__(self, x):
        self.x, self.left = x, 3

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.x + self.left

    def __del__(self):
        Counted.ended += 1


def in_autocast(x):
    with torch.autocast("cpu"):
        for i in range(5):
            yield x + i


def left_by_break(x):
    out = x + 1
    for y in in_autocast(x):
        out = out + y * 2
        if torch.is_autocast_enabled("cpu"):
            break
    return (out + 1) @ out, torch.is_autocast_enabled("cpu")


def left_by_return(x):
    def first():
        for y in in_autocast(x + 1):
            return y * 2

    out = first() + 1
    return out @ out, torch.is_autocast_enabled("cpu")


def iterator_of_a_loop(x):
    x = x + 1
    for y in Counted(x):
        x = x + y * 2
        break
    n = Counted.ended
    return x * 2 + n, n


def iterator_used_up(x):
    x = x + 1
    for y in Counted(x):
        x = x + y * 2
    n = Counted.ended
    return x * 2 + n, n


def variable_stored_again(x):
    held = Counted(x + 1)
    y = x + 1
    print(end="")
    y = y * 2
    a = Counted.ended
    held = None
    b = Counted.ended
    return y + a + b, a, b, held


def variable_deleted(x):
    held = Counted(x)
    y = x + 1
    print(end="")
    del held
    return y + Counted.ended, Counted.ended


def variable_never_read(x):
    guard = Counted(x)  # noqa: F841
    y = x + 1
    print(end="")
    y = y * 2
    print(end="")
    return y + Counted.ended, Counted.ended


def temporary(x):
    y = x + 1
    Counted(x)
    return y * 2 + Counted.ended, Counted.ended


def weakly_seen(x):
    held = x * 2
    seen = weakref.ref(held)
    print(end="")
    y = held + 1
    a = seen() is None
    held = None
    print(end="")
    return y * 2, a, seen() is None


def weakly_seen_and_never_read(x):
    held = x * 2
    seen = weakref.ref(held)
    print(end="")
    y = x + 1
    a = seen() is None
    y = y * 2
    return y, a, seen() is None


def with_callback(x):
    log = []
    held = set()
    held = Plain()
    seen = weakref.ref(held, lambda _: log.append(1))
    y = x + 1
    print(end="")
    held = None
    n = len(log)
    return y + n, n, seen() is None, held


class Plain:
    pass


def torch_guard(x):
    """Torch functions of subclasses are off for as long as the object lives."""
    guard = torch._C.DisableTorchFunctionSubclass()  # noqa: F841
    y = x + 1
    print(end="")
    y = y * 2
    print(end="")
    return y, torch._C._is_torch_function_enabled()


PROGRAMS = (
    left_by_break, left_by_return, iterator_of_a_loop, iterator_used_up, variable_stored_again, variable_deleted,
    variable_never_read, temporary, weakly_seen, weakly_seen_and_never_read, with_callback, torch_guard,
)  # fmt: skip


def observed(function, x):
    Counted.ended = 0
    out = function(x)
    return out, Counted.ended, torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_objects_end_where_eager_ends_them(function, backend):
    x = torch.randn(3, 3)
    gc.collect()
    want = observed(function, x)
    compiled = dyncomp.optimize(function, backend=backend)
    for _ in range(3):
        got = observed(compiled, x)
        torch.testing.assert_close(got[0][0], want[0][0])
        assert got[0][0].dtype == want[0][0].dtype
        assert got[0][1:] == want[0][1:] and got[1:] == want[1:]


def test_a_resumed_frame_holds_nothing_that_it_replaced():
    """What was passed on and is stored again is gone when the next break runs."""
    alive = []

    def look():
        alive.append(ref() is not None)

    ref = lambda: None  # noqa: E731

    def set_ref(obj):
        nonlocal ref
        ref = weakref.ref(obj)

    set_ref, look = dyncomp.disable(set_ref), dyncomp.disable(look)

    def f(x):
        y = x * 2
        set_ref(y)
        look()
        y = y + 1
        look()
        return y

    compiled = dyncomp.optimize(f)
    x = torch.randn(4)
    f(x)
    want = alive[:]
    for _ in range(3):
        alive.clear()
        compiled(x)
        assert alive == want == [True, False]
