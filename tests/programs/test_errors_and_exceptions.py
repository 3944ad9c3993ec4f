"""Exceptions: which one, its text, cause and context, what was done before it, and who catches it."""

import contextlib
import operator
import traceback

import torch

from tests.programs.program import ones, outcome, program


@program
def test_mutation_before_an_exception_stays(C):
    log, d = [], {}

    def f(x):
        log.append(1)
        d["k"] = x + 1
        x.add_(1)
        raise ValueError("late")

    fast = C(f)
    x = ones()
    return outcome(fast, x), outcome(fast, x), log, d, x


@program
def test_error_of_an_operation_after_mutations(C):
    log = []

    def f(x, y):
        log.append("a")
        x.mul_(2)
        z = x @ y
        log.append("b")
        return z

    fast = C(f)
    x = torch.ones(2, 3)
    got = outcome(fast, x, torch.ones(2, 2))
    return got[0], log, x, outcome(fast, x, torch.ones(3, 2)), log


@program
def test_cause_and_context(C):
    def f(x, how):
        try:
            try:
                raise KeyError("inner")
            except KeyError as error:
                if how == 0:
                    raise ValueError("outer") from error
                if how == 1:
                    raise ValueError("outer")
                raise ValueError("outer") from None
        except ValueError as error:
            return x + 1, repr(error.__cause__), repr(error.__context__), error.__suppress_context__

    fast = C(f)
    return [fast(ones(), how) for how in range(3)]


@program
def test_cause_of_an_escaping_exception(C):
    def f(x):
        y = x + 1
        try:
            {}["missing"]
        except KeyError as error:
            raise RuntimeError("no key") from error
        return y

    fast = C(f)
    try:
        fast(ones())
    except RuntimeError as error:
        return str(error), repr(error.__cause__), repr(error.__context__), error.__cause__.__traceback__ is not None


@program
def test_bare_reraise(C):
    def f(x):
        try:
            raise ValueError("v")
        except ValueError:
            try:
                raise
            except ValueError as again:
                return x + len(str(again))

    return C(f)(ones())


@program
def test_exception_variable_is_deleted(C):
    def f(x):
        try:
            raise ValueError("v")
        except ValueError as e:
            y = x + len(str(e))
        try:
            return y, e
        except NameError as error:
            return y, type(error).__name__

    return C(f)(ones())


@program
def test_except_tuple_and_order(C):
    class A(Exception):
        pass

    class B(A):
        pass

    def f(x, cls):
        try:
            raise cls("m")
        except (KeyError, B):
            return x + 1
        except A:
            return x + 2
        except Exception:
            return x + 3
        finally:
            x.mul_(1)

    fast = C(f)
    return [fast(ones(), cls) for cls in (A, B, KeyError, ValueError)]


@program
def test_exception_groups(C):
    def f(x):
        try:
            raise ExceptionGroup("g", [ValueError("a"), TypeError("b")])
        except* ValueError as group:
            x = x + len(group.exceptions)
        except* TypeError:
            x = x + 10
        return x

    return C(f)(ones())


@program
def test_custom_exception_with_attributes(C):
    class E(Exception):
        def __init__(self, code, x):
            super().__init__(f"code {code}")
            self.code, self.x = code, x

    def f(x, catch):
        try:
            raise E(5, x + 1)
        except E as error:
            if catch:
                return error.x * error.code, str(error), error.args
            raise

    fast = C(f)
    first = fast(ones(), True)
    try:
        fast(ones(), False)
    except E as error:
        return first, error.code, error.x, str(error)


@program
def test_index_error_from_data_is_caught_inside(C):
    def f(table, i):
        try:
            return table[i] * 2
        except IndexError:
            return table.sum()

    fast = C(f)
    t = torch.arange(4.0)
    return fast(t, torch.tensor([1, 2])), fast(t, torch.tensor([1, 9])), fast(t, torch.tensor([0, 3]))


@program
def test_index_error_from_data_escapes(C):
    def f(table, i):
        y = table + 1
        return y[i] * 2

    fast = C(f)
    t = torch.arange(4.0)
    return fast(t, torch.tensor([1])), outcome(fast, t, torch.tensor([7]))[0], fast(t, torch.tensor([3]))


@program
def test_swallowing_context_manager(C):
    class Swallow:
        def __enter__(self):
            return self

        def __exit__(self, kind, value, tb):
            self.seen = kind.__name__ if kind else None
            return True

    def f(x, i):
        s = Swallow()
        with s:
            return x.select(0, i), s.seen if hasattr(s, "seen") else "-"
        return x + 1, s.seen

    fast = C(f)
    return fast(ones(), 0), fast(ones(), 10)


@program
def test_suppress(C):
    def f(x, d):
        with contextlib.suppress(KeyError):
            x = x + d["k"]
            x = x * 100
        return x

    fast = C(f)
    return fast(ones(), {}), fast(ones(), {"k": 1})


@program
def test_exception_in_exit_and_enter(C):
    class Bad:
        def __init__(self, where):
            self.where = where

        def __enter__(self):
            if self.where == "enter":
                raise ValueError("enter")
            return self

        def __exit__(self, *a):
            if self.where == "exit":
                raise KeyError("exit")

    def f(x, where):
        try:
            with Bad(where):
                x = x + 1
                if where == "body":
                    raise TypeError("body")
        except Exception as error:
            return x, repr(error)
        return x, ""

    fast = C(f)
    return [fast(ones(), w) for w in ("enter", "exit", "body", "none")]


@program
def test_stop_iteration_inside_generator(C):
    def gen():
        yield 1
        raise StopIteration("early")

    def f(x):
        try:
            for v in gen():
                x = x + v
        except RuntimeError as error:
            return x, str(error)
        return x, ""

    return C(f)(ones())


@program
def test_generator_throw(C):
    def gen(x):
        while True:
            try:
                yield x
            except ValueError as error:
                yield x + len(str(error))
                return

    def f(x):
        g = gen(x)
        a = next(g)
        b = g.throw(ValueError("four"))
        return a + b, next(g, "end")

    return C(f)(ones())


@program
def test_traceback_names_the_user_function(C):
    def broken_inside(x):
        y = x + 1
        return y @ torch.ones(5, 5)

    fast = C(broken_inside)
    names = []
    for _ in range(2):
        try:
            fast(ones(2, 3))
        except RuntimeError as error:
            names.append("broken_inside" in [f.name for f in traceback.extract_tb(error.__traceback__)])
    return names


@program
def test_traceback_read_inside(C):
    def f(x):
        try:
            raise ValueError("v")
        except ValueError as error:
            depth = 0
            tb = error.__traceback__
            while tb is not None:
                depth, tb = depth + 1, tb.tb_next
        return x + depth

    return C(f)(ones())


@program
def test_add_note_and_with_traceback(C):
    def f(x):
        y = x + 1
        error = ValueError("v")
        error.add_note("note")
        try:
            raise error.with_traceback(None)
        except ValueError as caught:
            return y, caught.__notes__, caught is error

    return C(f)(ones())


@program
def test_keyboard_interrupt_and_system_exit_pass(C):
    def f(x, cls):
        y = x + 1
        try:
            raise cls(3)
        except Exception:
            return y

    fast = C(f)
    out = []
    for cls in (KeyboardInterrupt, SystemExit, GeneratorExit):
        try:
            out.append(fast(ones(), cls))
        except BaseException as error:
            out.append((type(error).__name__, error.args))
    return out


@program
def test_raise_in_finally_replaces(C):
    def f(x):
        y = x + 1
        try:
            raise ValueError("first")
        finally:
            raise KeyError("second")

    try:
        C(f)(ones())
    except KeyError as error:
        return repr(error), repr(error.__context__)


@program
def test_nested_finally_order(C):
    log = []

    def f(x, fail):
        try:
            try:
                log.append("a")
                if fail:
                    raise ValueError
                return x + 1
            finally:
                log.append("b")
        except ValueError:
            log.append("c")
            return x - 1
        finally:
            log.append("d")

    fast = C(f)
    return fast(ones(), False), fast(ones(), True), log


@program
def test_zero_division_and_overflow(C):
    def f(x, a, b):
        try:
            return x + a / b
        except ZeroDivisionError as error:
            return x, str(error)
        except OverflowError as error:
            return x - 1, str(error)

    fast = C(f)
    return fast(ones(), 1, 2), fast(ones(), 1, 0), fast(ones(), 1.0, 0.0), fast(ones(), 10**400, 3)


@program
def test_every_division_by_zero(C):
    """In a version for the numbers of one call as well as in one for all numbers; the words are this Python's."""
    found = []
    for divide in (operator.truediv, operator.floordiv, operator.mod, divmod):

        def f(x, a, b, divide=divide):
            try:
                return x + torch.tensor(divide(a, b))[..., None]
            except ZeroDivisionError as error:
                return x, str(error)

        for numbers in (
            [(1, 2), (1, 0), (7, 3), (7, 0)],
            [(5, 2), (6, 3), (7, 0)],
            [(1.5, 2.5), (1.5, 0.0), (3.5, 0.0)],
            [(7, 3.5), (7, 0.0)],
            [(7.5, 3), (7.5, 0)],
            [(True, 2), (True, 0), (False, True)],
        ):
            fast = C(f)
            found += [fast(ones(), a, b) for a, b in numbers]
    return found


class Halves:
    def __divmod__(self, other):
        return 5, other

    def __rdivmod__(self, other):
        return other, 8


@program
def test_divmod_of_other_objects(C):
    fast = C(lambda x, a, b: (x + 1, divmod(a, b)))
    pairs = [(Halves(), 2), (2, Halves()), (ones(), 2), (2, ones()), ("a", 2), (2.5, 1), (7, 2)]
    return [outcome(fast, ones(), a, b) for a, b in pairs]


@program
def test_attribute_error_of_a_tensor(C):
    def f(x):
        try:
            return x.no_such_thing
        except AttributeError as error:
            return x + 1, str(error)

    return C(f)(ones())


@program
def test_type_errors_of_builtins(C):
    def attempt(call):
        try:
            return call()
        except (TypeError, ValueError, IndexError, KeyError) as error:
            return type(error).__name__, str(error)

    def f(x):
        y = x + 1
        return (
            y,
            attempt(lambda: len(5)),
            attempt(lambda: [1][3]),
            attempt(lambda: {"a": 1}["b"]),
            attempt(lambda: int("x")),
            attempt(lambda: "a" + 1),
            attempt(lambda: [1] + (2,)),
            attempt(lambda: next(iter([]))) if False else None,
            attempt(lambda: sorted([1, "a"])),
            attempt(lambda: max([])),
            attempt(lambda: [].pop()),
            attempt(lambda: [1].remove(5)),
            attempt(lambda: [1].index(5)),
            attempt(lambda: (1, 2).index(5)),
            attempt(lambda: {[]: 1}),
            attempt(lambda: set().pop()),
            attempt(lambda: {}.pop("k")),
            attempt(lambda: {}.popitem()),
            attempt(lambda: range(3)[7]),
            attempt(lambda: isinstance(1, 2)),
        )

    return C(f)(ones())


@program
def test_unsupported_tensor_arguments(C):
    def f(x, bad):
        return torch.add(x, bad)

    fast = C(f)
    return [outcome(fast, ones(), bad)[0] for bad in ("s", None, [1], {})], outcome(fast, ones(), 1)


@program
def test_wrong_arguments_of_the_compiled_function(C):
    def f(x, *, k=1):
        return x + k

    fast = C(f)
    texts = [outcome(fast), outcome(fast, ones(), 2), outcome(fast, ones(), z=2), outcome(fast, ones(), k=5)]
    return [t if isinstance(t, torch.Tensor) else (t[0], t[1].split("<locals>.")[-1]) for t in texts]


@program
def test_effects_before_an_error_that_depends_on_data(C):
    log, counts = [], {}

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.table = torch.nn.Embedding(4, 2)
            torch.nn.init.ones_(self.table.weight)

        def forward(self, i, *rest, scale=1, **extra):
            self.calls += 1
            log.append(self.calls)
            y = self.table(i) * scale
            counts["after"] = counts.get("after", 0) + 1
            return y

    m = M()
    fast = C(m)
    good, bad = torch.tensor([1, 2]), torch.tensor([1, 99])
    out = [
        fast(good).detach(),
        outcome(fast, bad, 3, scale=2, z=1)[0],
        fast(good, 3, scale=2, z=1).detach(),
        outcome(fast, bad, 3, scale=2, z=1)[0],
    ]
    return out, m.calls, log, counts


@program
def test_error_from_data_under_no_grad_and_finally(C):
    log = []

    def pick(t, i):
        try:
            with torch.no_grad():
                return t.index_select(0, i)
        finally:
            log.append(torch.is_grad_enabled())

    def f(t, i):
        try:
            return pick(t, i) + 1
        except (IndexError, RuntimeError) as error:
            log.append(error.__context__ is None)
            return t.sum()

    fast = C(f)
    t = torch.arange(4.0)
    return [fast(t, torch.tensor([k])) for k in (1, 9, 2)], log, torch.is_grad_enabled()


@program
def test_singular_matrix_is_caught(C):
    def f(a):
        try:
            return torch.linalg.inv(a)
        except torch.linalg.LinAlgError:
            return a * 0 - 1

    fast = C(f)
    return fast(torch.eye(2)), fast(torch.zeros(2, 2)), fast(torch.eye(2) * 2)


@program
def test_input_written_before_an_error_that_depends_on_data(C):
    log = []

    def f(x, t, i):
        log.append(len(log))
        x.add_(1)
        y = t[i] + x
        x.mul_(2)
        return y

    fast = C(f)
    x, t = ones(), torch.arange(4.0)
    return fast(x, t, torch.tensor([1, 2])), outcome(fast, x, t, torch.tensor([0, 7]))[0], x, log
