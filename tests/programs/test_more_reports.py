"""Further programs after public reports that fit no other group."""

import collections
import functools

import torch
import torch.nn as nn

from tests.programs.program import ones, outcome, program


@program
def test_iter_of_a_partly_used_reversed(C):
    def f(x):
        r = reversed([1, 2, 3, 4])
        first = next(r)
        again = iter(r)
        return x + first, again is r, list(again), list(r)

    return C(f)(ones())


@program
def test_deterministic_algorithms_set_inside(C):
    def f(x):
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        y = x + 1
        inside = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(before)
        return y, before, inside

    fast = C(f)
    return fast(ones()), fast(ones()), torch.are_deterministic_algorithms_enabled()


@program
def test_property_of_a_module_that_raises_attribute_error(C):
    class M(nn.Module):
        @property
        def width(self):
            return self.missing_thing

        def forward(self, x):
            return x + (1 if hasattr(self, "width") else 2)

    m = M()
    fast = C(m)
    first = fast(ones())
    m.missing_thing = 5
    return first, fast(ones())


@program(graphs=2)
def test_wrapped_closures_share_code(C):
    def deco(fn):
        @functools.wraps(fn)
        def inner(*args):
            return fn(*args) + len(fn.__name__)

        return inner

    def aa(x):
        return x * 2

    fast = C(lambda x, g: g(x))
    return [fast(ones(), deco(aa)) for _ in range(4)]


@program
def test_functions_kept_in_containers(C):
    table = {"a": torch.sin, "b": lambda x: x + 1, "c": nn.ReLU()}
    order = ["a", "b"]

    def f(x):
        for name in order:
            x = table[name](x)
        return x

    fast = C(f)
    out = [fast(ones())]
    order.append("c")
    table["b"] = torch.neg
    out.append(fast(ones()))
    return out


@program
def test_optimised_callables_in_containers(C):
    fns = [C(lambda x: x + 1), C(nn.Linear(2, 2)), C(functools.partial(torch.add, alpha=2))]
    fast = C(lambda x: fns[1](fns[0](x)) + fns[2](x, x))
    y = fast(ones())
    return y.detach(), fast(ones()).detach(), callable(fns[0])


@program
def test_optimised_function_returned_and_compared(C):
    inner = C(lambda x: x + 1)

    def f(x):
        return inner(x), inner, inner is inner, {inner: 1}[inner]

    y, fn, same, n = C(f)(ones())
    return y, fn is inner, same, n


@program
def test_eval_returns_the_module_itself(C):
    m = C(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))

    def f(x):
        same = m.eval() is m
        return m(x), same, m.training

    y, *rest = C(f)(ones())
    return y.detach(), rest, m.training


@program
def test_parameter_swapped_inside_and_restored(C):
    lin = nn.Linear(2, 2)

    def f(x, w):
        old = lin.weight
        lin.weight = w
        y = lin(x)
        lin.weight = old
        return y

    fast = C(f)
    w = nn.Parameter(torch.eye(2))
    before = lin.weight
    return fast(ones(), w).detach(), lin.weight is before, fast(ones(), w).detach()


@program
def test_lists_nested_in_themselves(C):
    def f(x):
        a = [x]
        a.append(a)
        d = {"self": None}
        d["self"] = d
        return a, d, x + 1

    a, d, y = C(f)(ones())
    return a[1] is a, d["self"] is d, a[0], y


@program
def test_zip_strict_error_and_enumerate_start(C):
    def f(x, n):
        try:
            pairs = list(zip(range(n), "ab", strict=True))
        except ValueError as error:
            return x, str(error)
        return x + 1, pairs

    fast = C(f)
    return fast(ones(), 2), fast(ones(), 3), fast(ones(), 1)


@program
def test_in_place_operators_of_immutable_and_mutable(C):
    def f(x):
        a = b = (1,)
        a += (2,)
        c = d = [1]
        c += [2]
        e = h = {1}
        e |= {2}
        s = t = "a"
        s += "b"
        u = v = x
        u += 1
        return a, b, c is d, e is h, s, t, u is v, v

    return C(f)(ones()), outcome(C(f), ones())


@program
def test_instance_swapped_for_a_subclass_with_slots(C):
    class A:
        __slots__ = ("v",)

    class B(A):
        __slots__ = ()

    def make(cls, v):
        o = cls()
        o.v = v
        return o

    fast = C(lambda x, o: x + o.v)
    return fast(ones(), make(A, 1)), fast(ones(), make(B, 2)), fast(ones(), make(A, 3))


@program
def test_hash_collisions_of_keys(C):
    d = {1: "int", "1": "str", 1.5: "float", (1, 2): "tuple", None: "none", -1: "m1", -2: "m2"}

    def f(x, k):
        return x, d.get(k, "?"), k in d

    fast = C(lambda x, k: (x + 1, *f(x, k)[1:]), recompile_limit=20)
    return [fast(ones(), k) for k in (1, True, 1.0, "1", 1.5, (1, 2), (1.0, 2), None, -1, -2, 2)]


@program
def test_slots_deleted_again(C):
    class A:
        __slots__ = ("a", "b")

    def f(x, o):
        o.b = 3
        del o.b
        o.a = x
        return x + 1, outcome(delattr, A(), "a")

    fast, o = C(f), A()
    return fast(ones(), o), fast(ones(), o), hasattr(o, "b"), o.a


@program
def test_in_place_methods_of_container_subclasses(C):
    class L(list):
        pass

    class D(dict):
        pass

    def f(x):
        made, table = L([1]), D(a=1)
        first = made
        made += [7]
        made *= 2
        table |= {"b": 2}
        return x + len(made) + len(table), made is first, type(made).__name__, type(table).__name__, list(made), dict(table)

    return C(f)(ones())


@program
def test_ordered_dict_with_one_value_twice(C):
    def f(x):
        table = collections.OrderedDict(a=x, b=x, c=x)
        table.move_to_end("b", last=False)
        return x + 1, list(table)

    return C(f)(ones())


@program
def test_generators_open_at_a_break_of_a_resumed_frame(C):
    def f(x):
        def numbers(n):
            total = 0
            for i in range(n):
                total += (yield i) or 0
            return total

        def closing():
            try:
                yield 1
                yield 2
            finally:
                seen.append("closed")

        it = numbers(3)
        seen = [next(it), it.send(10), it.send(20)]
        try:
            it.send(5)
        except StopIteration as stop:
            seen.append(stop.value)
        for _ in closing():
            break
        return x + sum(numbers(4)), seen, it.gi_running

    return C(f)(ones())


@program
def test_number_of_a_tensor_with_more_elements(C):
    def f(x):
        y = x + 1
        return y, [outcome(convert, y) for convert in (bool, int, float, complex, torch.Tensor.item)], outcome(lambda: y in [x])

    return C(f)(ones()), C(f, dynamic=True)(ones(3)), C(f)(torch.ones(0))


@program
def test_bytes_of_symbolic_sizes(C):
    fast = C(lambda x: (x + 1, x.nbytes), dynamic=True)
    return fast(ones(3)), fast(ones(5))


@program
def test_bound_special_methods_of_builtins(C):
    def f(x, holds, length):
        return x + 1, holds("a"), length(), "abc".__contains__("b"), (5).__radd__(3)

    return C(f)(ones(), "abc".__contains__, [1, 2].__len__)


@program
def test_index_of_the_wrong_dtype_is_an_index_error(C):
    def f(x):
        y = x * 2
        try:
            return y[y]
        except IndexError as error:
            return y, str(error)

    return C(f)(ones())
