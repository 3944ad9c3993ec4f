"""The order of a set's members. It depends on how the set came about, so what the program does with a set is done with a real one.

    {"a", "b"} | set(names)      the real sets' union tells the order in which the program meets the members
    return that set              code that makes it again: its members in order where that gives the same table, else step by step

Members that Python tells apart by identity have no order to speak of: it follows from where they lie in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from dyncomp.values.identity_key import ComposedKey, IdentityKey

Recipe = tuple[Any, ...]  # (kind, what it begins with, steps); see `made_again`


class Operand(NamedTuple):
    """What an operation on sets is given: a real object that is walked through as the program's is. `recipe` makes it again (None:
    nothing does); `outside`: sets from outside whose order it shows."""

    real: Any
    recipe: Recipe | None
    outside: tuple[Any, ...] = ()


def is_orderly(keys: Iterable[Hashable]) -> bool:
    """True if the hashes of these members are those of their keys."""
    return not any(_holds_identity(key) for key in keys)


def _holds_identity(key: Hashable) -> bool:
    if isinstance(key, IdentityKey | ComposedKey):
        return True
    return isinstance(key, tuple | frozenset) and any(map(_holds_identity, key))


def listed(keys: Iterable[Hashable], kind: type = list) -> Operand:
    """`kind`: list, dict, or the type of a dictionary's keys or items."""
    recipe = ("of", kind, tuple(keys))
    return Operand(made_again(recipe), recipe)


class Layout:
    """`real`: the set itself, of the members' keys."""

    def __init__(self, real: Any, recipe: Recipe | None, outside: tuple[Any, ...] = ()):
        self.real, self.recipe, self.outside = real, recipe, outside

    @classmethod
    def of(cls, kind: type, keys: Iterable[Hashable]) -> Layout:
        """Members that were added one by one."""
        recipe = ("of", kind, tuple(keys))
        return cls(made_again(recipe), recipe)

    @classmethod
    def made(cls, function: Any, *operands: Operand) -> Layout:
        """`function(*operands)`, which gives a new set."""
        recipes = tuple(operand.recipe for operand in operands)
        recipe = None if None in recipes else ("call", (function, recipes))
        return cls(function(*(operand.real for operand in operands)), recipe, sum((operand.outside for operand in operands), ()))

    def change(self, method: Any, *operands: Operand) -> Any:
        """`method(self, *operands)`, in place; what it gives."""
        recipes = tuple(operand.recipe for operand in operands)
        self.outside = sum((operand.outside for operand in operands), self.outside)
        self.recipe = None if self.recipe is None or None in recipes else ("then", self.recipe, (method, recipes))
        return method(self.real, *(operand.real for operand in operands))

    def operand(self) -> Operand:
        return Operand(self.real, self.recipe, self.outside)

    def is_made_by_its_members(self) -> bool:
        """True if adding the members in their order makes the same table."""
        again = type(self.real)(list(self.real))
        return list(again) == list(self.real) and sys.getsizeof(again) == sys.getsizeof(self.real)


def made_again(recipe: Recipe) -> Any:
    """Run-time helper, too.

    ("of", kind, keys)                       of a list of them
    ("constant", set)
    ("call", (function, recipes))            function(*what they make)
    ("then", recipe, (method, recipes))      the set after method(set, *what they make)
    """
    steps = []
    while recipe[0] == "then":
        steps.append(recipe[2])
        recipe = recipe[1]
    real = _begin(*recipe)
    for method, recipes in reversed(steps):
        method(real, *map(made_again, recipes))
    return real


def _begin(kind: str, what: Any, *rest: Any) -> Any:
    if kind == "constant":
        return what
    if kind == "call":
        function, recipes = what
        return function(*map(made_again, recipes))
    keys = list(rest[0])
    if what is list:
        return keys
    if what in (dict, _KEYS):
        made = dict.fromkeys(keys)
        return made if what is dict else made.keys()
    return dict(keys).items() if what is _ITEMS else what(keys)


_KEYS, _ITEMS = type(dict[Any, Any]().keys()), type(dict[Any, Any]().items())
