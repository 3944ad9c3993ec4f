"""functools, itertools, collections, operator, math, strings and numbers."""

import collections
import functools
import itertools
import math
import operator
import re
import types

import torch

from tests.programs.program import ones, outcome, program


@program
def test_functools(C):
    def f(x):
        add3 = functools.partial(lambda a, b, c: a + b * c, 1, c=3)
        meth = functools.partialmethod
        key = functools.cmp_to_key(lambda a, b: b - a)
        return x + add3(2), functools.reduce(operator.mul, [1, 2, 3], 1), sorted([1, 3, 2], key=key), meth is not None

    return C(f)(ones())


@program
def test_itertools(C):
    def f(x):
        a = list(itertools.chain([1], (2, 3), itertools.islice(itertools.count(5), 2)))
        b = [(k, list(g)) for k, g in itertools.groupby("aabbb")]
        c = list(itertools.zip_longest([1, 2], [3], fillvalue=0)), list(itertools.accumulate([1, 2, 3], operator.mul))
        d = list(itertools.compress("abc", [1, 0, 1])), list(itertools.filterfalse(lambda v: v % 2, range(5)))
        one, two = itertools.tee(iter([1, 2, 3]))
        next(one)
        e = list(itertools.starmap(pow, [(2, 3)])), list(itertools.pairwise([1, 2, 3])), list(itertools.product("ab", repeat=2))
        return x + sum(a), b, c, d, list(one), list(two), e, list(itertools.combinations_with_replacement("ab", 2))

    return C(f)(ones())


@program
def test_collections(C):
    def f(x):
        c = collections.Counter("hello")
        c.update("lo")
        d = collections.defaultdict(list)
        d["a"].append(x)
        d["b"]
        o = collections.OrderedDict(a=1, b=2)
        o.move_to_end("a")
        q = collections.deque([1, 2, 3], maxlen=3)
        q.appendleft(0)
        q.rotate(1)
        m = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
        return c.most_common(2), c["l"], list(d), list(o), list(q), m["a"] + m["b"], x + c["zz"], c - collections.Counter("l"), q[-1]

    def show(r):
        return [*r[:7], dict(r[7]), r[8]]

    return show(C(f)(ones()))


@program
def test_dict_methods(C):
    def f(x):
        d = {"a": 1, "b": 2}
        e = {**d, "a": 5} | {"c": x}
        d.setdefault("z", []).append(1)
        p = d.pop("a"), d.pop("none", 7), list(reversed(d)), d.keys() & {"b"}, d.items() >= {("b", 2)} if False else 0
        f_ = dict.fromkeys("ab", 0)
        f_ |= {"q": 1}
        del e["b"]
        return e, d, p, f_, dict(zip("ab", (1, 2), strict=True)), {k: v for k, v in sorted(f_.items(), reverse=True)}, "a" in d

    return C(f)(ones())


@program
def test_list_methods(C):
    def f(x):
        a = [3, 1, 2]
        a.sort(key=lambda v: -v)
        a.insert(1, 10)
        a[1:3] = [7, 8, 9]
        del a[0]
        a += (4,)
        a *= 2
        b = a[::-1]
        b.reverse()
        a.extend(v for v in range(2))
        return x + a.index(9), a, b, a.count(4), a == b, a > b, [0] * 3, [[]] * 2, min(a), max(a, key=lambda v: v % 5), a.pop(2), sorted(a)

    return C(f)(ones())


@program
def test_shared_inner_lists(C):
    def f(x):
        rows = [[]] * 2
        rows[0].append(x)
        grid = [[0] * 2 for _ in range(2)]
        grid[0][1] = 5
        a = b = []
        a.append(1)
        return rows, rows[0] is rows[1], grid, b

    return C(f)(ones())


@program
def test_string_methods(C):
    def f(x, s):
        return (
            x + len(s),
            s.upper().replace("A", "b").split("-"),
            f"{s!r:>8}|{3.14159:.3f}|{42:#x}|{1e10:g}|{s:^7}|{x.ndim:03d}|{'a' 'b'}",
            "%s-%05.2f-%d" % (s, 2.5, 7),
            "{0}{name}{0}".format(s, name=1),
            s.encode().hex(),
            "-".join([s, "z"]),
            s[::-1],
            s in "xabcx",
            s * 2,
            s.partition("b"),
            s.startswith(("a", "b")),
            str.maketrans({"a": "1"}),
            re.sub("a", "z", s),
            s.isidentifier(),
        )

    fast = C(f)
    return fast(ones(), "abc"), fast(ones(), "a-b")


@program
def test_big_integers_and_bits(C):
    def f(x, n):
        return n**5, n << 70, n.bit_length(), n & 0xFF, ~n, -n // 7, -n % 7, divmod(-n, 7), n ^ 3, int.from_bytes(b"ab", "big"), x + (n % 3)

    fast = C(f)
    return fast(ones(), 12345678901234567890), fast(ones(), 2**63 - 1), fast(ones(), -5)


@program
def test_int64_overflow_of_arguments(C):
    fast = C(lambda x, n: x + n)
    return [outcome(fast, torch.ones(2, dtype=torch.int64), n) for n in (2**31, 2**62, -(2**63))], outcome(fast, torch.ones(1, dtype=torch.int64), 2**64)[0]


@program
def test_float_formatting_and_rounding(C):
    def f(x, v):
        return str(v), repr(v), f"{v:.1f}", f"{v:e}", round(v), round(v, 1), int(v), v.is_integer(), v.hex(), math.floor(v), math.ceil(v), x * v

    fast = C(f)
    return [fast(ones(), v) for v in (2.5, -0.5, 1e22, 0.1 + 0.2, -2.675)]


@program
def test_nan_and_inf_in_containers(C):
    nan = float("nan")

    def f(x, v):
        d = {v: 1}
        return v in [v], v == v, d.get(v), [v].count(v), math.isnan(v), min(v, 1.0), max(1.0, v), sorted([3.0, v, 1.0])[0], x + 1

    fast = C(f)
    return fast(ones(), nan), fast(ones(), 1.0), fast(ones(), float("inf"))


@program
def test_bool_is_an_int(C):
    def f(x, b):
        return x + b, b + 1, {True: "a", 1: "b"}, [True, 1].count(1), isinstance(b, int), b is True, True == 1.0, sum([b, b]), "%d" % b, f"{b}", -b

    fast = C(f)
    return fast(ones(), True), fast(ones(), 1), fast(ones(), False)


@program
def test_minus_zero(C):
    def f(x, v):
        return math.copysign(1, v), str(v), v == 0, {0.0: 1}.get(v), x * v, 0.0 + v, -v

    fast = C(f)
    out = [fast(ones(), 0.0), fast(ones(), -0.0), fast(ones(), 0)]
    return out, [torch.signbit(o[4]) for o in out]


@program
def test_complex_numbers(C):
    def f(x, c):
        return c * 2, abs(c), c.real, c.conjugate(), x * c, complex(1, 2) == c

    fast = C(f)
    return fast(ones(), 1 + 2j), fast(ones(), 3j)


@program
def test_math_functions(C):
    def f(x, a):
        return x * math.sqrt(a), math.log(a, 2), math.gcd(12, 18), math.prod([1, 2, 3]), math.comb(5, 2), math.isclose(0.1 + 0.2, 0.3), math.fsum([0.1] * 10), math.hypot(3, 4), math.pi

    return C(f)(ones(), 4.0)


@program
def test_sum_compensation(C):
    def f(x):
        return sum([0.1] * 10), sum([1e100, 1.0, -1e100]), sum([[1], [2]], []), x + sum(range(5)), sum([True, 2.5])

    return C(f)(ones())


@program
def test_builtin_iteration_tools(C):
    def f(x):
        it = iter(lambda: next(src), 3)
        src = iter([1, 2, 3, 4])
        return (
            list(it),
            list(enumerate("ab", 1)),
            list(zip([1, 2], [3, 4, 5], strict=False)),
            list(map(lambda a, b: a + b, [1, 2], [3, 4])),
            list(filter(None, [0, 1, "", "a"])),
            any(v > 2 for v in [1, 3]),
            all([]),
            list(reversed(range(3))),
            x + len(range(0, 10, 3)),
            range(10)[2:8:3],
            5 in range(0, 10, 5),
            slice(1, None, 2).indices(5),
        )

    return C(f)(ones())


@program
def test_partly_used_iterators_returned(C):
    def f(x):
        a, b, c, d = iter([1, 2, 3]), enumerate("abc"), zip("ab", "cd", strict=True), map(str, [1, 2, 3])
        g = (v * 2 for v in range(4))
        for it in (a, b, c, d, g):
            next(it)
        return x + 1, a, b, c, d, g

    y, *its = C(f)(ones())
    return y, [list(it) for it in its]


@program
def test_sorting_stability_and_keys(C):
    def f(x):
        rows = [("b", 2), ("a", 2), ("c", 1)]
        return sorted(rows, key=lambda r: r[1]), sorted(rows, key=operator.itemgetter(1), reverse=True), sorted({"b": 1, "a": 2}), x + 1

    return C(f)(ones())


@program
def test_operator_module(C):
    def f(x):
        ns = types.SimpleNamespace(a=types.SimpleNamespace(b=x))
        return operator.attrgetter("a.b")(ns), operator.itemgetter(1, 0)([1, 2]), operator.methodcaller("sum")(x), operator.index(3), operator.iadd([1], [2]), operator.contains([1], 1), ns == ns

    return C(f)(ones())


@program
def test_simple_namespace_and_module_like(C):
    ns = types.SimpleNamespace(k=1, items=[1])

    def f(x):
        ns.k += 1
        ns.items.append(ns.k)
        ns.new = x
        return x + ns.k

    fast = C(f)
    return fast(ones()), fast(ones()), ns.k, ns.items, ns.new


@program
def test_dict_subclass_with_overrides(C):
    class Upper(dict):
        def __getitem__(self, k):
            return super().__getitem__(k.upper())

        def __setitem__(self, k, v):
            super().__setitem__(k.upper(), v)

        def __missing__(self, k):
            return -1

        def __contains__(self, k):
            return super().__contains__(k.upper())

    d = Upper(A=1)

    def f(x):
        d["b"] = 2
        made = Upper()
        made["q"] = x
        return x + d["a"] + d["b"] + d["zz"], "a" in d, d.get("a"), list(made), {**d}

    fast = C(f)
    return fast(ones()), fast(ones()), dict(d)


@program
def test_list_subclass_with_state(C):
    class Stack(list):
        limit = 2

        def append(self, v):
            if len(self) >= self.limit:
                self.pop(0)
            super().append(v)

        def __len__(self):
            return super().__len__()

    s = Stack()
    s.name = "s"

    def f(x):
        s.append(x)
        made = Stack([1, 2])
        made.append(3)
        return x + len(s), made, made[1:], type(made[:]).__name__

    fast = C(f)
    out = [fast(ones()) for _ in range(3)]
    return [[list(v) if isinstance(v, list) else v for v in o] for o in out], len(s), s.name


@program
def test_str_and_int_subclasses(C):
    class Name(str):
        def shout(self):
            return self.upper() + "!"

    class Count(int):
        def __add__(self, o):
            return 100

    n, c = Name("ab"), Count(3)

    def f(x):
        return x + len(n), n.shout(), n + "c", type(n).__name__, c + 1, c * 2, x * c, {n: 1}["ab"]

    fast = C(f)
    return fast(ones()), fast(ones())


@program
def test_user_dict_and_string_keys_objects(C):
    d = collections.UserDict(a=1)

    def f(x):
        d["b"] = d["a"] + 1
        return x + len(d), sorted(d)

    fast = C(f)
    return fast(ones()), fast(ones()), dict(d)


@program
def test_bytes_and_memory(C):
    def f(x, b):
        return b[0], b[1:], b.decode(), bytes([1, 2]), bytearray(b) + b"z", x + len(b)

    fast = C(f)
    return fast(ones(), b"abc"), fast(ones(), b"xy")


@program
def test_zip_of_module_parameters_and_lists(C):
    def f(xs, ys):
        return [a * b for a, b in zip(xs, ys, strict=True)], outcome(lambda: list(zip(xs, ys[:1], strict=True)))

    return C(f)([ones(), ones()], [2, 3])


@program
def test_frozenset_and_set_algebra(C):
    def f(x):
        a, b = {1, 2, 3}, frozenset([2, 3, 4])
        return sorted(a & b), sorted(a | b), sorted(a ^ b), sorted(a - b), a >= {1}, a.isdisjoint({9}), {b: 1}[frozenset([4, 3, 2])], x + len(a)

    return C(f)(ones())


@program
def test_struct_like_results(C):
    def f(x):
        v, i = x.max(0)
        r = torch.sort(x, descending=True)
        return v, i, r.values, r.indices, torch.topk(x, 1).values, type(r).__name__, x.min(0).indices

    return C(f)(torch.tensor([1.0, 3.0, 2.0]))
