"""Context managers, torch's own state, nested options, threads, stances."""

import contextlib
import functools
import io
import threading
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import dyncomp
from tests.programs.program import ones, outcome, program


@program
def test_no_grad_in_every_form(C):
    w = ones().requires_grad_()

    @torch.no_grad()
    def decorated(x):
        return x * w

    def f(x):
        a = decorated(x)
        with torch.no_grad():
            b = x * w
            with torch.enable_grad():
                c = x * w
        prev = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        d = x * w
        torch.set_grad_enabled(prev)
        with torch.set_grad_enabled(False):
            e = x * w
        return [t.requires_grad for t in (a, b, c, d, e)], torch.is_grad_enabled(), c

    fast = C(f)
    flags, mode, c = fast(ones())
    with torch.no_grad():
        inner = fast(ones())[:2]
    c.sum().backward()
    return flags, mode, w.grad, inner


@program
def test_grad_mode_left_changed(C):
    def f(x):
        y = x * 2
        torch.set_grad_enabled(False)
        return y

    fast = C(f)
    y = fast(ones().requires_grad_())
    mode = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    return y.detach(), y.requires_grad, mode


@program
def test_error_inside_no_grad_restores_the_mode(C):
    def f(x, i):
        with torch.no_grad():
            return x[i] * 2

    fast = C(f)
    t = torch.arange(4.0)
    return fast(t, torch.tensor([1])), outcome(fast, t, torch.tensor([9]))[0], torch.is_grad_enabled()


@program
def test_inference_mode_inside(C):
    def f(x):
        with torch.inference_mode():
            y = x * 2
        return y.is_inference(), y.clone()

    return C(f)(ones())


@program
def test_autocast_nested(C):
    def f(a):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = a @ a
            with torch.autocast("cpu", enabled=False):
                y = a @ a
            z = F.softmax(x, -1)
        return x.dtype, y.dtype, z.dtype, (a @ a).dtype, torch.is_autocast_enabled("cpu")

    fast = C(f)
    out = [fast(torch.eye(2))]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out.append(fast(torch.eye(2)))
    return out


@program
def test_autocast_decorator(C):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def inner(a):
        return a @ a

    fast = C(lambda a: inner(a).float() + a)
    return fast(torch.eye(2)), fast(torch.eye(2))


@program
def test_function_mode_around_and_inside(C):
    calls = []

    class Log(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(getattr(func, "__name__", "?"))
            return func(*args, **(kwargs or {}))

    fast = C(lambda x: torch.sin(x) + 1)
    out = [fast(ones())]
    with Log():
        out.append(fast(ones()))
    out.append(fast(ones()))

    def g(x):
        with Log():
            return torch.cos(x)

    out.append(C(g)(ones()))
    return out, calls


@program
def test_dispatch_mode_around(C):
    from torch.utils._python_dispatch import TorchDispatchMode

    calls = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(func.name())
            return func(*args, **(kwargs or {}))

    fast = C(lambda x: torch.sin(x) * 2)
    fast(ones())
    with Log():
        y = fast(ones())
    return y, calls, fast(ones())


@program
def test_exit_stack(C):
    log = []

    class Cm:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append("+" + self.name)
            return self.name

        def __exit__(self, *a):
            log.append("-" + self.name)

    def f(x):
        with contextlib.ExitStack() as stack:
            names = [stack.enter_context(Cm(n)) for n in "ab"]
            stack.callback(log.append, "callback")
            y = x + len(names)
        return y

    fast = C(f)
    return fast(ones()), fast(ones()), log


@program
def test_contextmanager_functions(C):
    log = []

    @contextlib.contextmanager
    def tag(name, fail=False):
        log.append("in " + name)
        try:
            yield name
        except ValueError as error:
            log.append("caught " + str(error))
        finally:
            log.append("out " + name)

    def f(x, fail):
        with tag("a") as name, tag("b"):
            x = x + len(name)
            if fail:
                raise ValueError("v")
        return x

    @tag("deco")
    def g(x):
        return x * 2

    fast, fast_g = C(f), C(g)
    return fast(ones(), False), fast(ones(), True), fast_g(ones()), log


@program
def test_nullcontext_closing_and_redirect(C):
    class Res:
        closed = False

        def close(self):
            self.closed = True

    r = Res()

    def f(x):
        out = io.StringIO()
        with contextlib.nullcontext(5) as n, contextlib.closing(r), contextlib.redirect_stdout(out):
            print("hello")
            y = x + n
        return y, out.getvalue()

    return C(f)(ones()), r.closed


@program
def test_lock_and_with_statement_on_outside_objects(C):
    lock = threading.Lock()

    def f(x):
        with lock:
            y = x + 1
            held = lock.locked()
        return y, held

    fast = C(f)
    return fast(ones()), fast(ones()), lock.locked()


@program
def test_warnings_are_given(C):
    def f(x):
        warnings.warn("careful", UserWarning, stacklevel=1)
        return x + 1

    fast = C(f)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fast(ones())
        fast(ones())
    return [str(w.message) for w in seen]


@program
def test_return_inside_with_inside_loop(C):
    log = []

    @contextlib.contextmanager
    def cm(i):
        log.append(i)
        yield
        log.append(-i)

    def f(x):
        for i in range(1, 5):
            with cm(i):
                if i == 3:
                    return x + i
                x = x * 2
        return x

    return C(f)(ones()), log


@program
def test_break_inside_with_that_needs_python(C):
    state = []

    class Cm:
        def __enter__(self):
            state.append("in")

        def __exit__(self, *a):
            state.append("out")

    def f(x):
        with Cm():
            y = x + 1
            n = y.sum().item()
            z = y * n
        return z, len(state)

    fast = C(f)
    return fast(ones()), fast(ones()), state


@program
def test_disable_in_every_form(C):
    seen = []

    @dyncomp.disable
    def plain(x):
        seen.append(1)
        return x + 1

    @dyncomp.disable(recursive=False)
    def outer_plain(x):
        return plain(x) * 2

    def f(x):
        y = plain(x * 2)
        y = outer_plain(y)
        with contextlib.nullcontext():
            return y + 1

    fast = C(f)
    return fast(ones()), fast(ones()), len(seen)


@program
def test_enable_inside_disable_inside_enable(C):
    def f(x):
        return x * 2 + 1

    out = []
    with dyncomp.enable() if C is dyncomp.optimize else contextlib.nullcontext():
        out.append(f(ones()))
        with dyncomp.disable():
            out.append(f(ones()))
        out.append(f(ones() * 2))
    return out


@program
def test_region_around_a_compiled_function(C):
    fast = C(lambda x: torch.sin(x) + 1)
    with dyncomp.enable():
        first = fast(ones())
    return first, fast(ones())


@program
def test_stances(C):
    fast = C(lambda x: x * 2 + 1)
    out = []
    with dyncomp.set_stance("force_eager"):
        out.append(fast(ones()))
    out.append(fast(ones()))
    with dyncomp.set_stance("eager_on_recompile"):
        out.append(fast(ones(3)))
    return out


@program
def test_threads_with_different_options(C):
    def f(x):
        return (x * 2).sum() + x.shape[0]

    results = {}

    def work(k):
        fast = C(f, dynamic=bool(k % 2))
        results[k] = [fast(ones(n + 2)) for n in range(3)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return [results[k] for k in sorted(results)]


@program
def test_thread_started_inside(C):
    out = []

    def f(x):
        t = threading.Thread(target=lambda: out.append(x + 1))
        t.start()
        t.join()
        return out[-1] * 2

    fast = C(f)
    return fast(ones()), fast(ones()), len(out)


@program
def test_thread_local_data(C):
    local = threading.local()
    local.scale = 2

    def f(x):
        return x * local.scale

    fast = C(f)
    out = [fast(ones())]
    local.scale = 5
    out.append(fast(ones()))

    def other():
        local.scale = 100
        out.append(fast(ones()))

    t = threading.Thread(target=other)
    t.start()
    t.join()
    out.append(fast(ones()))
    return out


@program
def test_context_variables(C):
    import contextvars

    var = contextvars.ContextVar("v", default=1)

    def f(x):
        token = var.set(var.get() + 1)
        y = x * var.get()
        var.reset(token)
        return y + var.get()

    fast = C(f)
    out = [fast(ones())]
    var.set(10)
    out.append(fast(ones()))
    return out


@program
def test_generators_from_outside_partly_used(C):
    def numbers():
        yield from range(10)

    it = numbers()
    next(it)
    lst = iter([5, 6, 7])
    zipped = zip([1, 2, 3], "abc", strict=True)

    def f(x, source):
        return x + next(source), next(source)

    def g(x, source):
        total = 0
        for v in source:
            total += v if isinstance(v, int) else v[0]
            if total > 3:
                break
        return x + total

    fast, fast_g = C(f), C(g)
    return fast(ones(), it), fast(ones(), it), fast(ones(), lst), list(lst), fast_g(ones(), zipped), list(zipped), next(it)


@program
def test_compiled_generator_function(C):
    def gen(x):
        for i in range(3):
            yield x * i

    fast = C(gen)
    return list(fast(ones())), [y + 1 for y in fast(ones())]


@program
def test_async_function(C):
    import asyncio

    async def inner(x):
        await asyncio.sleep(0)
        return x + 1

    async def f(x):
        return (await inner(x)) * 2

    return asyncio.run(C(f)(ones()))


@program
def test_compiled_staticmethod_and_classmethod(C):
    class A:
        k = 3

        @staticmethod
        @C
        def s(x):
            return x + 1

        @classmethod
        @C
        def c(cls, x):
            return x * cls.k

        @property
        @C
        def p(self):
            return torch.ones(2) * self.k

    a = A()
    out = [A.s(ones()), a.s(ones()), A.c(ones()), a.c(ones()), a.p]
    A.k = 5
    return out, a.c(ones()), a.p


@program
def test_decorators_around_captured_functions(C):
    log = []

    def deco(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            log.append(fn.__name__)
            return fn(*args, **kwargs)

        return wrapper

    @C
    @deco
    def f(x, k=2):
        return x * k

    @deco
    @C
    def g(x):
        return x - 1

    return f(ones()), f(ones(), k=4), g(ones()), f.__name__, log


@program
def test_time_and_environment(C):
    import time

    def f(x):
        start = time.perf_counter()
        y = x + 1
        return y, time.perf_counter() >= start, time.time() > 1e9

    fast = C(f)
    return fast(ones()), fast(ones())


@program
def test_deterministic_flag_changes(C):
    fast = C(lambda x: x + int(torch.are_deterministic_algorithms_enabled()))
    out = [fast(ones())]
    torch.use_deterministic_algorithms(True)
    try:
        out.append(fast(ones()))
    finally:
        torch.use_deterministic_algorithms(False)
    return out, fast(ones())


@program
def test_num_threads_read_inside(C):
    fast = C(lambda x: x + torch.get_num_threads())
    before = torch.get_num_threads()
    out = [fast(ones())]
    torch.set_num_threads(1)
    out.append(fast(ones()))
    torch.set_num_threads(before)
    return out


@program
def test_profiler_record_function(C):
    def f(x):
        with torch.profiler.record_function("block"):
            return x + 1

    lin = nn.Linear(2, 2)
    return C(f)(ones()), C(lambda x: lin(f(x)))(ones()).detach()
