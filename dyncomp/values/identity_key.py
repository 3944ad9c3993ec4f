"""Dict keys that hash and compare by identity, and the guards that keep a look-up by one true in later calls.

    outside[x]            the entry was found under this very object: `x is <object>`
    {x: 1}.get(y, 0)      both objects come from outside: `x is not y`
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values.base import ABSENT, Tracer, Value


class IdentityKey:
    """Dict key of an object that hashes and compares by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Value):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.value is self.value


class ComposedKey(tuple[Any, ...]):
    """Dict key of what exists at run time only and equals others made of the same parts: a bound method, an `id()`."""

    __slots__ = ()


def real_key(k: Hashable) -> Any:
    """The object to look up in a real dictionary for a value's key."""
    if isinstance(k, IdentityKey):
        return k.value.real()
    if isinstance(k, ComposedKey):
        raise GraphBreak("unsupported-object", "a bound method or id() as a key of a dictionary from outside")
    if isinstance(k, tuple):
        return tuple(real_key(part) for part in k)
    return k


def _objects(k: Hashable) -> Iterator[Value]:
    """Objects from outside whose identity is part of the key."""
    if isinstance(k, IdentityKey):
        if k.value.source is not None:
            yield k.value
    elif isinstance(k, tuple):
        for part in k:
            yield from _objects(part)


def pin(tx: Tracer, k: Hashable) -> None:
    """The key was looked up in a dictionary from outside: it holds for these very objects."""
    for value in _objects(k):
        real = value.real()
        if real is not ABSENT:
            assert value.source is not None
            tx.guard(value.source, "id", real)


def tell_apart(tx: Tracer, k: Hashable, keys: Iterable[Hashable]) -> None:
    """The key is none of `keys` that is not `k`: the objects in it are no other key's objects."""
    mine = list(_objects(k))
    if not mine:
        return
    others = {id(value): value for key in keys if key != k for value in _objects(key)}
    for value in mine:
        different = tuple([o.source for o in others.values() if o is not value and o.source != value.source])
        if different:
            assert value.source is not None
            tx.guard(value.source, "distinct", (((value.source,),), different))
