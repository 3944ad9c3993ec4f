"""set and frozenset. An outside set is read as a whole: its members, all constants, are guarded together.

The order of members is that of real sets (`set_layout.py`). An outside set that was changed has no order that could be told: which
room its table has depends on its history, so walking through it breaks the graph; what was done to it is done again in the same order.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, Source
from dyncomp.values.base import Builder, NotConstant, Tracer, Unreconstructible, Value
from dyncomp.values.builtin_kind import BuiltinKind, builtin_method
from dyncomp.values.iterators import IteratorValue
from dyncomp.values.mapping import DictValue
from dyncomp.values.mapping_views import DictView
from dyncomp.values.registry import wrap_type
from dyncomp.values.set_layout import Layout, Operand, is_orderly, listed, made_again

_OPERATORS: dict[str, tuple[Any, str]] = {
    "|": (operator.or_, "__ior__"),
    "&": (operator.and_, "__iand__"),
    "-": (operator.sub, "__isub__"),
    "^": (operator.xor, "__ixor__"),
}
_BY_IDENTITY = (type, types.FunctionType, types.BuiltinFunctionType)
Members = dict[Hashable, Value]


class SetValue(BuiltinKind):
    """`layout`: None where the order of members is unknown. `history`: what was done to an outside set: method, arguments."""

    def __init__(
        self,
        items: Members | None,
        cls: type = set,
        source: Source | None = None,
        tx: Tracer | None = None,
        outside: Any = None,
        layout: Layout | None = None,
    ):
        super().__init__(source)
        self.cls, self._items, self._tx, self._outside = cls, items, tx, outside
        self.untouched = False  # an outside set as it was found
        self.history: list[tuple[str, tuple[Value, ...]]] = []
        self.layout = layout
        if items is not None and layout is None and is_orderly(items):
            self.layout = Layout.of(cls, items)

    @property
    def items(self) -> Members:
        if self._items is None:
            self._read()
        return self._items  # type: ignore[return-value]

    def _read(self) -> None:
        tx, source = self._tx, self.source
        assert tx is not None and source is not None
        members = list(self._outside)
        if all(isinstance(m, (str, int, float, bool, bytes, type(None))) for m in members):
            if members:
                tx.guard(Call(source, frozenset), "equals", frozenset(members))
            else:
                tx.guard(source, "len", 0)
        elif self.cls is frozenset and all(isinstance(m, _BY_IDENTITY) for m in members):
            tx.guard(source, "id", self._outside)
        else:
            raise GraphBreak("unsupported-object", f"{source}: a set of other objects than numbers and strings")
        values = [tx.constant(m) for m in members]
        self._items = {value.key(tx): value for value in values}
        self.untouched = True

    def describe(self) -> str:
        return str(self.source) if self.source else f"a {self.cls.__name__}"

    # -- changes ------------------------------------------------------------------------------------------
    def _change(self, tx: Tracer, members: Members, method: str, operands: Sequence[Operand | None], args: Sequence[Value]) -> Any:
        """`set.<method>(self, *args)` leaves these members; what the real set gives."""
        _ = self.items
        self._items, self.untouched = members, False
        if self.source is not None:
            tx.effects.touch(self)
            self.history.append((method, tuple([_kept(tx, arg) for arg in args])))
            return None
        if None in operands or not is_orderly(members):
            self.layout = None
        return None if self.layout is None else self.layout.change(getattr(set, method), *operands)  # type: ignore[arg-type]

    # -- what it is -----------------------------------------------------------------------------------------
    def is_constant(self) -> bool:
        return all(item.is_constant() for item in self.items.values())

    def as_constant(self) -> Any:
        if len(self.items) < 2 or not is_orderly(self.items):
            return self.cls(item.as_constant() for item in self.items.values())
        known = self.operand()
        if known is None:
            raise NotConstant(self.describe())
        for one in known.outside:
            one._guard_order()
        made = self.cls(known.real) if known.recipe is None else made_again(known.recipe)
        if list(made) != list(known.real):
            raise NotConstant(self.describe())
        return made

    def key(self, tx: Tracer) -> Hashable:
        if self.cls is frozenset:
            return frozenset(self.items)
        tx.raise_(TypeError, f"unhashable type: '{self.cls.__name__}'")

    def length(self, tx: Tracer) -> Value:
        return tx.constant(len(self.items))

    def contains(self, tx: Tracer, item: Value) -> Value:
        return tx.constant(item.key(tx) in self.items)

    def iterate(self, tx: Tracer) -> Value:
        return SetIterator(self)

    def unpack(self, tx: Tracer) -> list[Value]:
        items = self.items
        if len(items) < 2:
            return list(items.values())
        if self.source is not None:
            if not self.untouched:
                raise GraphBreak("unsupported-builtin", f"the order of {self.describe()}, a set from outside, after it was changed")
            self._guard_order()
            return list(items.values())
        if self.layout is None and is_orderly(items):
            raise GraphBreak("unsupported-builtin", f"the order of {self.describe()} made of others whose order is not known")
        self._rely_on_order()
        return self.in_order()

    def in_order(self) -> list[Value]:
        """The members of a set made while tracing, for code that fills one."""
        return list(self.items.values()) if self.layout is None else [self.items[key] for key in self.layout.real]

    def _guard_order(self) -> None:
        assert self._tx is not None and self.source is not None
        self._tx.guard(Call(self.source, tuple), "equals", tuple(self._outside))

    def _rely_on_order(self) -> None:
        """The order of a set that was made of outside ones shows theirs."""
        for one in self.layout.outside if self.layout is not None else ():
            one._guard_order()

    def operand(self) -> Operand | None:
        """For operations with other sets."""
        if self.source is not None:
            return Operand(self._outside, None, (self,)) if self.untouched and is_orderly(self.items) else None
        return None if self.layout is None else self.layout.operand()

    def _made(self, members: Members, function: Any, *operands: Operand | None) -> SetValue:
        """A new set, which `function` makes of these."""
        made = SetValue(members, self.cls, layout=_UNKNOWN)
        made.layout = None if None in operands or not is_orderly(members) else Layout.made(function, *operands)  # type: ignore[arg-type]
        return made

    # -- operators --------------------------------------------------------------------------------------------
    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        sibling = set_of(other)
        if sibling is None or op not in _OPERATORS:
            return None
        left, right = (sibling, self) if reflected else (self, sibling)
        members = _combine(op, left.items, right.items)
        function, in_place = _OPERATORS[op]
        if inplace and self.cls is set:
            self._change(tx, members, in_place, [right.operand()], [right])
            return self
        return left._made(members, function, left.operand(), right.operand())

    def combined(self, tx: Tracer, op: str, left: Value, right: Value) -> SetValue:
        """`left op right`, one of them a view of a dictionary's keys or items; the set itself is of no account."""
        (mine, first, _), (theirs, second, _) = _walked(tx, left), _walked(tx, right)
        return self._made(_combine(op, mine, theirs), _OPERATORS[op][0], first, second)

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        sibling = set_of(other)
        if sibling is None:
            return None
        mine, theirs = set(self.items), set(sibling.items)
        answers = {
            "==": mine == theirs,
            "!=": mine != theirs,
            "<": mine < theirs,
            "<=": mine <= theirs,
            ">": mine > theirs,
            ">=": mine >= theirs,
        }
        return tx.constant(answers[op])

    # -- methods ----------------------------------------------------------------------------------------------
    @builtin_method("add")
    def _add(self, tx: Tracer, item: Value) -> Value:
        key = item.key(tx)
        self._change(tx, self.items if key in self.items else {**self.items, key: item}, "add", [_single(key)], [item])
        return tx.constant(None)

    @builtin_method("discard")
    def _discard(self, tx: Tracer, item: Value) -> Value:
        key = item.key(tx)
        self._change(tx, {k: v for k, v in self.items.items() if k != key}, "discard", [_single(key)], [item])
        return tx.constant(None)

    @builtin_method("remove")
    def _remove(self, tx: Tracer, item: Value) -> Value:
        if item.key(tx) not in self.items:
            tx.raise_(KeyError, item)
        return self._discard(tx, item)

    @builtin_method("pop")
    def _pop(self, tx: Tracer) -> Value:
        if not self.items:
            tx.raise_(KeyError, "pop from an empty set")
        if self.source is not None or self.layout is None:
            raise GraphBreak("unsupported-builtin", f"pop() of {self.describe()}: which member goes depends on its history")
        self._rely_on_order()
        members = dict(self.items)
        return members.pop(self._change(tx, members, "pop", [], []))

    @builtin_method("clear")
    def _clear(self, tx: Tracer) -> Value:
        self._change(tx, {}, "clear", [], [])
        return tx.constant(None)

    @builtin_method("copy", "__copy__")
    def _copy(self, tx: Tracer) -> Value:
        return self if self.cls is frozenset else self._made(dict(self.items), self.cls.copy, self.operand())  # type: ignore[attr-defined]

    def _others(self, tx: Tracer, op: str, others: Sequence[Value]) -> tuple[Members, list[Operand | None], list[Value]]:
        """What `self op other op ...` leaves; the others as operands, and as values that stay as they are."""
        members, operands, kept = dict(self.items), [], []
        for other in others:
            theirs, operand, value = _walked(tx, other)
            members = _combine(op, members, theirs)
            operands.append(operand)
            kept.append(value)
        return members, operands, kept

    def _with(self, tx: Tracer, op: str, name: str, others: Sequence[Value]) -> SetValue:
        members, operands, _ = self._others(tx, op, others)
        return self._made(members, getattr(self.cls, name), self.operand(), *operands)

    def _become(self, tx: Tracer, op: str, name: str, others: Sequence[Value]) -> Value:
        members, operands, kept = self._others(tx, op, others)
        self._change(tx, members, name, operands, kept)
        return tx.constant(None)

    @builtin_method("update")
    def _update(self, tx: Tracer, *others: Value) -> Value:
        return self._become(tx, "|", "update", others)

    @builtin_method("union")
    def _union(self, tx: Tracer, *others: Value) -> Value:
        return self._with(tx, "|", "union", others)

    @builtin_method("intersection")
    def _intersection(self, tx: Tracer, *others: Value) -> Value:
        return self._with(tx, "&", "intersection", others)

    @builtin_method("difference")
    def _difference(self, tx: Tracer, *others: Value) -> Value:
        return self._with(tx, "-", "difference", others)

    @builtin_method("symmetric_difference")
    def _symmetric_difference(self, tx: Tracer, other: Value) -> Value:
        return self._with(tx, "^", "symmetric_difference", (other,))

    @builtin_method("intersection_update")
    def _intersection_update(self, tx: Tracer, *others: Value) -> Value:
        return self._become(tx, "&", "intersection_update", others)

    @builtin_method("difference_update")
    def _difference_update(self, tx: Tracer, *others: Value) -> Value:
        return self._become(tx, "-", "difference_update", others)

    @builtin_method("symmetric_difference_update")
    def _symmetric_difference_update(self, tx: Tracer, other: Value) -> Value:
        return self._become(tx, "^", "symmetric_difference_update", (other,))

    @builtin_method("issubset")
    def _issubset(self, tx: Tracer, other: Value) -> Value:
        return tx.constant(set(self.items) <= set(_walked(tx, other)[0]))

    @builtin_method("issuperset")
    def _issuperset(self, tx: Tracer, other: Value) -> Value:
        return tx.constant(set(self.items) >= set(_walked(tx, other)[0]))

    @builtin_method("isdisjoint")
    def _isdisjoint(self, tx: Tracer, other: Value) -> Value:
        return tx.constant(not set(self.items) & set(_walked(tx, other)[0]))

    def call_method(self, tx: Tracer, name: str, args: object, kwargs: dict[str, Value]) -> Value:
        if not hasattr(self.cls, name):
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        return super().call_method(tx, name, args, kwargs)  # type: ignore[arg-type]

    def reconstruct(self, builder: Builder) -> None:
        members = list(self.items.values())
        if self.layout is not None and len(members) > 1:
            self._rely_on_order()
            if not self.layout.is_made_by_its_members():
                if self.layout.recipe is None:
                    raise Unreconstructible(self, "a set made of others")
                builder.load_const(made_again)
                builder.load_const(self.layout.recipe)
                builder.call(1)
                return
            members = self.in_order()
        elif len(members) > 1 and is_orderly(self.items):
            raise Unreconstructible(self, "a set made of others whose order is not known")
        builder.load_const(self.cls)
        for item in members:
            builder.load(item)
        builder.build_list(len(members))
        builder.call(1)


_UNKNOWN = Layout(set(), None)  # in the place of one that is told later


class SetIterator(IteratorValue):
    cls: type = type(iter(set[Any]()))

    def __init__(self, target: SetValue):
        super().__init__()
        self.target, self.size = target, len(target.items)
        self.rows: Iterator[Value] | None = None

    def next(self, tx: Tracer) -> Value | None:
        if self.rows is None:
            self.rows = iter(self.target.unpack(tx))
        if len(self.target.items) != self.size:
            tx.raise_(RuntimeError, "Set changed size during iteration")
        return next(self.rows, None)

    def reconstruct(self, builder: Builder) -> None:
        if self.rows is not None:
            super().reconstruct(builder)
        builder.load_const(iter)
        builder.load(self.target)
        builder.call(1)


def _combine(op: str, left: dict[Hashable, Value], right: dict[Hashable, Value]) -> dict[Hashable, Value]:
    if op == "|":
        return {**right, **left}
    if op == "&":
        return {k: v for k, v in left.items() if k in right}
    only_left = {k: v for k, v in left.items() if k not in right}
    if op == "-":
        return only_left
    return {**only_left, **{k: v for k, v in right.items() if k not in left}}


def _single(key: Hashable) -> Operand:
    """A member, as an argument."""
    return Operand(key, ("constant", key))


def _walked(tx: Tracer, value: Value) -> tuple[Members, Operand | None, Value]:
    """What walking through an iterable gives; it as an operand, and as a value that stays as it is. C goes through the tables of sets
    and dictionaries in ways of its own."""
    sibling = set_of(value)
    if sibling is not None:
        return sibling.items, sibling.operand(), sibling
    if isinstance(value, DictValue):
        values = value.unpack(tx)
        members = {item.key(tx): item for item in values}
        kept = tx.dict_of_pairs([(item, tx.constant(None)) for item in values])
        return members, listed(members, dict if value.cls is dict else list) if is_orderly(members) else None, kept
    values = value.unpack(tx)
    members = {}
    for item in values:
        members.setdefault(item.key(tx), item)
    kind = type(getattr({}, value.part)()) if isinstance(value, DictView) and value.part != "values" else list
    return members, listed([item.key(tx) for item in values], kind) if is_orderly(members) else None, tx.tuple_of(values)


def _kept(tx: Tracer, value: Value) -> Value:
    """As it is now, for an operation that is done again later."""
    if not isinstance(value, SetValue) or value.source is None and value.cls is frozenset:
        return value
    if value.source is not None:
        value._guard_order() if value.untouched else value.unpack(tx)
    kept = SetValue(dict(value.items), value.cls, layout=_UNKNOWN)
    known = value.layout
    kept.layout = None if known is None else Layout(known.real.copy() if known.recipe is None else made_again(known.recipe), known.recipe, known.outside)
    kept.birth = tx.step()
    return kept


def made_of(tx: Tracer, cls: type, value: Value) -> SetValue:
    """`set(value)` or `frozenset(value)`"""
    if cls is frozenset and isinstance(value, SetValue) and value.cls is frozenset:
        return value
    members, operand, _ = _walked(tx, value)
    return SetValue({}, cls)._made(dict(members), cls, operand)


def set_of(value: Value) -> SetValue | None:
    """The set behind a value: itself, or the contents of an instance of a set subclass."""
    if isinstance(value, SetValue):
        return value
    storage = getattr(value, "storage", None)
    return storage if isinstance(storage, SetValue) else None


@wrap_type(set, frozenset)
def wrap_set(tx: Tracer, obj: Any, source: Source) -> Value:
    return SetValue(None, type(obj), source, tx, obj)
