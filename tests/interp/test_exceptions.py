"""try, except, finally, raise and with: exceptions inside the captured code are followed."""

import contextlib

import pytest

from tests.interp.tracing import X, trace, whole


class Custom(ValueError):
    def __init__(self, code, text="none"):
        super().__init__(text)
        self.code = code


def caught_builtin(x):
    total = 0
    try:
        {}["a"]
    except KeyError as error:
        total += len(error.args)
    try:
        [1][5]
    except (TypeError, IndexError):
        total += 10
    try:
        int("x")
    except ValueError as error:
        total += len(str(error))
    return x + total


def finally_runs(x):
    log = []
    for i in range(3):
        try:
            if i == 1:
                continue
            log.append(i)
        finally:
            log.append(-i)
    return x + sum(log), log


def raised_and_chained(x):
    try:
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        return x + len(str(error.__cause__))


def bare_raise(x):
    try:
        try:
            raise KeyError("k")
        except LookupError:
            raise
    except KeyError:
        return x + 1


def custom_exception(x):
    try:
        raise Custom(5, text="abc")
    except Custom as error:
        return x + error.code + len(error.args[0])


def out_of_a_call(x):
    def fails():
        raise StopIteration(4)

    try:
        fails()
    except StopIteration as error:
        return x + error.value


def try_else(x):
    try:
        y = x + 1
    except ValueError:
        y = x
    else:
        y = y * 2
    return y


class Scope:
    def __init__(self, swallows):
        self.swallows, self.seen = swallows, []

    def __enter__(self):
        self.seen.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.seen.append(None if kind is None else kind.__name__)
        return self.swallows


def with_statement(x):
    with Scope(False) as scope:
        y = x + 1
    with Scope(True) as swallowing:
        raise ValueError("x")
    return y, scope.seen, swallowing.seen


def with_return(x):
    scope = Scope(False)

    def inner():
        with scope:
            return x * 2

    return inner(), scope.seen


@contextlib.contextmanager
def doubled(log):
    log.append("enter")
    try:
        yield 2
    finally:
        log.append("exit")


def generator_context(x):
    log = []
    with doubled(log) as factor:
        y = x * factor
    with contextlib.suppress(KeyError):
        {}["a"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(doubled(log))
    return y, log


def shape_error(x):
    try:
        return x @ x
    except RuntimeError:
        return x * 2


def attribute_errors(x):
    total = 0
    try:
        x.no_such_attribute  # noqa: B018
    except AttributeError:
        total += 1
    try:
        (1).foo  # noqa: B018
    except AttributeError as error:
        total += len(str(error))
    try:
        undefined_name  # noqa: B018
    except NameError as error:
        total += len(str(error))
    return x + total


PROGRAMS = [
    caught_builtin,
    finally_runs,
    raised_and_chained,
    bare_raise,
    custom_exception,
    out_of_a_call,
    try_else,
    with_statement,
    with_return,
    generator_context,
    shape_error,
    attribute_errors,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_followed(program):
    whole(program)


def escapes(x):
    y = x + 1
    if y.dim() == 2:
        raise ValueError("two dimensions")
    return y


def escapes_from_a_call(x):
    def inner(a):
        return {}[a]

    y = x.sin()
    return y + inner("key")


def bad_shapes(x):
    y = x + 1
    return y @ y


@pytest.mark.parametrize(
    ("program", "error"),
    [(escapes, ValueError), (escapes_from_a_call, KeyError), (bad_shapes, RuntimeError)],
    ids=lambda p: p.__name__,
)
def test_uncaught_is_raised_by_python_itself(program, error):
    import dyncomp

    fast = dyncomp.optimize(program, backend="eager")
    for _ in range(2):
        with pytest.raises(error) as ours:
            fast(X)
        with pytest.raises(error) as theirs:
            program(X)
        assert str(ours.value) == str(theirs.value)


def test_record_of_an_uncaught_exception():
    assert trace(escapes).breaks[0].reason == "exception"
    assert trace(bad_shapes).breaks[0].reason == "eager-error"
