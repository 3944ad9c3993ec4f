"""Control flow: loops, returns out of try/finally, match, walrus, unpacking, del, recursion."""

import torch

from tests.programs.program import ones, outcome, program


@program
def test_return_in_finally_wins(C):
    def f(x):
        try:
            return x + 1
        finally:
            return x + 2

    return C(f)(ones())


@program
def test_finally_runs_after_return(C):
    log = []

    def f(x):
        for i in range(3):
            try:
                if i == 1:
                    return x * i
            finally:
                log.append(i)
        return x

    fast = C(f)
    return fast(ones()), fast(ones()), log


@program
def test_continue_and_break_in_finally(C):
    def f(x):
        seen = []
        for i in range(5):
            try:
                if i == 1:
                    continue
                if i == 3:
                    break
                x = x + i
            finally:
                seen.append(i)
        else:
            seen.append("else")
        return x, seen

    return C(f)(ones())


@program
def test_loop_else(C):
    def f(x, n):
        for i in range(n):
            if i == 3:
                x = x * 10
                break
        else:
            x = x - 1
        while n > 0:
            n -= 1
        else:
            x = x + 0.5
        return x

    fast = C(f)
    return [fast(ones(), n) for n in (2, 5, 0)]


@program
def test_match_statement(C):
    class Point:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    def f(x, what):
        match what:
            case {"scale": s, **rest}:
                return x * s + len(rest)
            case [first, *others]:
                return x + first + sum(others)
            case Point(a=0):
                return x - 1
            case Point(p, q) if p > q:
                return x - p
            case str() | None:
                return x * 0
            case _:
                return x

    fast = C(f)
    inputs = ({"scale": 2, "k": 1}, [1, 2, 3], Point(0, 1), Point(3, 1), Point(1, 3), "s", None, 7)
    return [fast(ones(), w) for w in inputs]


@program
def test_walrus_in_comprehension(C):
    def f(x):
        if (n := x.shape[0]) > 1:
            parts = [last := x * i for i in range(n)]
            return sum(parts) + last
        return x

    fast = C(f)
    return fast(ones(3)), fast(ones(1))


@program
def test_star_unpacking(C):
    def g(*args, k=1, **kw):
        return args, k, kw

    def f(x):
        a, *b, c = [x, x + 1, x + 2, x + 3]
        (d, e), f_ = (1, 2), 3
        args, k, kw = g(*b, *[a], **{"k": 5}, **{"z": c})
        return [*args, *range(2)], {**kw, "k": k}, d + e + f_

    return C(f)(ones())


@program
def test_unpacking_errors(C):
    def f(x, parts):
        try:
            a, b = parts
        except ValueError as error:
            return x, str(error)
        return x + a + b, ""

    fast = C(f)
    return [fast(ones(), parts) for parts in ([1, 2], [1], [1, 2, 3], (4, 5))]


@program
def test_del_local_and_unbound(C):
    def f(x, early):
        y = x + 1
        if early:
            del y
        return y * 2

    fast = C(f)
    return fast(ones(), False), outcome(fast, ones(), True)[0]


@program
def test_recursion(C):
    def depth(x, n):
        return x if n == 0 else depth(x + n, n - 1)

    fast = C(depth)
    return fast(ones(), 3), fast(ones(), 3)


@program
def test_mutual_recursion_through_globals(C):
    return C(_even)(ones(), 4)


def _even(x, n):
    return x if n == 0 else _odd(x + 1, n - 1)


def _odd(x, n):
    return x * 2 if n == 0 else _even(x * 2, n - 1)


@program
def test_mutating_a_list_while_iterating(C):
    def f(x):
        items = [1, 2, 3]
        for i in items:
            x = x + i
            if len(items) < 6:
                items.append(i * 10)
        return x, items

    return C(f)(ones())


@program
def test_mutating_a_dict_while_iterating(C):
    def f(x):
        d = {"a": 1, "b": 2}
        try:
            for k in d:
                d[k + "x"] = 1
        except RuntimeError as error:
            return x + 1, str(error)
        return x, ""

    return C(f)(ones())


@program
def test_mutating_an_outside_dict_while_iterating(C):
    d = {"a": 1, "b": 2}

    def f(x):
        for k in d:
            d[k + "x"] = 1
        return x + 1

    return outcome(C(f), ones()), list(d)


@program
def test_nonlocal_counter(C):
    def make():
        count = 0

        def f(x):
            nonlocal count
            count += 1
            return x + count

        return f, lambda: count

    f, get = make()
    fast = C(f)
    return [fast(ones()) for _ in range(4)], get()


@program
def test_cell_shared_by_two_closures(C):
    def f(x):
        total = 0

        def add(n):
            nonlocal total
            total += n
            return total

        def get():
            return total

        add(1)
        add(2)
        return x + get(), add, get

    y, add, get = C(f)(ones())
    add(10)
    return y, get()


@program
def test_late_binding_in_a_loop(C):
    def f(x):
        late = [lambda: x * i for i in range(3)]
        early = [lambda i=i: x * i for i in range(3)]
        return [g() for g in late], [g() for g in early]

    return C(f)(ones())


@program
def test_conditional_expression_chains(C):
    def f(x, a):
        return x + (1 if 0 < a < 3 else 2 if a >= 3 else (a or 5))

    fast = C(f)
    return [fast(ones(), a) for a in (0, 1, 3, -1)]


@program
def test_global_statement(C):
    global _GLOBAL_COUNT
    _GLOBAL_COUNT = 0

    def f(x):
        global _GLOBAL_COUNT
        _GLOBAL_COUNT += 1
        return x * _GLOBAL_COUNT

    fast = C(f)
    return [fast(ones()) for _ in range(3)], _GLOBAL_COUNT


_GLOBAL_COUNT = 0


@program
def test_del_global(C):
    globals()["_SHORT_LIVED"] = 5

    def f(x):
        global _SHORT_LIVED
        y = x + _SHORT_LIVED
        del _SHORT_LIVED
        return y

    fast = C(f)
    first = fast(ones())
    return first, "_SHORT_LIVED" in globals(), outcome(fast, ones())


@program
def test_assert_with_message(C):
    def f(x, n):
        assert n > 0, f"n is {n}"
        return x + n

    fast = C(f)
    return fast(ones(), 1), outcome(fast, ones(), -1), fast(ones(), 2)


@program
def test_tensor_condition_in_while(C):
    def f(x):
        n = 0
        while x.sum() < 20:
            x = x * 2
            n += 1
        return x, n

    fast = C(f)
    return fast(ones()), fast(torch.full((2,), 30.0))


@program
def test_short_circuit_returns_the_object(C):
    def f(x, a, b):
        first = a or b
        second = a and b
        return x + len(first), first is b, second is a

    fast = C(f)
    return fast(ones(), [], [1]), fast(ones(), [1], [2, 3])


@program
def test_chained_assignment_and_swap(C):
    def f(x):
        a = b = [x]
        b.append(x + 1)
        c, d = 1, 2
        c, d = d, c
        a[0], a[1] = a[1], a[0]
        return a, a is b, c, d

    return C(f)(ones())


@program
def test_augmented_assignment_evaluates_once(C):
    calls = []

    def index():
        calls.append(1)
        return 0

    def f(x):
        items = [x, x]
        items[index()] += 1
        return items

    return C(f)(ones()), calls


@program
def test_exec_and_eval(C):
    def f(x):
        y = eval("3 + 4")
        scope = {}
        exec("z = 10", scope)
        return x + y + scope["z"]

    fast = C(f)
    return fast(ones()), fast(ones())


@program
def test_locals_and_globals(C):
    def f(x):
        a = 3
        names = sorted(locals())
        return x + locals()["a"] + a, names, "ones" in globals()

    return C(f)(ones())


@program
def test_comprehension_scopes(C):
    def f(x):
        i = 100
        squares = {i: i * i for i in range(3)}
        flat = [a * b for a in range(3) if a for b in range(2)]
        gen = sum(v for v in (n + 1 for n in range(3)))
        return x + i + gen, squares, flat, {v % 2 for v in range(4)}

    return C(f)(ones())


@program
def test_nested_generator_with_send_and_close(C):
    log = []

    def counter():
        got = 0
        try:
            while True:
                got = (yield got) or got + 1
        finally:
            log.append("closed")

    def f(x):
        it = counter()
        a = next(it)
        b = it.send(10)
        c = next(it)
        it.close()
        return x + a + b + c

    return C(f)(ones()), log


@program
def test_yield_from_returns_a_value(C):
    def inner(x):
        yield x
        yield x + 1
        return "done"

    def outer(x):
        result = yield from inner(x)
        yield result

    def f(x):
        a, b, c = outer(x)
        return a + b, c

    return C(f)(ones())


@program
def test_class_statement_inside(C):
    def f(x):
        class Box:
            scale = 3

            def __init__(self, v):
                self.v = v

            def scaled(self):
                return self.v * self.scale

        Box.scale += 1
        return Box(x).scaled(), Box.__name__

    fast = C(f)
    return fast(ones()), fast(ones())


@program
def test_lambda_default_and_varargs(C):
    def f(x):
        g = lambda a, *rest, b=2, **kw: a + b + len(rest) + len(kw)
        return g(x), g(x, 1, 2, b=0, z=1)

    return C(f)(ones())


@program
def test_wrong_call_signature_is_a_type_error(C):
    def g(a, b, *, c):
        return a

    def f(x, how):
        try:
            return g(x) if how == 0 else g(x, 1) if how == 1 else g(x, 1, c=2, d=3) if how == 2 else g(x, 1, 2, c=3)
        except TypeError as error:
            return x + 1, str(error).replace("test_wrong_call_signature_is_a_type_error.<locals>.", "")

    fast = C(f)
    return [fast(ones(), how) for how in range(4)]
