"""Attributes of classes: assigned, deleted and read in compiled code, and changed from outside between its calls."""

import copy

import pytest
import torch

import dyncomp
from tests.support import assert_same, outcome

X = torch.arange(8.0)


def alike(make, graphs, breaks=0, calls=5, change=lambda call, *classes: None):
    """`make() -> (function, classes to look at)`; `change` runs before each call. Results, errors and the classes' data are compared."""
    runs = []
    before = dyncomp.stats()
    for compiled in (False, True):
        function, *classes = make()
        run = []
        function = dyncomp.optimize(function) if compiled else function
        for call in range(calls):
            change(call, *classes)
            result, error = outcome(function, (X,))
            data = [{k: v for k, v in vars(c).items() if not k.startswith("_") and not callable(v)} for c in classes]
            run.append((result, None if error is None else (type(error).__name__, str(error)), [copy.deepcopy(_plain(d)) for d in data]))
        runs.append(run)
    assert_same(runs[1], runs[0])
    after = dyncomp.stats()
    assert (after.graphs - before.graphs, after.graph_breaks - before.graph_breaks) == (graphs, breaks), after.break_reasons


def _plain(data):
    return {name: value for name, value in data.items() if isinstance(value, int | float | str | list | dict | torch.Tensor | None)}


def counted():
    class A:
        count = 0

        def run(self, x):
            type(self).count += 1
            return x * 2

    return A().run, A


def count_used():
    class A:
        count = 2

        def run(self, x):
            type(self).count += 1
            return x * self.count + A.count

    return A().run, A


def by_classmethod():
    class A:
        scale = 2.0

        @classmethod
        def run(cls, x):
            cls.scale = cls.scale + 1
            return x * cls.scale

    return A.run, A


def by_setattr():
    class A:
        pass

    def run(x):
        A.v = 3
        y = x * A.v + hasattr(A, "w")
        delattr(A, "v")
        return y + getattr(A, "v", 10)

    return run, A


def tensor_kept():
    class A:
        last = None

    def run(x):
        y = x * 2 if A.last is None else x + A.last
        A.last = y
        return y * 2

    return run, A


def inherited():
    class A:
        n = 1

    class B(A):
        pass

    def run(x):
        B.n = A.n + 1
        A.n = 5
        return x * A.n + B.n

    return run, A, B


def seen_by_instances():
    class A:
        n = 1

    a = A()

    def run(x):
        A.n = 5
        y = x * a.n
        a.n = 6
        A.n = 7
        y = y + a.n
        del a.n
        return y * a.n

    return run, A


def base_comes_back():
    class A:
        n = 1

    class B(A):
        n = 2

    def run(x):
        B.n = 5
        y = x * B.n
        del B.n
        return y

    return run, A, B


def metaclass_takes_part():
    class Meta(type):
        def __setattr__(cls, name, value):
            super().__setattr__(name, value * 2)

        @property
        def level(cls):
            return cls._level

    class A(metaclass=Meta):
        n = 1
        _level = 3

    def run(x):
        A.n = 4
        return x * A.n + A.level

    return run, A


def in_a_block():
    class Flag:
        on = False

        def __enter__(self):
            self.before = Flag.on
            Flag.on = True

        def __exit__(self, *_):
            Flag.on = self.before

    def run(x):
        with Flag():
            y = x * 2 if Flag.on else x
        return y if Flag.on else y + 1

    return run, Flag


def depth_of_recursion():
    class State:
        depth = 0
        log: list = []

    def inner(x, n):
        State.depth += 1
        State.log.append(State.depth)
        y = x if n == 0 else inner(x * 2, n - 1)
        State.depth -= 1
        return y

    return lambda x: inner(x, 3), State


def objects_counted():
    class A:
        made = 0

        def __init__(self, v):
            A.made += 1
            self.v = v

    def run(x):
        return A(x).v * A(2).v

    return run, A


def of_a_module():
    class M(torch.nn.Module):
        calls = 0

        def forward(self, x):
            M.calls += 1
            return x * 2

    return M(), M


def error_after_write():
    class A:
        n = 1

    def run(x):
        A.n += 1
        y = x * 2
        try:
            return y[torch.tensor([99])]
        except IndexError:
            A.n += 10
            return y

    return run, A


@pytest.mark.parametrize(
    "make, graphs",
    [
        (counted, 1), (count_used, 2), (by_classmethod, 2), (by_setattr, 1), (tensor_kept, 2), (inherited, 1), (seen_by_instances, 1), (base_comes_back, 1),
        (metaclass_takes_part, 1), (in_a_block, 1), (depth_of_recursion, 1), (objects_counted, 1), (of_a_module, 1), (error_after_write, 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_written(make, graphs):
    change = (lambda call, a, b: setattr(a, "n", 1)) if make is inherited else (lambda *_: None)
    alike(make, graphs, change=change)


def uncaught():
    class A:
        n = 1

    def run(x):
        A.n += 1
        y = x * 2
        raise ValueError(A.n, y.shape)

    return run, A


def across_a_break():
    class A:
        n = 1

    def run(x):
        A.n = 2
        x = x * A.n
        print(end="")
        A.n = A.n + 1
        return x + A.n

    return run, A


def behind_super():
    class A:
        n = 1

    class B(A):
        n = 2

        def run(self, x):
            A.n = 8
            return x * super().n

    return B().run, A, B


def whole_dict_read():
    class A:
        n = 1

    def run(x):
        A.n = 7
        return x * vars(A)["n"]

    return run, A


def property_replaced():
    class A:
        @property
        def n(self):
            return 3

    def run(x):
        A.n = 7
        return x * A().n

    return run, A


def not_there():
    class A:
        pass

    def run(x):
        try:
            del A.n
        except AttributeError as error:
            return x * 2, str(error)

    return run, A


@pytest.mark.parametrize(
    "make, graphs",
    [(uncaught, 1), (across_a_break, 2), (behind_super, 1), (whole_dict_read, 1), (property_replaced, 1), (not_there, 0)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_broken(make, graphs):
    alike(make, graphs, breaks=1)


def read_by_instance():
    class A:
        step = 3

        def run(self, x):
            return x * self.step

    return A().run, A


def read_in_dict():
    class A:
        step = 3

    return lambda x: x * A.__dict__["step"] + len([name for name in vars(A) if name[0] != "_"]), A


@pytest.mark.parametrize("make, graphs", [(read_by_instance, 2), (read_in_dict, 2)], ids=lambda value: getattr(value, "__name__", ""))
def test_numbers_that_others_change(make, graphs):
    """One version for the first number, one for all others."""
    alike(make, graphs, calls=7, change=lambda call, a: setattr(a, "step", call + 3))


def test_a_subclass_that_gets_its_own():
    def make():
        class A:
            n = 1

        class B(A):
            pass

        def run(x):
            A.n = 5
            return x * B.n

        return run, A, B

    def change(call, a, b):
        a.n = 1
        if call == 2:
            b.n = 1
        if call == 4:
            del b.n

    alike(make, 2, calls=6, change=change)


def test_a_number_that_becomes_a_property():
    def change(call, a):
        a.step = property(lambda self: 9) if call == 3 else call + 2

    alike(read_by_instance, 3, calls=5, change=change)
