"""What a program sees of its own frames once one is broken: depth of the stack, lines, tracebacks, names of variables."""

import logging
import sys
import traceback
import warnings

import pytest
import torch

import dyncomp
from tests.interp.tracing import X


def same(function, *args, calls=3):
    fast = dyncomp.optimize(function, backend="eager")
    for _ in range(calls):
        expected = function(*args)
        got = fast(*args)
        assert got == expected
    return got


def frames(count):
    found, frame = [], sys._getframe(1)
    for _ in range(count):
        found.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return found


def shown(error):
    return [(entry.filename, entry.lineno, entry.name) for entry in traceback.extract_tb(error.__traceback__)]


def test_a_broken_callee_stands_on_its_caller():
    def inner(x):
        y = x + 1
        first = frames(2)
        z = y * 2
        return z, first, frames(2)

    def outer(x):
        z, *found = inner(x)
        return (z + 1).sum().item(), found

    same(outer, X)


@pytest.mark.parametrize("level", [1, 2])
def test_warnings_name_the_same_line(level):
    def inner(x):
        y = x + 1
        warnings.warn("w", UserWarning, stacklevel=level)
        return y * 2

    def outer(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = inner(x)
        return y.sum().item(), [(w.filename, w.lineno) for w in seen]

    same(outer, X)


def test_logging_finds_the_caller():
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            found.append((record.funcName, record.lineno))

    logger = logging.getLogger("tests.frames_shown")
    logger.propagate, logger.handlers = False, [Keep()]

    def inner(y):
        logger.warning("two", stacklevel=2)

    def outer(x):
        y = x + 1
        logger.warning("one")
        inner(y)
        return (y + 1).sum().item()

    same(outer, X)
    assert len(set(found)) == 2 and len(found) == 12


def test_a_traceback_shows_each_frame_once():
    def raises():
        raise ValueError("here")

    def broken(x):
        y = x + 1
        print("", end="")
        y = y + 1
        raises()
        return y

    def outer(x):
        try:
            return broken(x)
        except ValueError as error:
            return shown(error)

    assert len(same(outer, X)) == 3


def test_a_frame_that_runs_again_is_shown_once():
    def picks(x, i, log):
        log.append(1)
        y = x * 2
        return y[i]

    def fails(function):
        with pytest.raises(IndexError) as caught:
            function(X[0], torch.tensor([7]), [])
        return shown(caught.value)[1:]

    fast = dyncomp.optimize(picks, backend="eager")
    fast(X[0], torch.tensor([1]), [])
    assert fails(fast) == fails(picks) and len(fails(fast)) == 1


def test_callees_see_the_users_variables_alone():
    def names():
        return sorted(sys._getframe(1).f_locals)

    def broken(x):
        kept = x + 1
        seen = names()
        return (kept * 2).sum().item(), [name for name in seen if not name.isidentifier()]

    assert same(broken, X)[1] == []


def said(function):
    try:
        return function()
    except NameError as error:
        return type(error), str(error), error.__context__


@pytest.mark.parametrize("how", ["read", "delete", "caught"])
def test_an_empty_variable_of_a_closure_is_the_frames_own(how):
    def reads(x):
        def inner():
            return late

        y = x + 1
        print("", end="")
        if x.shape[0] > 5:
            late = inner
        return (y + late).sum().item()

    def deletes(x):
        def inner():
            return late  # noqa: F821  empty on purpose

        y = x + 1
        print("", end="")
        if x.shape[0] > 5:
            late = inner
        del late
        return y.sum().item()

    def catches(x):
        def inner():
            return late

        y = x + 1
        print("", end="")
        if x.shape[0] > 5:
            late = inner
        try:
            return (y + late).sum().item()
        except UnboundLocalError as error:
            return y.sum().item(), str(error), error.__context__

    program = {"read": reads, "delete": deletes, "caught": catches}[how]
    fast = dyncomp.optimize(program, backend="eager")
    for _ in range(2):
        assert said(lambda: fast(X)) == said(lambda: program(X))


def test_the_exception_being_handled():
    def resumed(x):
        try:
            raise ValueError("here")
        except ValueError:
            print("", end="")
            first = sys.exc_info()[0]
            y = x + 1
            print("", end="")
            second = sys.exc_info()[1]
        return y.sum().item(), first, str(second), sys.exc_info()[0]

    same(resumed, X)

    def asks(x):
        return (x + 1).sum().item(), sys.exc_info()[0]

    fast = dyncomp.optimize(asks, backend="eager")
    for _ in range(2):
        try:
            raise KeyError
        except KeyError:
            assert fast(X) == asks(X)
        assert fast(X) == asks(X)
