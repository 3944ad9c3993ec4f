"""Frames that break: what was made, changed, entered or half used before the break must be the same after it."""

import collections
import contextlib
import dataclasses
import functools
import types

import torch
import torch.nn as nn

from tests.programs.program import ones, outcome, program


def pause(*anything):
    """Not captured: everything around its call resumes."""
    print(end="")


@program
def test_class_statement_with_state_across_a_break(C):
    def f(x):
        class Holder:
            items = []

        Holder.items.append(1)
        y = x * 2
        pause()
        Holder.items.append(2)
        return y * 3 + len(Holder.items), Holder.items

    return C(f)(ones())


@program
def test_made_objects_stay_the_same_object(C):
    class Node:
        def __init__(self, v):
            self.v, self.next = v, None

    def f(x):
        a = Node(x + 1)
        b = Node(x + 2)
        a.next, b.next = b, a
        items = [a, b, a]
        pause()
        items[0].v = items[0].v * 10
        return items[2].v, a.next.next is a, items[0] is a, b.v

    return C(f)(ones())


@program
def test_containers_of_all_kinds(C):
    P = collections.namedtuple("P", "a b")

    @dataclasses.dataclass
    class D:
        n: int
        t: torch.Tensor

    def f(x):
        p, d = P(x, 2), D(1, x + 1)
        o = collections.OrderedDict(a=x)
        q = collections.deque([1, x], maxlen=2)
        dd = collections.defaultdict(list)
        dd["k"].append(x)
        s, fs, b = {1, 2}, frozenset([3]), slice(0, 1)
        ns = types.SimpleNamespace(v=x)
        c = collections.Counter("aab")
        pause()
        dd["z"].append(1)
        q.append(3)
        c["a"] += 1
        return p.a + d.t + ns.v + o["a"], list(q), dict(dd), sorted(s | fs), x[b], c["a"], d.n, p.b, type(p).__name__

    return C(f)(ones())


@program
def test_iterators_half_used(C):
    def gen(n):
        for i in range(n):
            yield i * 10

    def f(x):
        a, b, c = iter([1, 2, 3]), enumerate("abc"), zip([1, 2], [3, 4], strict=True)
        d, e, g = iter({"p": 1, "q": 2}.items()), map(lambda v: v + 1, [1, 2, 3]), gen(3)
        r = reversed([1, 2, 3])
        for it in (a, b, c, d, e, g, r):
            next(it)
        pause()
        return x + next(a), list(b), list(c), list(d), list(e), list(g), list(r)

    return C(f)(ones())


@program
def test_break_in_every_iteration(C):
    def f(x, n):
        out = []
        for i, v in enumerate(range(n)):
            if i == 2:
                continue
            pause(i)
            x = x + v
            out.append(x.shape[0] + i)
            if i == 5:
                break
        else:
            out.append("else")
        return x, out

    fast = C(f)
    return fast(ones(), 4), fast(ones(), 8)


@program
def test_break_in_try_except_else_finally(C):
    log = []

    def f(x, fail):
        try:
            pause()
            if fail == 1:
                raise ValueError("a")
            x = x + 1
        except ValueError as error:
            pause()
            log.append(str(error))
            x = x - 1
        else:
            pause()
            log.append("else")
        finally:
            pause()
            log.append("finally")
            x = x * 2
        return x

    fast = C(f)
    return fast(ones(), 0), fast(ones(), 1), fast(ones(), 0), log


@program
def test_break_while_an_exception_is_handled(C):
    def f(x):
        try:
            try:
                raise KeyError("k")
            except KeyError:
                pause()
                raise ValueError("v")
        except ValueError as error:
            pause()
            return x + 1, repr(error.__context__)

    return C(f)(ones())


@program
def test_bare_raise_after_a_break(C):
    def f(x):
        try:
            raise KeyError("k")
        except KeyError:
            y = x + 1
            pause()
            raise

    return outcome(C(f), ones())


@program
def test_break_under_no_grad_and_autocast(C):
    w = torch.eye(2, requires_grad=True)

    def f(x):
        with torch.no_grad():
            a = x @ w
            pause()
            b = x @ w
            with torch.autocast("cpu", dtype=torch.bfloat16):
                c = x @ w
                pause()
                d = x @ w
        e = x @ w
        return a.requires_grad, b.requires_grad, c.dtype, d.dtype, e.dtype, e.requires_grad, torch.is_grad_enabled()

    fast = C(f)
    return fast(torch.eye(2)), fast(torch.eye(2))


@program
def test_break_in_an_inlined_callee(C):
    log = []

    def inner(x, k):
        log.append("in")
        y = x * k
        pause()
        log.append("out")
        return y + 1

    def middle(x):
        total = 0
        for k in (1, 2):
            total = total + inner(x, k)
        return total

    def f(x):
        before = len(log)
        y = middle(x)
        return y, before, len(log)

    fast = C(f)
    return fast(ones()), fast(ones()), log


@program
def test_nonlocal_across_a_break(C):
    def f(x):
        n = 0

        def bump():
            nonlocal n
            n += 1
            return n

        bump()
        pause()
        bump()
        y = x + n
        pause(bump)
        return y + bump(), n

    return C(f)(ones())


@program
def test_closures_made_before_and_called_after(C):
    def f(x):
        fs = [lambda v, i=i: v * i + k for i in range(3)]
        k = 1
        pause()
        k = 10
        return [g(x) for g in fs], functools.partial(fs[1], x)()

    return C(f)(ones())


@program
def test_break_inside_a_comprehension(C):
    def noisy(v):
        pause()
        return v + 1

    def f(x):
        i = 7
        rows = [noisy(x * i) for i in range(3)]
        table = {i: noisy(i) for i in range(2)}
        return rows, table, i

    return C(f)(ones())


@program
def test_break_inside_an_expression(C):
    def three():
        pause()
        return 3

    def f(x):
        return (x + 1) * three() + [x, three(), {"k": x - three()}["k"]][2] if three() > 2 else x

    return C(f)(ones())


@program
def test_effects_in_order_around_breaks(C):
    log = []

    class Obj:
        pass

    o = Obj()
    o.n = 0

    def watch():
        pause()
        log.append(("seen", o.n, len(log)))

    def f(x):
        o.n += 1
        log.append("a")
        watch()
        o.n += 1
        log.append("b")
        watch()
        del o.n
        o.m = x
        return x + 1

    y = C(f)(ones())
    return y, log, sorted(vars(o))


@program
def test_argument_rebound_and_deleted(C):
    def f(x, a, *rest, k=1, **kw):
        a = x + 1
        pause()
        del k
        rest = (*rest, a)
        kw["new"] = 5
        pause()
        return a, rest, kw

    return C(f)(ones(), 1, 2, 3, k=4, z=1)


@program
def test_mutation_of_an_input_before_and_after(C):
    def f(x):
        x.add_(1)
        v = x[0]
        pause(x)
        v.mul_(10)
        return x.sum(), v

    x = torch.ones(2, 2)
    return C(f)(x), x


@program
def test_gradients_through_a_break(C):
    lin = nn.Linear(2, 2)

    def f(x):
        y = lin(x)
        z = y * y.detach().sum().item()
        pause()
        return torch.relu(z).sum() + y.sum()

    fast = C(f)
    x = ones().requires_grad_()
    fast(x).backward()
    return x.grad, lin.weight.grad


@program
def test_super_after_a_break(C):
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            y = x * 2
            pause()
            return super().go(y) + len(__class__.__name__)

    return C(B().go)(ones()), C(lambda x: B().go(x))(ones())


@program
def test_contextmanager_with_a_break_inside(C):
    log = []

    @contextlib.contextmanager
    def cm():
        log.append("+")
        pause()
        try:
            yield 4
        finally:
            pause()
            log.append("-")

    def f(x):
        with cm() as n:
            x = x + n
            pause()
            x = x * 2
        return x

    fast = C(f)
    return fast(ones()), fast(ones()), log


@program
def test_resumed_code_is_not_stale(C):
    box = {"k": 1}

    def f(x):
        y = x + 1
        pause()
        return y * box["k"]

    fast = C(f)
    out = [fast(ones())]
    box["k"] = 5
    out.append(fast(ones()))
    return out, [fast(torch.ones(n)) for n in (3, 4)]


@program(graphs=4)
def test_breaks_do_not_compile_each_time(C):
    def f(x, n):
        y = x + 1
        pause(n)
        return y * 2

    fast = C(f)
    return [fast(ones(), n) for n in range(12)]


@program
def test_walrus_and_chained_comparison_around_breaks(C):
    def num(n):
        pause()
        return n

    def f(x):
        if 0 < (a := num(3)) < num(5) and (b := num(2)):
            return x * a + b
        return x

    return C(f)(ones())


@program
def test_unpack_call_with_breaks(C):
    def parts():
        pause()
        return [1, 2]

    def g(*a, **k):
        return sum(a) + sum(k.values())

    def f(x):
        return x + g(*parts(), *parts(), **dict(z=3, **{"q": parts()[1]})), [*parts(), *"ab"], {**{"a": 1}, "b": parts()}

    return C(f)(ones())


@program
def test_del_and_reuse_of_names(C):
    def f(x):
        a = x + 1
        del a
        pause()
        try:
            a
        except UnboundLocalError as error:
            a = x * 3
            return a, type(error).__name__

    return C(f)(ones())


@program
def test_opaque_objects_across_breaks(C):
    view = types.MappingProxyType({"a": 1})
    source = iter([1, 2, 3])

    def f(x, it):
        y = x + view["a"]
        n = next(it)
        pause()
        return y + n + next(it), list(it), view

    y, rest, v = C(f)(ones(), source)
    return y, rest, v is view


@program
def test_global_written_before_a_break(C):
    global _SEEN
    _SEEN = 0

    def reader():
        pause()
        return _SEEN

    def f(x):
        global _SEEN
        _SEEN = 7
        n = reader()
        _SEEN += 1
        return x + n

    return C(f)(ones()), _SEEN


_SEEN = 0
