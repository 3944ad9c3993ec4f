"""Generators that are used inside the captured code."""

import pytest

from tests.interp.tracing import broken, whole


def plain(x):
    def numbers(n):
        for i in range(n):
            yield x + i

    total = x
    for part in numbers(3):
        total = total + part
    return total


def sends(x):
    def running():
        total = 0
        while True:
            got = yield total
            if got is None:
                return
            total += got

    it = running()
    next(it)
    values = [it.send(2), it.send(3)]
    return x + sum(values), list(it)


def delegates(x):
    def inner():
        got = yield 1
        yield got
        return 7

    def outer():
        result = yield from inner()
        yield result
        yield from [10, 20]

    it = outer()
    values = [next(it), it.send(5), *it]
    return x + sum(values), values


def expressions(x):
    filtered = (v * 2 for v in range(6) if v % 2)
    return x + next(filtered) + next(filtered), list(filtered), next(filtered, "end")


def finally_on_close(x):
    log = []

    def guarded():
        try:
            yield 1
        finally:
            log.append("closed")

    it = guarded()
    next(it)
    it.close()
    return x + len(log), log


def throws(x):
    def catching():
        try:
            yield 1
        except ValueError:
            yield 2

    it = catching()
    next(it)
    return x + it.throw(ValueError("x")), list(it)


def exhausted(x):
    def one():
        yield 1
        return "result"

    it = one()
    next(it)
    try:
        next(it)
    except StopIteration as error:
        return x + len(error.value)


PROGRAMS = [plain, sends, delegates, expressions, finally_on_close, throws, exhausted]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_followed(program):
    whole(program)


def leaves_started(x):
    def numbers():
        got = yield x + 1
        yield x + got

    it = numbers()
    return next(it) * 2, it


def test_started_generator_escapes():
    import dyncomp
    from tests.interp.tracing import X

    first, it = dyncomp.optimize(leaves_started, backend="eager")(X)
    assert first.equal((X + 1) * 2) and it.send(5).equal(X + 5)
    assert list(it) == []


LOG = []


def dropped_in_try(x):
    def guarded():
        try:
            yield 1
        finally:
            LOG.append(1)

    return x + next(guarded())


def test_dropped_generator_runs_its_finally():
    LOG.clear()
    broken(dropped_in_try, breaks=None, calls=1)
    assert LOG == [1, 1]


def through_a_context_manager(x):
    import contextlib

    seen = []

    @contextlib.contextmanager
    def block(swallow):
        try:
            yield
        except KeyError as error:
            seen.append(error.args)
            if not swallow:
                raise
        finally:
            seen.append("left")

    with block(True):
        raise KeyError("inside")
    try:
        with block(False):
            raise KeyError("once more")
    except KeyError as error:
        seen.append(str(error))
    try:
        with block(True):
            raise ValueError("another")
    except ValueError as error:
        seen.append(str(error))
    return x + len(seen), seen


def test_exceptions_through_a_context_manager():
    whole(through_a_context_manager)


def thrown_in(x):
    def numbers():
        try:
            yield 1
        except KeyError as error:
            yield error.args[0]
        yield 3

    it, other = numbers(), numbers()
    next(it), next(other)
    return x + it.throw(KeyError, KeyError(5), None) + other.throw(KeyError(7)), next(it)


def test_both_forms_of_throw():
    whole(thrown_in)
