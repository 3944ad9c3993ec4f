"""Calls of builtins with arguments that they do not take: they break, so that the program gets Python's own error.

    max()       the number and the names of the arguments: rules may rely on what Python would pass
    abs([])     a rule's own TypeError or AttributeError: Python words it as the builtin's, where rules ask operands in turn
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values.base import PyRaise, Tracer, Value

_MANY = 1 << 30
# What C does not tell by a signature: fewest and most positional arguments, and names of others. No entry: not checked.
_COUNTS: dict[Any, tuple[int, int, tuple[str, ...]]] = {
    dir: (0, 1, ()),
    getattr: (2, 3, ()),
    vars: (0, 1, ()),
    iter: (1, 2, ()),
    next: (1, 2, ()),
    max: (1, _MANY, ("key", "default")),
    min: (1, _MANY, ("key", "default")),
    zip: (0, _MANY, ("strict",)),
    map: (2, _MANY, ()),
    filter: (2, 2, ()),
    range: (1, 3, ()),
    slice: (1, 3, ()),
    super: (0, 2, ()),
    set: (0, 1, ()),
    frozenset: (0, 1, ()),
    bool: (0, 1, ()),
    functools.reduce: (2, 3, ()),
    functools.partial: (1, _MANY, ("*",)),
    dict: (0, 1, ("*",)),
    collections.OrderedDict: (0, 1, ("*",)),
    collections.defaultdict: (0, 2, ("*",)),
    collections.deque: (0, 2, ("iterable", "maxlen")),
    operator.itemgetter: (1, _MANY, ()),
    operator.attrgetter: (1, _MANY, ()),
    itertools.chain: (0, _MANY, ()),
    itertools.islice: (2, 4, ()),
    itertools.repeat: (1, 2, ("object", "times")),
    itertools.product: (0, _MANY, ("repeat",)),
    itertools.zip_longest: (0, _MANY, ("fillvalue",)),
}
# An attribute that is not there is what these tell.
_ASK_ATTRIBUTES = (
    getattr, delattr, setattr, object.__getattribute__, object.__setattr__, object.__delattr__, super, vars
)  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _signature(fn: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(fn, follow_wrapped=False)
    except (ValueError, TypeError):
        return None


def call_by_rule(
    tx: Tracer, fn: Callable[..., Any], rule: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """`fn`: a builtin function or class, or a library function that has a rule."""
    check_arguments(fn, args, kwargs)
    return in_pythons_words(lambda: rule(tx, args, kwargs), fn in _ASK_ATTRIBUTES)


def in_pythons_words(call: Callable[[], Value], asks_attributes: bool = False) -> Value:
    """What `call` gives; a TypeError (AttributeError) of its own becomes a break, so that Python raises its own."""
    try:
        return call()
    except PyRaise as error:
        value: Any = error.value
        own = not hasattr(value, "stack")  # not out of a function that was traced in between
        if own and issubclass(value.cls, TypeError if asks_attributes else (TypeError, AttributeError)):
            raise GraphBreak("eager-error", f"{value.cls.__name__}: {value.message()}") from error
        raise


def check_arguments(fn: Callable[..., Any], args: Collection[Any], kwargs: Collection[str]) -> None:
    """`fn`: a builtin function or class."""
    counts = _COUNTS.get(fn) if isinstance(fn, Hashable) else None
    if counts is not None:
        fewest, most, names = counts
        fits = fewest <= len(args) <= most and ("*" in names or all(name in names for name in kwargs))
    else:
        signature = _signature(fn)
        fits = signature is None or _binds(signature, len(args), kwargs)
    if not fits:
        raise GraphBreak("eager-error", f"arguments that {getattr(fn, '__qualname__', fn)} does not take")


def _binds(signature: inspect.Signature, count: int, kwargs: Collection[str]) -> bool:
    try:
        signature.bind(*(None,) * count, **dict.fromkeys(kwargs))
    except TypeError:
        return False
    return True
