"""Exceptions as objects: what they carry, how they are linked, where they say they come from."""

import logging
import traceback

import pytest

from tests.programs.program import ones, outcome, program


@program(graphs=3)
def test_arguments_of_exceptions_from_outside(C):
    fast = C(lambda x, e: (x + e.args[0], str(e), repr(e)))
    return [fast(ones(), ValueError(n)) for n in range(3)]


@program(breaks=0)
def test_links_of_exceptions_from_outside(C):
    def linked(n):
        error = ValueError(n)
        error.__cause__ = KeyError(n) if n % 2 else None
        error.__context__ = TypeError(n)
        return error

    def f(x, e):
        return x + 1, type(e.__cause__).__name__, type(e.__context__).__name__, e.__suppress_context__

    fast = C(f)
    return [fast(ones(), linked(n)) for n in range(3)]


@program(breaks=0)
def test_raising_again_links_to_what_is_handled_now(C):
    def f(x):
        error, seen = ValueError("e"), []
        for handled in (KeyError("a"), TypeError("b")):
            try:
                try:
                    raise handled
                except Exception:
                    raise error
            except ValueError as caught:
                seen.append(type(caught.__context__).__name__)
        return x + 1, seen

    return C(f)(ones())


@program(breaks=0)
def test_links_never_form_a_ring(C):
    def f(x):
        first, second = ValueError("a"), KeyError("b")
        try:
            try:
                raise first
            except ValueError:
                try:
                    raise second
                except KeyError:
                    raise first
        except ValueError as caught:
            return x + 1, caught.__context__ is second, second.__context__

    return C(f)(ones())


@program(breaks=0)
def test_what_a_generator_handles_is_the_context_of_what_is_thrown(C):
    def f(x):
        def g():
            try:
                raise KeyError("a")
            except KeyError:
                yield

        generator = g()
        next(generator)
        try:
            generator.throw(ValueError)
        except ValueError as caught:
            return x + 1, type(caught.__context__).__name__, caught.__context__.args

    return C(f)(ones())


@program(breaks=0)
def test_stop_iteration_inside_a_generator(C):
    def f(x):
        def g():
            yield next(iter([]))

        try:
            list(g())
        except RuntimeError as caught:
            return x + 1, str(caught), type(caught.__cause__).__name__, caught.__suppress_context__

    return C(f)(ones())


@program(breaks=0)
def test_fields_that_the_interpreter_fills_in(C):
    class Thing:
        pass

    def f(x):
        thing, seen = Thing(), []
        try:
            thing.missing
        except AttributeError as e:
            seen.append((e.name, e.obj is thing))
        try:
            undefined
        except NameError as e:
            seen.append(e.name)
        try:
            raise OSError(2, "no", "file")
        except OSError as e:
            seen.append((type(e).__name__, e.errno, e.strerror, e.filename))
        try:
            raise SystemExit(3)
        except SystemExit as e:
            seen.append(e.code)
        try:
            raise UnicodeDecodeError("utf8", b"a", 0, 1, "why")
        except UnicodeError as e:
            seen.append((e.reason, e.start))
        return x + 1, seen

    return C(f)(ones())


@program
def test_fields_of_exceptions_that_are_handed_out(C):
    def f(x, errors):
        try:
            raise SystemExit(3)
        except SystemExit as e:
            errors.append(e)
        try:
            x.missing
        except AttributeError as e:
            errors.append(e)
        return x + 1

    errors = []
    C(f)(ones(), errors)
    return errors[0].code, errors[1].name, errors[1].obj.shape


@program(breaks=1)
def test_tracebacks_name_the_line_that_raised(C):
    def f(x):
        y = x + 1
        try:
            raise ValueError("v")
        except ValueError:
            text = traceback.format_exc()
        return y * 2, text

    def g(x):
        try:
            {}["k"]
        except KeyError as e:
            return x + 1, e.__traceback__.tb_lineno - g.__code__.co_firstlineno

    (first, text), second = C(f)(ones()), outcome(g, ones())
    return first, text, second


@program
def test_the_line_of_a_traceback_attribute(C):
    def g(x):
        y = x + 1
        try:
            {}["k"]
        except KeyError as e:
            line = e.__traceback__.tb_lineno
        return y, line

    return C(g)(ones())


@program
def test_logged_exceptions_show_where_they_came_from(C):
    class Collect(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    lines = []
    logger = logging.Logger("of this test")
    logger.addHandler(Collect())

    def f(x):
        y = x + 1
        try:
            raise ValueError("v")
        except ValueError:
            logger.exception("failed")
        return y

    C(f)(ones())
    return lines


@program(breaks=0)
def test_errors_of_with_statements(C):
    class Nothing:
        pass

    class OnlyEnter:
        def __enter__(self):
            return self

    def f(x):
        seen = []
        for manager in (Nothing(), OnlyEnter(), 5):
            try:
                with manager:
                    seen.append("in")
            except TypeError as e:
                seen.append(str(e))
        return x + 1, seen

    return C(f)(ones())


@program
def test_setting_the_cause_hides_the_context(C):
    def f(x):
        error = ValueError("a")
        error.__cause__ = KeyError("b")
        return x + 1, error.__suppress_context__

    return C(f)(ones())


@program
def test_the_parts_of_an_exception_from_outside_are_set_in_python(C):
    error = ValueError("a")

    def f(x, e):
        e.__cause__ = KeyError("b")
        e.args = ("z",)
        return x + 1

    C(f)(ones(), error)
    return type(error.__cause__).__name__, error.args


@pytest.mark.parametrize("n", [3, 2000])
def test_comparing_deep_lists_raises_no_error_of_ours(fresh, n):
    def nested():
        inner = []
        for _ in range(n):
            inner = [inner]
        return inner

    def f(x, a, b):
        try:
            return x + 1, a == b
        except RecursionError:
            return x + 1, "deep"

    import dyncomp

    assert dyncomp.optimize(f)(ones(), nested(), nested())[1] == f(ones(), nested(), nested())[1]


@program
def test_texts_of_errors_tell_sizes_that_vary(C):
    def f(x):
        try:
            return x[9]
        except IndexError as e:
            return x + 1, str(e)

    fast = C(f)
    return [fast(ones(n)) for n in (2, 3, 4, 12, 5)]
