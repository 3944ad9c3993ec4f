"""Objects: attributes, properties, descriptors, metaclasses, slots, super, dataclasses, enums, named tuples."""

import abc
import collections
import copy
import dataclasses
import enum
import typing

import torch

from tests.programs.program import ones, outcome, program


@program
def test_getattr_hook_only_for_missing_names(C):
    class Lazy:
        def __init__(self):
            self.known = 1
            self.asked = []

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            self.asked.append(name)
            return len(name)

    o = Lazy()

    def f(x):
        return x + o.known + o.four, hasattr(o, "_no"), getattr(o, "_nope", 7)

    fast = C(f)
    first = fast(ones())
    o.four = 100
    return first, fast(ones()), o.asked


@program
def test_getattribute_override(C):
    class Loud:
        def __init__(self):
            self.a = 2

        def __getattribute__(self, name):
            value = super().__getattribute__(name)
            return value * 10 if name == "a" else value

    o = Loud()

    def f(x):
        return x + o.a + Loud().a

    return C(f)(ones())


@program
def test_setattr_override(C):
    class Doubling:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value * 2)

    o = Doubling()

    def f(x):
        o.v = 3
        made = Doubling()
        made.v = 5
        return x + o.v + made.v, made

    y, made = C(f)(ones())
    return y, o.v, made.v


@program
def test_property_with_state(C):
    class Thermo:
        def __init__(self):
            self._c, self.reads = 0.0, 0

        @property
        def f(self):
            self.reads += 1
            return self._c * 2 + 30

        @f.setter
        def f(self, value):
            self._c = (value - 30) / 2

        @f.deleter
        def f(self):
            self._c = -1.0

    t = Thermo()

    def g(x):
        y = x + t.f
        t.f = 50
        y = y + t.f
        del t.f
        return y

    fast = C(g)
    return fast(ones()), fast(ones()), t._c, t.reads


@program
def test_property_replaced_on_the_class(C):
    class A:
        @property
        def v(self):
            return 1

    o = A()
    fast = C(lambda x: x + o.v)
    first = fast(ones())
    A.v = property(lambda self: 5)
    return first, fast(ones())


@program
def test_data_descriptor(C):
    class Checked:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, cls=None):
            return self if obj is None else getattr(obj, self.name)

        def __set__(self, obj, value):
            if value < 0:
                raise ValueError("negative")
            setattr(obj, self.name, value)

    class Holder:
        v = Checked()

    o = Holder()
    o.v = 1

    def f(x, n):
        try:
            o.v = n
        except ValueError:
            return x - o.v
        return x + o.v

    fast = C(f)
    return fast(ones(), 3), fast(ones(), -1), fast(ones(), 4), o.v


@program
def test_non_data_descriptor_shadowed_by_instance(C):
    class Five:
        def __get__(self, obj, cls=None):
            return 5

    class A:
        five = Five()

    o = A()
    fast = C(lambda x: x + o.five)
    first = fast(ones())
    o.__dict__["five"] = 9
    return first, fast(ones())


@program
def test_slots(C):
    class S:
        __slots__ = ("a", "b")

    o = S()
    o.a = 1

    def f(x):
        try:
            y = x + o.b
        except AttributeError:
            y = x - 1
        o.b = o.a + 1
        return y

    fast = C(f)
    return fast(ones()), fast(ones()), o.b


@program
def test_slot_read_without_a_value(C):
    class S:
        __slots__ = ("a",)

    o = S()
    fast = C(lambda x: x + (o.a if hasattr(o, "a") else 0))
    first = fast(ones())
    o.a = 4
    second = fast(ones())
    del o.a
    return first, second, fast(ones())


@program
def test_metaclass_call_counts_instances(C):
    class Meta(type):
        made = 0

        def __call__(cls, *args):
            Meta.made += 1
            return super().__call__(*args)

    class A(metaclass=Meta):
        def __init__(self, v):
            self.v = v

    def f(x):
        return x + A(3).v + A(4).v

    fast = C(f)
    return fast(ones()), fast(ones()), Meta.made


@program
def test_metaclass_attribute_and_property(C):
    class Meta(type):
        @property
        def size(cls):
            return cls._size * 2

        def __getattr__(cls, name):
            return 11

        def __len__(cls):
            return 3

        def __contains__(cls, item):
            return item == 1

    class A(metaclass=Meta):
        _size = 4

    fast = C(lambda x: x + A.size + A.anything + len(A) + (1 in A))
    first = fast(ones())
    A._size = 5
    return first, fast(ones())


@program
def test_super_forms(C):
    class A:
        def run(self, x):
            return x + 1

        @classmethod
        def make(cls, x):
            return x + 10

        @property
        def p(self):
            return 100

    class B(A):
        def run(self, x):
            return super().run(x) * 2 + super(B, self).run(x)

        @classmethod
        def make(cls, x):
            return super().make(x) * 3

        @property
        def p(self):
            return super().p + 1

    class D(B):
        def run(self, x):
            parent = super()
            return [parent.run(x) for _ in range(2)][1]

    o = D()

    def f(x):
        return o.run(x), D.make(x), x + o.p

    return C(f)(ones())


@program
def test_diamond_and_changed_bases(C):
    class A:
        k = 1

    class B(A):
        pass

    class E(A):
        k = 2

    class D(B, E):
        pass

    o = D()
    fast = C(lambda x: x + o.k)
    first = fast(ones())
    B.k = 3
    second = fast(ones())
    del B.k
    D.__bases__ = (B,)
    return first, second, fast(ones())


@program
def test_class_assignment_of_an_argument(C):
    class A:
        def v(self):
            return 1

    class B(A):
        def v(self):
            return 2

    def f(x, o):
        y = x + o.v()
        o.__class__ = B
        return y * o.v()

    fast = C(f)
    a = A()
    return fast(ones(), a), type(a) is B, fast(ones(), a), fast(ones(), A())


@program
def test_eq_and_hash_user_defined(C):
    class K:
        def __init__(self, v):
            self.v = v

        def __eq__(self, other):
            return isinstance(other, K) and self.v == other.v

        def __hash__(self):
            return hash(self.v)

    table = {K(1): 10, K(2): 20}

    def f(x, k):
        return x + table.get(k, 0) + (k in table) + ({K(5): 3}[K(5)])

    fast = C(f)
    return fast(ones(), K(1)), fast(ones(), K(2)), fast(ones(), K(3))


@program
def test_rich_comparison_and_total_ordering(C):
    import functools

    @functools.total_ordering
    class V:
        def __init__(self, v):
            self.v = v

        def __eq__(self, o):
            return self.v == o.v

        def __lt__(self, o):
            return self.v < o.v

    def f(x, a, b):
        items = sorted([a, b, V(2)])
        return x + max(items).v, a >= b, a > b, [i.v for i in items]

    fast = C(f)
    return fast(ones(), V(1), V(3)), fast(ones(), V(3), V(1))


@program
def test_operators_reflected_and_not_implemented(C):
    class M:
        def __radd__(self, o):
            return o + 1

        def __mul__(self, o):
            return NotImplemented

        def __rmatmul__(self, o):
            return o * 7

        def __neg__(self):
            return 4

        def __index__(self):
            return 1

    m = M()

    def f(x):
        try:
            m * 3
            err = ""
        except TypeError as error:
            err = str(error)
        return (2 + m), x + (-m), [1, 2, 3][m], err, x @ m

    return C(f)(ones())


@program
def test_container_protocol(C):
    class Bag:
        def __init__(self):
            self.d = {}

        def __getitem__(self, k):
            return self.d[k]

        def __setitem__(self, k, v):
            self.d[k] = v

        def __delitem__(self, k):
            del self.d[k]

        def __len__(self):
            return len(self.d)

        def __iter__(self):
            return iter(self.d)

        def __contains__(self, k):
            return k in self.d

        def __bool__(self):
            return True

    b = Bag()

    def f(x):
        b["a"] = x
        b["b"] = x + 1
        total = sum(b[k] for k in b) if b else x
        del b["a"]
        return total, "a" in b, len(b), list(b)

    fast = C(f)
    return fast(ones()), fast(ones()), list(b.d.values())


@program
def test_iteration_by_getitem(C):
    class Old:
        def __getitem__(self, i):
            if i >= 3:
                raise IndexError(i)
            return i * 2

    def f(x):
        return x + sum(Old()), list(Old()), 4 in Old()

    return C(f)(ones())


@program
def test_callable_object_and_class_attribute_function(C):
    def plus(self, x):
        return x + self.n

    class Adder:
        method = plus
        static = staticmethod(lambda x: x * 2)

        def __init__(self, n):
            self.n = n
            self.local = lambda x: x - 1

        def __call__(self, x, *, twice=False):
            return self.method(x) + (self.n if twice else 0)

    a = Adder(3)

    def f(x):
        return a(x), a(x, twice=True), a.static(x), a.local(x), Adder.method(a, x), Adder(5)(x)

    return C(f)(ones())


@program
def test_dataclass_features(C):
    @dataclasses.dataclass(frozen=True)
    class P:
        a: int
        b: torch.Tensor = None

    @dataclasses.dataclass(order=True)
    class Q:
        n: int
        items: list = dataclasses.field(default_factory=list, compare=False)
        extra: int = dataclasses.field(init=False)

        def __post_init__(self):
            self.extra = self.n * 2

    def f(x):
        p = P(1, x)
        try:
            p.a = 5
            err = ""
        except dataclasses.FrozenInstanceError as error:
            err = str(error)
        q, r = Q(2), Q(3, [x])
        q.items.append(1)
        return dataclasses.replace(p, a=9), err, q < r, q.extra, dataclasses.asdict(Q(4)), len(Q(1).items), repr(Q(7))

    p, *rest = C(f)(ones())
    return p.a, p.b, rest


@program
def test_dataclass_argument_changes(C):
    @dataclasses.dataclass
    class Cfg:
        scale: float = 1.0
        name: str = "a"

    cfg = Cfg()
    fast = C(lambda x, c: x * c.scale + len(c.name))
    out = [fast(ones(), cfg)]
    cfg.scale = 3.0
    out.append(fast(ones(), cfg))
    cfg.name = "long"
    out.append(fast(ones(), cfg))
    return out


@program
def test_enum_members(C):
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

        @property
        def scale(self):
            return self.value * 10

        @classmethod
        def first(cls):
            return cls.RED

    class Bits(enum.IntFlag):
        A = 1
        B = 2

    def f(x, c, b):
        y = x + c.scale if c is not Color.first() else x - c.value
        return y, c.name, Color(2) is Color.BLUE, Color["RED"].value, bool(b & Bits.A), [m.name for m in Color], int(Bits.A | Bits.B)

    fast = C(f)
    return fast(ones(), Color.RED, Bits.A), fast(ones(), Color.BLUE, Bits.B)


@program
def test_named_tuples(C):
    P = collections.namedtuple("P", "a b", defaults=[5])

    class T(typing.NamedTuple):
        x: torch.Tensor
        n: int = 1

        def scaled(self):
            return self.x * self.n

    def f(x):
        p = P(x)
        q = p._replace(a=x + 1)
        t = T(x, 3)
        return q, q.b, t.scaled(), t, p._asdict()["b"], P._fields, isinstance(t, tuple), p._make([x, 2])

    def show(result):
        q, b, s, t, d, fields, is_tuple, made = result
        return type(q).__name__, list(q), b, s, type(t).__name__, list(t), d, fields, is_tuple, list(made)

    return show(C(f)(ones()))


@program
def test_abstract_class(C):
    class Base(abc.ABC):
        @abc.abstractmethod
        def go(self, x): ...

    class Impl(Base):
        def go(self, x):
            return x + 1

    def f(x):
        try:
            Base()
            err = False
        except TypeError:
            err = True
        return Impl().go(x), err, isinstance(Impl(), Base)

    return C(f)(ones())


@program
def test_registered_abc_changes_isinstance(C):
    class Base(abc.ABC):
        pass

    class Other:
        pass

    o = Other()
    fast = C(lambda x: x + 1 if isinstance(o, Base) else x - 1)
    first = fast(ones())
    Base.register(Other)
    return first, fast(ones())


@program
def test_protocol_and_subclasshook(C):
    @typing.runtime_checkable
    class HasGo(typing.Protocol):
        def go(self): ...

    class A:
        def go(self):
            return 1

    class B:
        pass

    fast = C(lambda x, o: x + 1 if isinstance(o, HasGo) else x - 1)
    b = B()
    first = fast(ones(), A()), fast(ones(), b)
    b.go = lambda: 2
    return first, fast(ones(), b)


@program
def test_instance_attribute_deleted(C):
    class A:
        v = 1

    o = A()
    o.v = 2

    def f(x):
        return x + o.v

    fast = C(f)
    first = fast(ones())
    del o.v
    second = fast(ones())
    A.v = 30
    return first, second, fast(ones())


@program
def test_delete_inside(C):
    class A:
        pass

    o = A()

    def f(x):
        o.tmp = x + 1
        y = o.tmp * 2
        del o.tmp
        return y, hasattr(o, "tmp")

    fast = C(f)
    return fast(ones()), fast(ones()), vars(o)


@program
def test_attribute_order_of_made_object(C):
    class A:
        def __init__(self, x):
            self.b = x
            self.a = 1
            self.c = 2
            del self.a
            self.a = 3

    return list(vars(C(lambda x: A(x + 1))(ones())))


@program
def test_new_returns_another_class(C):
    class A:
        def __new__(cls, kind):
            if kind == 0:
                return 5
            return super().__new__(cls)

        def __init__(self, kind):
            self.kind = kind

    def f(x):
        return x + A(0) + A(3).kind

    return C(f)(ones())


@program
def test_singleton_through_new(C):
    class One:
        instance = None

        def __new__(cls):
            if cls.instance is None:
                cls.instance = super().__new__(cls)
                cls.instance.n = 0
            return cls.instance

    def f(x):
        One().n += 1
        return x + One().n

    fast = C(f)
    return fast(ones()), fast(ones()), One().n


@program
def test_init_subclass_and_class_registry(C):
    class Base:
        registry = {}

        def __init_subclass__(cls, **kw):
            Base.registry[cls.__name__] = cls

    class A(Base):
        v = 2

    fast = C(lambda x: x + sum(c.v for c in Base.registry.values()))
    first = fast(ones())

    class B(Base):
        v = 40

    return first, fast(ones()), list(Base.registry)


@program
def test_deepcopy_and_copy_inside(C):
    class A:
        def __init__(self):
            self.items = [1, 2]

    o = A()

    def f(x):
        c = copy.deepcopy(o)
        c.items.append(3)
        s = copy.copy(o)
        return x + sum(c.items), s.items is o.items, copy.deepcopy({"a": [x]})

    return C(f)(ones()), o.items


@program
def test_str_and_repr_of_objects(C):
    class A:
        def __repr__(self):
            return "A!"

    class B:
        def __str__(self):
            return "b"

        def __format__(self, spec):
            return f"<{spec}>"

    def f(x):
        return x + 1, str(A()), f"{A()} {A()!r:>4} {B()} {B():x} {B()!s}", "%s %r" % (A(), [A()]), "{:>5}".format("q")

    return C(f)(ones())


@program
def test_identity_of_returned_objects(C):
    class A:
        pass

    o = A()
    items = [o]

    def f(x):
        made = [x]
        return x + 1, items[0], o, made, made, items

    y, a, b, m, n, it = C(f)(ones())
    return y, a is o, b is o, m is n, it is items


@program
def test_two_arguments_the_same_object(C):
    class A:
        def __init__(self):
            self.n = 0

    def f(x, a, b):
        a.n += 1
        b.n += 10
        return x + a.n

    fast = C(f)
    p, q = A(), A()
    return fast(ones(), p, q), fast(ones(), p, p), fast(ones(), q, p), p.n, q.n


@program
def test_hasattr_with_class_level_change(C):
    class A:
        pass

    o = A()
    fast = C(lambda x: x + 1 if hasattr(o, "extra") else x - 1)
    first = fast(ones())
    A.extra = 1
    second = fast(ones())
    del A.extra
    return first, second, fast(ones())


@program
def test_class_getitem_and_generic(C):
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, v):
            self.v = v

    def f(x):
        return Box[int](x + 1).v, Box(x).v

    return C(f)(ones())


@program
def test_attribute_error_inside_property_with_getattr(C):
    class A:
        @property
        def p(self):
            return self.missing

        def __getattr__(self, name):
            return "fallback:" + name

    a = A()

    def f(x):
        return x + 1, a.p

    return C(f)(ones())


@program
def test_type_with_three_arguments(C):
    def f(x):
        K = type("K", (), {"v": 3})
        return x + K().v

    fast = C(f)
    return fast(ones()), outcome(fast, ones())
