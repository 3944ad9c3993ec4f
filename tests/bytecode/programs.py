"""Small functions that together use most constructs, each with the arguments of some calls.

`log` is a list that a program may append to: what it holds in the end is part of the result.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest

PROGRAMS: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = []


def program(*calls: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((function, list(calls)))
        return function

    return add


class Box:
    scale = 2

    def __init__(self, value):
        self.value = value

    def times(self, n, *, plus=0):
        return self.value * n + plus

    def __repr__(self):
        return f"Box({self.value!r})"

    def __eq__(self, other):
        return isinstance(other, Box) and self.value == other.value


class BigBox(Box):
    def times(self, n, *, plus=0):
        a = super().times(n, plus=plus)
        b = super().times(n)
        return a + b * len(str(self.value))

    def captured(self, n):
        def inner():
            return self.value

        return super().times(n) + inner()


@contextlib.contextmanager
def noting(log, name, swallow=False):
    log.append(("enter", name))
    try:
        yield name
    except ValueError as error:
        log.append(("caught", str(error)))
        if not swallow:
            raise
    finally:
        log.append(("exit", name))


@program(([], 1, 2), ([], 5, -3))
def arithmetic(log, a, b):
    c = a + b * 2 - (a // (b or 1))
    c += a**2
    return c % 7, -c, ~c, +c, not c, a is b, a in (b, 1), a < b <= c


@program(([], 3), ([], 0))
def loops(log, n):
    total = 0
    for i in range(n):
        if i == 1:
            continue
        for j in [1, 2, 3]:
            total += i * j
            if total > 10:
                break
        else:
            log.append(i)
    else:
        log.append("end")
    while total > 3:
        total -= 2
        log.append(total)
    return total


@program(([], Box(3)), ([], BigBox(12)))
def calls(log, box):
    r = box.times(2, plus=len([1, 2]))
    args = (3,)
    kwargs = {"plus": 1}
    s = box.times(*args, **kwargs) + box.times(*args)
    log.append(max(r, s))
    log.extend(sorted([s, r, 1], key=lambda x: -x))
    return f"{r!r:>5}|{s}|{box.scale:{r % 5 + 1}}" + f"{r}"


@program((BigBox(7), 2))
def method_with_super(self, n):
    return BigBox.times(self, n, plus=1)


PROGRAMS.append((BigBox.times, [(BigBox(7), 2)]))
PROGRAMS.append((BigBox.captured, [(BigBox(7), 2)]))


@program(([], 3), ([], 0), ([], "x"))
def exceptions(log, n):
    result = None
    try:
        log.append("try")
        result = 10 / n
        if n == 3:
            raise KeyError("three")
    except ZeroDivisionError as error:
        log.append(str(error))
        try:
            raise ValueError("inner") from error
        except ValueError as inner:
            log.append(repr(inner.__cause__))
            log.append(inner.__context__ is error)
    except (KeyError, IndexError) as error:
        log.append(error.args)
    else:
        log.append("else")
    finally:
        log.append("finally")
    return result


@program(([], 1), ([], 0))
def reraised(log, n):
    try:
        try:
            log.append(1 // n)
            raise ValueError("first")
        finally:
            log.append("cleanup")
    except ValueError:
        log.append("again")
        raise


@program(([], 2), ([], 5))
def return_in_finally(log, n):
    for i in range(n):
        try:
            if i == 3:
                return i
        finally:
            log.append(i)
    return None


@program(([], True), ([], False))
def with_blocks(log, swallow):
    with noting(log, "a") as a, noting(log, "b", swallow) as b:
        log.append(a + b)
        for i in range(3):
            with noting(log, i):
                if i == 2:
                    raise ValueError("two")
    return a, b


@program(([], 4))
def closures(log, n):
    count = n

    def bump(by=1):
        nonlocal count
        count += by
        return count

    log.append(bump())
    count *= 10
    log.append(bump(by=n))
    adders = [lambda x, k=k: x + k + count for k in range(3)]
    return [add(1) for add in adders], count


def make_counter():
    total = 0

    def counter(log, n):
        nonlocal total
        total += n
        log.append(total)
        total += 1
        return total

    return counter


PROGRAMS.append((make_counter(), [([], 3), ([], 4)]))


@program(([], [3, 1, 2]))
def comprehensions(log, items):
    squares = [x * x for x in items if x != 1]
    pairs = {x: y for x in items for y in squares if x < y}
    unique = {x % 2 for x in items}
    late = [lambda: x for x in items]  # noqa: B023
    x = sum(v for v in items)
    return squares, pairs, sorted(unique), [f() for f in late], x


@program(([], 1), ([], 0))
def unbound(log, n):
    if n:
        value = n
    del n
    try:
        log.append(value)
    except UnboundLocalError:
        log.append("unbound value")
    try:
        log.append(n)  # noqa: F821
    except UnboundLocalError:
        log.append("unbound n")
    log.append(sorted(locals()))
    return len(log)


@program(([], 1, 2, 3), ([], 1))
def star_arguments(log, a, *rest, key=4, **more):
    first, *middle = (a, *rest, key)
    log.append({**more, "a": a, **{"z": rest}})
    (x, y), z = (first, middle), [*rest, *middle]
    return x, y, z, z[0:1], z[-1]


@program(([], [1, 2]), ([], {"k": 1, "m": 2}), ([], Box(3)), ([], (1, 2, 3)), ([], 7))
def matching(log, value):
    match value:
        case [a, b]:
            return "list", a, b
        case {"k": k, **rest}:
            return "dict", k, rest
        case Box(value=v):
            return "box", v
        case (1, *others):
            return "tuple", others
        case int() | str():
            return "scalar"


@program(([], None), ([], 0), ([], "text"))
def short_circuit(log, x):
    a = x or "default"
    b = x and x + "!"
    c = x if x is not None else 1
    d = (y := a) == "default" and not b
    assert a, "never"
    return a, b, c, d, y, None if a is None else 2


@program(([], [5, 6, 7]))
def stores(log, items):
    items[0] = 1
    items[1] += 2
    del items[2]
    items[1:1] = [9, 9]
    box = Box(items)
    box.value = {"a": items}
    box.value["b"] = 3
    del box.value["a"]
    box.extra = 1
    del box.extra
    return items, box.value


@program(([], 2))
def global_and_import(log, n):
    import math
    from os.path import join as path_join

    global _touched
    _touched = math.floor(n + 0.5)
    log.append(path_join("a", "b"))
    return _touched


@program(([], 3))
def exception_groups(log, n):
    try:
        raise ExceptionGroup("many", [ValueError(n), TypeError("t")])
    except* ValueError as group:
        log.append(len(group.exceptions))
    except* TypeError:
        log.append("type")
    return n


@program(([], 3))
def nested_calls(log, n):
    return max(min(n, abs(-n)), len(str(n)), *[n, n + 1], key=lambda v: -v)


@program(([], 2), ([], -1))
def loop_with_try(log, n):
    out = []
    for i in range(4):
        try:
            if i == n:
                raise RuntimeError(i)
            out.append(i)
        except RuntimeError as error:
            out.append(error.args)
            continue
        finally:
            log.append(i)
    return out


CALLS = [
    pytest.param(function, args, id=f"{function.__name__}-{i}")
    for function, calls in PROGRAMS
    for i, args in enumerate(calls)
]


def outcome(function, args):
    """What can be seen of a call: result or error, the line that raised, what became of the arguments."""
    args = copy.deepcopy(args)
    try:
        result = function(*args)
    except Exception as error:  # noqa: BLE001  part of the outcome
        result = type(error), str(error), traceback.extract_tb(error.__traceback__)[-1].lineno
        result += (repr(error.__cause__), repr(error.__context__))
    return repr(result) if callable(result) else result, args[0], repr(args[1:]), sys.exc_info()


def rebuilt(function, code):
    made = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def reset(function):
    """Closures of the programs count from zero in each call."""
    for cell in function.__closure__ or ():
        if isinstance(cell.cell_contents, int):
            cell.cell_contents = 0
