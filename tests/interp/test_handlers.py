"""Statements and expressions of Python, each captured whole and compared with CPython."""

import pytest

from tests.interp.tracing import X, broken, trace, whole

LIMIT = 3


def arithmetic(x):
    n = 7
    n += 2
    n //= 2
    n <<= 1
    return -(x * n) + (+x) ** 2 - (~3 & 5 | 2 ^ 1) / 4 % 3


def comparisons(x):
    return x + (1 < 2 <= 2) + (3 != 4) + ("a" in "abc") + (5 not in [1, 2]) + (None is None) + (x is not None)


def chained_calls(x):
    return x.reshape(3, 2).t().contiguous().view(-1)[1:-1]


def subscripts(x):
    rows = [x[0], x[1], x[:, 1], x[..., None], x[0:2, ::2]]
    rows[0], rows[-1] = rows[-1], rows[0]
    del rows[1]
    return rows


def slices(x):
    numbers = list(range(10))
    numbers[2:4] = [0, 0, 0]
    del numbers[::3]
    return x + sum(numbers[1:]), numbers[-3:]


def unpacking(x):
    a, (b, *c), d = 1, (2, 3, 4), 5
    first, *rest = x
    return first * a + b + sum(c) + d, len(rest)


def while_loop(x):
    n = 0
    while True:
        n += 1
        if n == 2:
            continue
        if n > LIMIT:
            break
        x = x + n
    else:
        x = x * 100
    return x


def for_else(x):
    for i in range(3):
        if i == 7:
            break
        x = x + i
    else:
        x = x * 2
    return x


def comprehensions(x):
    i = 5
    parts = [x * i for i in range(4) if i % 2]
    table = {str(k): v for k, v in enumerate(parts)}
    names = {name for name in table}
    nested = [[a * b for a in range(2)] for b in range(3)]
    return table["0"] + table["1"] + len(names) + sum(map(sum, nested)) + i


def comprehension_with_cell(x):
    makers = [lambda k=i: k + i for i in range(3)]  # noqa: B023
    return x + sum(make() for make in makers)


def f_strings(x):
    n, name = 3, "ab"
    text = f"{n:>4}|{name!r}|{n}|{1.5:.3f}|{name:{n}}"
    return x + len(text), text


def boolean_operators(x):
    a = 0 or "" or [1]
    b = 1 and {} and 5
    c = None or x
    return c * (2 if a and not b else 3)


def star_calls(x):
    def collect(first, *args, key=1, **kwargs):
        return first * key + sum(args) + kwargs["other"]

    args, kwargs = (x, 1, 2), {"other": 4}
    return collect(*args, **kwargs, key=3) + collect(*[x], *(1,), **{"key": 2}, other=1)


def positional_only(x):
    def f(a, b=2, /, c=3, *, d=4):
        return a * b + c * d

    return f(x) + f(x, 5, c=1, d=2)


def assertions(x):
    assert x.dim() == 2, "a matrix"
    return x + 1


def walrus(x):
    if (n := x.shape[0]) > 1:
        return x * n
    return x


def deletion(x):
    y = x + 1
    del x
    table = {"a": 1, "b": 2}
    del table["a"]
    return y + table["b"]


def match_statement(x):
    total = 0
    for value in [1, "a", (1, 2), [1, 2, 3], {"k": 3, "m": 4}, 2.5, None]:
        match value:
            case 1:
                total += 1
            case str(text):
                total += 10 * len(text)
            case [a, b]:
                total += 100 * (a + b)
            case [a, *rest]:
                total += 1000 * len(rest)
            case {"k": k, **other}:
                total += 10000 * k + len(other)
            case float() | int():
                total += 7
            case _:
                total += 3
    return x + total


def global_names(x):
    return x + LIMIT + len("abc") + abs(-2)


def imports(x):
    import math
    import os.path as path
    from collections import OrderedDict

    return x * math.floor(math.pi), path.join("a", "b"), OrderedDict(a=1)


PROGRAMS = [
    arithmetic,
    comparisons,
    chained_calls,
    subscripts,
    slices,
    unpacking,
    while_loop,
    for_else,
    comprehensions,
    comprehension_with_cell,
    f_strings,
    boolean_operators,
    star_calls,
    positional_only,
    assertions,
    walrus,
    deletion,
    match_statement,
    global_names,
    imports,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_captured_whole(program):
    whole(program)


# -- breaks --------------------------------------------------------------------------------------------------
def prints(x):
    y = x + 1
    print(end="")
    return y * 2


def class_statement(x):
    y = x.sin()

    class Local:
        factor = 2

    return y * Local.factor


def branch_on_tensor(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y


def inlined_break(x):
    def inner(a):
        b = a + 1
        print(end="")
        return b * 2

    return inner(x) + 1


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (prints, "side-effect"),
        (class_statement, "unsupported-opcode"),
        (branch_on_tensor, "data-dependent-branch"),
        (inlined_break, "side-effect"),
    ],
    ids=lambda p: getattr(p, "__name__", p),
)
def test_break_is_named_and_runs_as_python(program, reason):
    record = trace(program).breaks[0]
    assert record.reason == reason
    assert record.filename == __file__
    broken(program, breaks=None)


def test_break_names_the_inner_line():
    record = trace(inlined_break).breaks[0]
    assert record.function.endswith("inner")
    assert [name for _, _, name in record.stack] == ["inlined_break", "inlined_break.<locals>.inner"]


def test_inlined_break_keeps_nothing_of_the_call():
    """The graph ends before the call; what the callee did first is done again by Python."""
    graph = trace(inlined_break).graph
    assert graph is None


def endless(x):
    n = 0
    while n >= 0:
        n += 1
    return x


def test_endless_loop_ends_in_a_break():
    from dyncomp import config

    with config.patch(unroll_limit=500):
        assert trace(endless).breaks[0].reason == "graph-too-large"


def recursive(x, n):
    return x if n == 0 else recursive(x, n - 1) + 1


def test_recursion():
    whole(recursive, X, 10)
    from dyncomp import config

    with config.patch(inline_depth=20):
        assert trace(recursive, X, 50).breaks[0].reason == "recursion"
