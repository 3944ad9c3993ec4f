"""Protocols of Python's built-in classes: who is compared with whom, what subclasses hold, what is one object, what is iterated."""

import collections
import itertools
import operator
import typing
import weakref

from tests.programs.program import ones, outcome, program


@program
def test_items_stand_on_the_left_of_the_needle(C):
    log = []

    class Noted:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            log.append((self.name, other.name))
            return False

        __hash__ = object.__hash__

    def f(x):
        a, needle = Noted("a"), Noted("needle")
        found = [needle in [a], needle in (a,), [a].count(needle), needle in {1: a}.values()]
        for search in ([a].index, (a,).index, [a].remove):
            try:
                search(needle)
            except ValueError:
                found.append("none")
        return x + 1, found

    return C(f)(ones()), log


@program(breaks=0)
def test_searching_what_a_comparison_makes_shorter(C):
    class Clears:
        def __init__(self, items):
            self.items = items

        def __eq__(self, other):
            self.items.clear()
            return False

        __hash__ = None

    def filled():
        items = []
        items += [Clears(items), 1, 2]
        return items

    def f(x):
        first, second, third = filled(), filled(), filled()
        return x + 1, 5 in first, len(first), second.count(5), outcome(third.index, 5)[0]

    return C(f)(ones())


@program(breaks=0)
def test_contents_of_tuple_and_frozenset_subclasses(C):
    class Row(tuple):
        pass

    class Odd(tuple):
        def __getitem__(self, i):
            return "item", i

    class Names(frozenset):
        pass

    def f(x):
        row, odd, names = Row([1, 2]), Odd("abc"), Names([1])
        return x + 1, list(row), row[0], len(row), row == (1, 2), odd[0], list(odd), 1 in names, len(names), len(Row()), row, names

    result = C(f)(ones())
    return [*result[:-2], tuple(result[-2]), type(result[-2]).__name__, set(result[-1]), type(result[-1]).__name__]


@program(breaks=0)
def test_operator_functions_that_change_a_container(C):
    def f(x):
        items, table = [0, 1, 2], {}
        operator.delitem(items, 1)
        operator.setitem(items, 0, 5)
        operator.setitem(table, "a", 1)
        operator.setitem(table, "b", 2)
        operator.delitem(table, "a")
        return x + 1, items, table, operator.iadd(items, [7]) is items, items

    return C(f)(ones())


@program(breaks=0)
def test_immutable_things_are_not_copied_without_need(C):
    def f(x):
        names, row = frozenset([1]), (1, 2)
        return x + 1, frozenset(names) is names, names.copy() is names, tuple(row) is row, row[:] is row, row + () is row

    return C(f)(ones())


@program
def test_containers_that_contain_themselves(C):
    def f(x):
        items, table = [], {}
        items.append(items)
        table["t"] = table
        return x + 1, repr(items), str(table), items[0] is items

    return C(f)(ones())


@program(breaks=0)
def test_unions_of_kinds_of_dictionaries(C):
    default, ordered = collections.defaultdict, collections.OrderedDict

    def f(x):
        plain, counts, order = {"a": 1}, default(int, {"b": 3}), ordered(c=1)
        made = [plain | counts, counts | plain, plain | order, order | plain]
        return x + 1, made, [type(one).__name__ for one in made], (plain | counts)["missing"]

    return C(f)(ones())


@program(breaks=0)
def test_a_subclass_goes_first_where_it_reflects_by_itself(C):
    class Base:
        def __add__(self, other):
            return "add", type(self).__name__

        def __radd__(self, other):
            return "radd", type(self).__name__

    class Inherits(Base):
        pass

    class Overrides(Base):
        def __radd__(self, other):
            return "own radd", type(self).__name__

    def f(x):
        return x + 1, Base() + Inherits(), Base() + Overrides(), Inherits() + Base()

    return C(f)(ones())


@program
def test_errors_of_constructors_and_attributes(C):
    class Plain:
        pass

    class Slotted:
        __slots__ = ("z",)
        y = 0

    class Passes:
        def __init__(self, *given):
            super().__init__(*given)

    def f(x):
        return (
            x + 1, outcome(Plain, 1), outcome(Passes, 1), outcome(object.__new__, Plain, 1), outcome(setattr, Slotted(), "y", 1),
            outcome(setattr, Slotted(), "w", 1), outcome(getattr, Slotted(), "z"),
        )  # fmt: skip

    return C(f)(ones())


class Options(typing.TypedDict, total=False):
    a: int
    b: object


@program(breaks=0)
def test_typed_dictionaries_are_plain_ones(C):
    def f(x):
        return x + 1, Options(a=1, b=2)

    result = C(f)(ones())
    return result, type(result[1]).__name__


@program
def test_weak_references_to_what_the_frame_dropped(C):
    class Thing:
        pass

    def f(x):
        thing = Thing()
        reference = weakref.ref(thing)
        alive = reference() is thing
        holder = [thing]
        del thing
        still = reference() is not None
        del holder
        return x + 1, alive, still, reference() is None

    fast = C(f)
    return [fast(ones()) for _ in range(3)]


@program(breaks=0)
def test_iteration_by_getitem(C):
    class Tens:
        def __getitem__(self, i):
            if i >= 3:
                raise IndexError(i)
            return i * 10

    class Stops:
        def __getitem__(self, i):
            if i == 2:
                raise StopIteration
            return i

    def f(x):
        tens = Tens()
        a, b, c = tens
        return x + 1, a, b, c, list(tens), list(Stops()), 20 in tens, sum(tens), sorted(tens, reverse=True), [*tens, 1]

    return C(f)(ones())


@program
def test_an_iterator_by_getitem_that_lives_over_a_break(C):
    class Tens:
        def __getitem__(self, i):
            if i >= 3:
                raise IndexError(i)
            return i * 10

    def f(x):
        iterator = iter(Tens())
        first = next(iterator)
        y = x + first
        id(y)
        print(end="")
        return y, list(iterator), next(iterator, "end")

    return C(f)(ones())


@program(breaks=0)
def test_iterators_of_itertools_and_of_calls(C):
    def f(x):
        items = [3, 2, 1, 0, 9]
        until = iter(items.pop, 1)
        first = next(until)
        odd = itertools.filterfalse(lambda n: n % 2 == 0, range(6))
        return (
            x + 1, first, list(until), items, list(itertools.compress("abcd", [1, 0, True, 0])), next(odd), list(odd),
            list(itertools.filterfalse(None, [0, 1, "", "a"])), type(iter(items.pop, 1)).__name__,
        )  # fmt: skip

    return C(f)(ones())


@program(breaks=0)
def test_sets_and_views_updated_in_place(C):
    outside = {1, 2, 3}

    def f(x):
        a, b = {1, 2, 3, 4}, {1, 2}
        a.intersection_update([2, 3, 9], {3, 2})
        b.symmetric_difference_update([2, 5])
        outside.difference_update([1], (2,))
        return x + 1, a, b, {"a": 1}.keys().isdisjoint("b"), {"a": 1}.items().isdisjoint([("a", 1)])

    return C(f)(ones()), outside


@program(breaks=0)
def test_format_of_the_users_class(C):
    class Shown:
        def __format__(self, spec):
            return f"<{spec}>"

    def f(x):
        return x + 1, f"{Shown()}", f"{Shown():>5}"

    return C(f)(ones())


@program(breaks=0)
def test_descriptors_that_delete(C):
    log = []

    class Noted:
        def __get__(self, instance, owner):
            return 3

        def __set__(self, instance, value):
            log.append(value)

        def __delete__(self, instance):
            log.append("deleted")

    class Holder:
        noted = Noted()

    def f(x):
        holder = Holder()
        holder.noted = 1
        del holder.noted
        return x + holder.noted

    return C(f)(ones()), log


@program
def test_subclass_hooks_reach_the_base(C):
    class Base:
        seen = []

        def __init_subclass__(cls, **options):
            super().__init_subclass__(**options)
            Base.seen.append(cls.__name__)

    def f(x):
        y = x + 1

        class Derived(Base):
            pass

        return y, Derived.__name__, {}.fromkeys("ab", 1)

    return C(f)(ones()), Base.seen


@program
def test_hashes_are_asked_as_often_as_in_plain_python(C):
    count = []

    class Counted:
        def __hash__(self):
            count.append(1)
            return 5

        def __eq__(self, other):
            count.append(2)
            return self is other

    thing = Counted()

    def f(x):
        return x + 1, thing is None, [thing][0] is thing, len(count)

    return C(f)(ones()), len(count)
