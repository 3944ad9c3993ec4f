"""Something changes between two calls; the second call must see it."""

import collections
import functools
import types

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.programs.program import ones, outcome, program


@program
def test_defaults_replaced(C):
    def f(x, n=1, *, k=2):
        return x + n * k

    fast = C(f)
    out = [fast(ones())]
    f.__defaults__ = (10,)
    out.append(fast(ones()))
    f.__kwdefaults__ = {"k": 5}
    out.append(fast(ones()))
    f.__kwdefaults__["k"] = 6
    out.append(fast(ones()))
    f.__defaults__ = None
    return out, outcome(fast, ones())[0]


@program
def test_mutable_default(C):
    def f(x, seen=[]):
        seen.append(len(seen))
        return x + sum(seen)

    fast = C(f)
    return [fast(ones()) for _ in range(4)], f.__defaults__[0]


@program
def test_code_replaced(C):
    def f(x):
        return x + 1

    def g(x):
        return x * 5

    fast = C(f)
    first = fast(ones())
    f.__code__ = g.__code__
    return first, fast(ones())


@program
def test_code_of_an_inner_function_replaced(C):
    def inner(x):
        return x + 1

    def other(x):
        return x * 9

    fast = C(lambda x: inner(x))
    first = fast(ones())
    inner.__code__ = other.__code__
    return first, fast(ones())


@program
def test_global_function_redefined(C):
    fast = C(_uses_helper)
    first = fast(ones())
    before = globals()["_helper"]
    globals()["_helper"] = lambda x: x * 7
    try:
        return first, fast(ones())
    finally:
        globals()["_helper"] = before


def _helper(x):
    return x + 1


def _uses_helper(x):
    return _helper(x)


@program
def test_defaults_of_an_inner_function(C):
    def inner(x, n=1):
        return x + n

    fast = C(lambda x: inner(x))
    first = fast(ones())
    inner.__defaults__ = (9,)
    return first, fast(ones())


@program
def test_cell_reassigned_outside(C):
    scale = 1

    def f(x):
        return x * scale

    def set_scale(v):
        nonlocal scale
        scale = v

    fast = C(f)
    out = [fast(ones())]
    for v in (2, 3.5, torch.tensor(4.0), "s"):
        set_scale(v)
        out.append(outcome(fast, ones()) if v != "s" else outcome(fast, ones())[0])
    return out


@program
def test_closure_function_swapped(C):
    act = torch.relu

    def f(x):
        return act(x)

    def use(fn):
        nonlocal act
        act = fn

    fast = C(f)
    x = torch.tensor([-1.0, 2.0])
    out = [fast(x)]
    for fn in (torch.abs, F.silu, lambda t: t * 3, nn.ReLU(), abs):
        use(fn)
        out.append(fast(x))
    return out


@program
def test_torch_function_monkeypatched(C):
    fast = C(lambda x: F.relu(x) + torch.neg(x))
    x = torch.tensor([-1.0, 2.0])
    first = fast(x)
    relu, neg = F.relu, torch.neg
    F.relu = lambda t: t * 100
    torch.neg = lambda t: t + 7
    try:
        return first, fast(x)
    finally:
        F.relu, torch.neg = relu, neg


@program
def test_tensor_method_monkeypatched(C):
    fast = C(lambda x: x.relu())
    x = torch.tensor([-1.0, 2.0])
    first = fast(x)
    torch.Tensor.relu = lambda self: self * 100
    try:
        return first, fast(x)
    finally:
        del torch.Tensor.relu


@program
def test_tensor_method_added(C):
    torch.Tensor.triple_it = lambda self: self * 3
    try:
        fast = C(lambda x: x.triple_it())
        first = fast(ones())
        torch.Tensor.triple_it = lambda self: self * 30
        return first, fast(ones())
    finally:
        del torch.Tensor.triple_it


@program
def test_builtin_shadowed_by_a_global(C):
    fast = C(_uses_len)
    first = fast([ones(), ones()])
    globals()["len"] = lambda items: 100
    try:
        return first, fast([ones(), ones()])
    finally:
        del globals()["len"]


def _uses_len(items):
    return items[0] + len(items)


@program
def test_module_attribute_of_a_python_module(C):
    mod = types.ModuleType("settings")
    mod.scale, mod.fn = 2, lambda x: x + 1
    fast = C(lambda x: mod.fn(x) * mod.scale)
    out = [fast(ones())]
    mod.scale = 5
    out.append(fast(ones()))
    mod.fn = lambda x: x - 1
    out.append(fast(ones()))
    del mod.scale
    out.append(outcome(fast, ones())[0])
    return out


@program
def test_method_replaced_on_instance_then_class(C):
    class A:
        def go(self, x):
            return x + 1

    a = A()
    fast = C(lambda x: a.go(x))
    out = [fast(ones())]
    a.go = lambda x: x * 10
    out.append(fast(ones()))
    del a.go
    A.go = lambda self, x: x * 100
    out.append(fast(ones()))
    return out


@program
def test_bound_method_as_argument(C):
    class A:
        def __init__(self, n):
            self.n = n

        def go(self, x):
            return x + self.n

    fast = C(lambda x, fn: fn(x))
    a, b = A(1), A(2)
    out = [fast(ones(), a.go), fast(ones(), b.go)]
    a.n = 50
    out.append(fast(ones(), a.go))
    return out


@program
def test_list_length_and_items(C):
    items = [1, 2]
    fast = C(lambda x: x + sum(items) + len(items))
    out = [fast(ones())]
    items.append(3)
    out.append(fast(ones()))
    items[0] = 100
    out.append(fast(ones()))
    items.clear()
    out.append(fast(ones()))
    return out


@program
def test_dict_order_and_keys(C):
    d = {"a": 1.0, "b": 2.0}

    def f(x):
        for k, v in d.items():
            x = x * 2 + v if k != "c" else x - v
        return x

    fast = C(f)
    out = [fast(ones())]
    d["a"] = d.pop("a")
    out.append(fast(ones()))
    d["c"] = 5.0
    out.append(fast(ones()))
    return out


@program
def test_set_membership(C):
    s = {1, 2}
    fast = C(lambda x, k: x + 1 if k in s else x - 1)
    out = [fast(ones(), 3)]
    s.add(3)
    out.append(fast(ones(), 3))
    s.discard(3)
    out.append(fast(ones(), 3))
    return out


@program
def test_type_confusions_of_constants(C):
    fast = C(lambda x, k: x + {1: 10, "1": 20}.get(k, 0), recompile_limit=20)
    nan = float("nan")
    keys = (1, True, 1.0, "1", b"1", 0, False, None, -0.0, nan, 2**70)
    return [fast(ones(), k) for k in keys]


@program
def test_minus_zero_and_nan_arguments(C):
    fast = C(lambda x, v: (x / v, torch.full_like(x, v)))
    return [fast(ones(), v) for v in (0.0, -0.0, float("nan"), float("-inf"), 0)]


@program
def test_bool_int_float_arguments(C):
    fast = C(lambda x, v: (x * v, torch.tensor(v).dtype, type(v) is bool))
    return [fast(ones(), v) for v in (True, 1, 1.0, False, 0, 0.0)]


@program
def test_none_versus_tensor(C):
    fast = C(lambda x, m=None: x if m is None else x * m)
    return [fast(ones()), fast(ones(), ones() * 3), fast(ones(), None), fast(ones(), m=2)]


@program
def test_class_swapped_behind_a_name(C):
    class A:
        k = 1

    class B:
        k = 2

    use = A

    def f(x):
        return x + use().k

    def swap():
        nonlocal use
        use = B

    fast = C(f)
    first = fast(ones())
    swap()
    return first, fast(ones())


@program
def test_partial_arguments(C):
    def base(x, a, b=1):
        return x * a + b

    fast = C(lambda x, p: p(x))
    p = functools.partial(base, a=2)
    out = [fast(ones(), p), fast(ones(), functools.partial(base, a=3)), fast(ones(), functools.partial(base, a=3, b=7))]
    p.keywords["a"] = 50
    out.append(fast(ones(), p))
    return out


@program
def test_partial_as_target(C):
    def base(x, a, b=1):
        return x * a + b

    p = functools.partial(base, a=2)
    fast = C(p)
    first = fast(ones())
    p.keywords["b"] = 50
    return first, fast(ones())


@program
def test_training_flag_and_submodule_flag(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(x) + (1 if self.training else 2)

    m = M()
    fast = C(m)
    out = []
    for mode in (m.eval, m.train, m.drop.eval, m.eval):
        mode()
        torch.manual_seed(1)
        out.append(fast(ones(8)))
    return out


@program
def test_default_dtype(C):
    fast = C(lambda x: (x + torch.ones(2), torch.tensor(1.0), torch.arange(2.0)))
    first = fast(ones())
    torch.set_default_dtype(torch.float64)
    try:
        second = fast(ones().float())
    finally:
        torch.set_default_dtype(torch.float32)
    return first, second, fast(ones())


@program
def test_default_device(C):
    fast = C(lambda x: torch.zeros(2).device.type)

    def g(x):
        return x + 1, torch.ones(2)

    fast_g = C(g)
    out = [fast(ones()), fast_g(ones())]
    with torch.device("meta"):
        out.append(fast(None))
        out.append(str(fast_g(torch.ones(2, device="cpu"))[1].device))
    out.append(fast_g(ones()))
    return out


@program
def test_dtype_and_shape_of_parameters_change(C):
    lin = nn.Linear(2, 2)
    fast = C(lin)
    out = [fast(ones())]
    lin.double()
    out.append(fast(ones().double()))
    lin.weight = nn.Parameter(torch.ones(3, 2))
    lin.bias = None
    out.append(fast(ones()))
    lin.weight.data = torch.full((3, 2), 2.0)
    out.append(fast(ones()))
    return out


@program
def test_module_list_edited(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x, len(self.layers)

    m = M()
    fast = C(m)
    x = torch.tensor([-1.0, 2.0])
    out = [fast(x)]
    m.layers.append(nn.Sigmoid())
    out.append(fast(x))
    m.layers[0] = nn.Identity()
    out.append(fast(x))
    del m.layers[1]
    out.append(fast(x))
    m.layers.insert(0, nn.Softplus())
    out.append(fast(x))
    return out


@program
def test_sequential_and_module_dict_edited(C):
    seq = nn.Sequential(collections.OrderedDict(a=nn.ReLU(), b=nn.Tanh()))
    table = nn.ModuleDict({"k": nn.ReLU()})
    fast = C(lambda x: (seq(x), [m(x) for m in table.values()], "z" in table))
    x = torch.tensor([-1.0, 2.0])
    out = [fast(x)]
    seq.b = nn.Identity()
    table["z"] = nn.Sigmoid()
    out.append(fast(x))
    seq.append(nn.Softsign())
    table.pop("k")
    out.append(fast(x))
    return out


@program
def test_parameter_list_and_dict(C):
    plist = nn.ParameterList([torch.ones(2), torch.ones(2) * 2])
    pdict = nn.ParameterDict({"a": torch.ones(2)})
    fast = C(lambda x: x + sum(plist) + pdict["a"])
    out = [fast(ones()).detach()]
    plist.append(torch.ones(2) * 5)
    pdict["a"] = torch.ones(2) * 10
    out.append(fast(ones()).detach())
    return out


@program
def test_buffer_replaced_or_made_none(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.ones(2))

        def forward(self, x):
            return x if self.b is None else x + self.b

    m = M()
    fast = C(m)
    out = [fast(ones())]
    m.b = torch.full((2,), 7.0)
    out.append(fast(ones()))
    m.b = None
    out.append(fast(ones()))
    del m.b
    m.b = torch.full((2,), 3.0)
    out.append(fast(ones()))
    return out


@program
def test_tied_weights_untied(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    m = M()
    fast = C(m)
    out = [fast(ones()).detach()]
    fast(ones()).sum().backward()
    out.append(m.a.weight.grad.clone())
    m.b.weight = nn.Parameter(torch.eye(2))
    m.a.weight.grad = None
    out.append(fast(ones()).detach())
    fast(ones()).sum().backward()
    out += [m.a.weight.grad, m.b.weight.grad]
    return out


@program
def test_list_aliasing_between_calls(C):
    def f(x, a, b):
        a.append(x)
        return x + len(b)

    fast = C(f)
    p, q = [], []
    first = fast(ones(), p, q)
    return first, fast(ones(), p, p), fast(ones(), q, p), len(p), len(q)


@program
def test_tensor_aliasing_between_calls(C):
    def f(a, b):
        a.add_(1)
        return a + b

    fast = C(f)
    x, y = ones(), ones()
    base = torch.zeros(3)
    return fast(x, y), fast(x, x), fast(y, x), fast(base[:2], base[1:]), base


@program
def test_docstring_and_annotations_are_seen(C):
    def f(x):
        return x + len(f.__doc__ or "") + len(f.__annotations__)

    f.__doc__ = "abc"
    fast = C(f)
    first = fast(ones())
    f.__doc__ = "abcdef"
    f.__annotations__ = {"x": int}
    return first, fast(ones())


@program
def test_function_attribute_changes(C):
    def helper(x):
        helper.calls += 1
        return x + helper.calls

    helper.calls = 0
    fast = C(lambda x: helper(x))
    return [fast(ones()) for _ in range(3)], helper.calls


@program
def test_lru_cache_is_honoured(C):
    calls = []

    @functools.lru_cache
    def slow(n):
        calls.append(n)
        return n * 2

    fast = C(lambda x, n: x + slow(n))
    return [fast(ones(), n) for n in (1, 1, 2, 1)], calls


@program
def test_cached_property_deleted(C):
    class A:
        n = 1

        @functools.cached_property
        def v(self):
            return self.n * 10

    a = A()
    fast = C(lambda x: x + a.v)
    out = [fast(ones())]
    a.n = 5
    out.append(fast(ones()))
    del a.v
    out.append(fast(ones()))
    return out, a.v


@program
def test_singledispatch_registration(C):
    @functools.singledispatch
    def kind(v):
        return 0

    @kind.register
    def _(v: int):
        return 1

    fast = C(lambda x, v: x + kind(v))
    out = [fast(ones(), 1), fast(ones(), "s")]
    kind.register(str)(lambda v: 5)
    out.append(fast(ones(), "s"))
    return out


@program
def test_chainmap_counter_and_deque_arguments(C):
    chain = collections.ChainMap({"a": 1}, {"b": 2})
    count = collections.Counter("aab")
    queue = collections.deque([1, 2], maxlen=3)

    def f(x):
        queue.append(len(queue))
        count["a"] += 1
        return x + chain["b"] + count["a"] + count["zz"] + queue[0]

    fast = C(f)
    out = [fast(ones()) for _ in range(3)]
    chain["b"] = 50
    out.append(fast(ones()))
    return out, dict(count), list(queue), queue.maxlen


@program
def test_mappingproxy_and_os_environ(C):
    import os

    d = {"a": 1}
    view = types.MappingProxyType(d)
    os.environ["DYNCOMP_TEST_PROGRAM"] = "3"

    def f(x):
        return x + view["a"] + int(os.environ.get("DYNCOMP_TEST_PROGRAM", "0"))

    fast = C(f)
    first = fast(ones())
    d["a"] = 10
    os.environ["DYNCOMP_TEST_PROGRAM"] = "4"
    second = fast(ones())
    del os.environ["DYNCOMP_TEST_PROGRAM"]
    return first, second, fast(ones())


@program
def test_weakref_and_user_proxy(C):
    import weakref

    class A:
        v = 1

    a = A()
    r = weakref.ref(a)

    def f(x):
        o = r()
        return x if o is None else x + o.v

    fast = C(f)
    first = fast(ones())
    a.v = 9
    second = fast(ones())
    del a
    return first, second, fast(ones())


@program
def test_isinstance_of_changed_class_argument(C):
    class A:
        pass

    class B:
        pass

    fast = C(lambda x, o: x + 1 if isinstance(o, A) else x - 1 if isinstance(o, (B, int)) else x)
    a = A()
    out = [fast(ones(), a), fast(ones(), B()), fast(ones(), 3)]
    a.__class__ = B
    out.append(fast(ones(), a))
    return out


@program
def test_ids_and_methods_as_keys_of_outside_dicts(C):
    class A:
        def go(self):
            return 1

    a, b = A(), A()
    d = {id(a): 5, a.go: 7, a: 9}

    def f(x, o):
        return x + d.get(id(o), 0), x + d.get(o.go, 0), x + d.get(o, 0), {o.go: 1}[o.go]

    fast = C(f)
    return fast(ones(), a), fast(ones(), b), fast(ones(), a)


@program
def test_tensors_as_keys_of_outside_dicts(C):
    p, q = ones(), ones()
    state = {p: 3}

    def f(x, t):
        n = state.get(t, 0)
        state[t] = n + 1
        return x + n, t in state

    fast = C(f)
    return [fast(ones(), t) for t in (p, p, q, q, p)], list(state.values())


@program
def test_order_of_sets_with_another_history(C):
    def f(x, s):
        for v in s:
            x = x * 2 + v
        return x

    fast = C(f)
    a, b = {8, 0}, {0, 8}
    c = set(range(20)) - set(range(2, 19))
    return fast(ones(), a), fast(ones(), b), fast(ones(), c), fast(ones(), {1, 0, 19})


@program
def test_set_changed_inside_keeps_its_order(C):
    s = {8, 0}

    def f(x):
        s.add(16)
        s.discard(0)
        s.add(0)
        return x + len(s)

    return C(f)(ones()), list(s)


@program
def test_parent_method_replaced_behind_super(C):
    class Base:
        def m(self, x):
            return x + 1

        @classmethod
        def c(cls, x):
            return x * 2

    class Mixin(Base):
        pass

    class Child(Mixin):
        def m(self, x):
            return super().m(x) * 3

        @classmethod
        def c(cls, x):
            return super().c(x) + 1

    child = Child()
    fast = C(lambda x: (child.m(x), Child.c(x)))
    out = [fast(ones())]
    Base.m = lambda self, x: x + 10
    out.append(fast(ones()))
    Base.c = classmethod(lambda cls, x: x * 7)
    out.append(fast(ones()))
    return out


@program
def test_special_methods_of_a_metaclass(C):
    class Meta(type):
        def __len__(cls):
            return cls.n

        def __iter__(cls):
            return iter(cls.parts)

        def __contains__(cls, item):
            return item in cls.parts

        def __getitem__(cls, key):
            return cls.parts[key] * cls.n

    class A(metaclass=Meta):
        n = 2
        parts = [1, 2]

    fast = C(lambda x: x * len(A) + sum(A) + (3 in A) + A[0])
    out = [fast(ones())]
    A.n = 5
    out.append(fast(ones()))
    A.parts = [3]
    out.append(fast(ones()))
    return out


@program
def test_bases_reassigned_behind_super(C):
    class One:
        def scale(self, x):
            return x * 2

    class Other:
        def scale(self, x):
            return x * 5

    class Middle(One):
        pass

    class Model(Middle):
        def scale(self, x):
            return super().scale(x) + 1

    model = Model()
    f = C(lambda x: model.scale(x))
    first = f(ones(2)), f(ones(2))
    Middle.__bases__ = (Other,)
    return first, f(ones(2)), f(ones(2))
