"""What a program found missing, and somebody adds before the next call: special methods, attributes, functions behind `super()`."""

import types

from tests.programs.program import ones, outcome, program


def _before_and_after(C, f, add, *args):
    fast = C(f)
    before = fast(ones(), *args), fast(ones(), *args)
    add()
    return before, outcome(fast, ones(), *args)


def _adding(name, value, f):
    """The program `f(x, a)` before and after the class of `a` gets an attribute."""

    @program
    def test(C):
        class A:
            pass

        return _before_and_after(C, f, lambda: setattr(A, name, value), A())

    return test


test_bool = _adding("__bool__", lambda s: False, lambda x, a: x + (1 if a else 2))
test_len = _adding("__len__", lambda s: 0, lambda x, a: x + (1 if a else 2))
test_eq = _adding("__eq__", lambda s, o: True, lambda x, a: x + (1 if a == 5 else 2))
test_call = _adding("__call__", lambda s: 7, lambda x, a: x + (1 if callable(a) else 2))
test_getattr = _adding("__getattr__", lambda s, n: 7, lambda x, a: x + (1 if hasattr(a, "z") else 2))
test_getattribute = _adding("__getattribute__", lambda s, n: 7, lambda x, a: x + (getattr(a, "z", 1)))
test_setattr = _adding("__setattr__", lambda s, n, v: None, lambda x, a: setattr(a, "z", 3) or x + getattr(a, "z", 1))
test_class_attribute = _adding("z", 7, lambda x, a: x + getattr(a, "z", 1))
test_attribute_of_the_class = _adding("z", 7, lambda x, a: x + getattr(type(a), "z", 1))


@program
def test_of_an_object_made_inside(C):
    class A:
        v = 1

        @staticmethod
        def s():
            return 1

    def f(x):
        a = A()
        return x + a.v + A.s() + getattr(a, "late", 0) + getattr(A, "later", 0) + (10 if a else 20)

    fast = C(f)
    out = [fast(ones())]
    for name, value in (
        ("late", 100), ("later", 1000), ("s", staticmethod(lambda: 5)), ("__bool__", lambda s: False),
        ("__init__", lambda s: setattr(s, "v", 50)), ("__new__", staticmethod(lambda cls: object.__new__(B))),
    ):  # fmt: skip
        setattr(A, name, value)
        out.append(fast(ones()))

    return out


class B:
    v = 3

    def __bool__(self):
        return True


@program
def test_of_a_module_and_of_a_tensor(C):
    module, weight = types.ModuleType("m"), ones()

    def f(x):
        return x + getattr(module, "scale", 1.0) + getattr(weight, "tag", 1.0)

    fast = C(f)
    out = [fast(ones())]
    module.scale = 5.0
    out.append(fast(ones()))
    weight.tag = 7.0
    out.append(fast(ones()))
    del module.scale, weight.tag
    return out, fast(ones())


@program
def test_super_past_the_own_attribute(C):
    class A:
        n = 1
        items = [0]

        @classmethod
        def list(cls):
            return cls.items

    class Mine(A):
        n = 2
        items = [5]

        def both(self):
            return super().n, self.n

        @classmethod
        def list(cls):
            super().items.append(1)
            return super().list()

    def f(x, b):
        first, second = b.both()
        return x + first * 10 + second + len(Mine.list())

    fast, mine = C(f), Mine()
    out = [fast(ones(), mine), fast(ones(), mine)]
    A.n = 7
    return out, fast(ones(), mine), A.items, Mine.items


@program
def test_exact_class_past_instancecheck(C):
    class Meta(type):
        def __instancecheck__(cls, obj):
            return obj == 5

    class A(metaclass=Meta):
        pass

    def f(x):
        return x + 1, isinstance(A(), A), isinstance(5, A), isinstance(6, A)

    return C(f)(ones())


@program
def test_super_without_what_it_needs(C):
    class A:
        def late(self):
            return (lambda: super().late)()

        def no_class(self):
            del self
            return super().late

    def plain(a):
        return super().late

    def f(x):
        return x + 1, outcome(A().late), outcome(A().no_class), outcome(plain, 1)

    return C(f)(ones())
