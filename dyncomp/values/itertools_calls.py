"""Calls of itertools: the iterators themselves, made of values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values.base import Tracer, Value
from dyncomp.values.constant import ConstantValue
from dyncomp.values.iterators import (
    CallIterator,
    accumulate_rows,
    bounded,
    chain_rows,
    cycle_rows,
    drain,
    islice_rows,
)
from dyncomp.values.operators import binary
from dyncomp.values.registry import on_call

Args = Sequence[Value]
Kwargs = dict[str, Value]


def _iterator(cls: Any) -> Callable[[Callable[..., Iterator[Value]]], Any]:
    """Registers a function `rows(tx, args, kwargs)` as what iterating over `cls(*args, **kwargs)` gives."""

    def register(rows: Callable[[Tracer, Args, Kwargs], Iterator[Value]]) -> Any:
        @on_call(cls)
        def call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
            _try_iterator(cls, args, kwargs)
            return CallIterator(cls, args, kwargs, lambda: rows(tx, args, kwargs))

        return rows

    return register


def _try_iterator(cls: Any, args: Args, kwargs: Kwargs) -> None:
    """Numbers that the iterator does not take are refused when it is made; what it would walk through is empty here."""
    given = [_stand_in(arg) for arg in args]
    named = {name: _stand_in(arg) for name, arg in kwargs.items()}
    try:
        cls(*given, **named)
    except (TypeError, ValueError) as error:
        raise GraphBreak("eager-error", f"{type(error).__name__}: {error}") from error


def _stand_in(arg: Value) -> Any:
    return arg.as_constant() if isinstance(arg, ConstantValue) and arg.is_constant() else ()


@_iterator(itertools.chain)
def _chain(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    return chain_rows(tx, iter(args))


@on_call(itertools.chain.from_iterable)
def _chain_from(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    parts = args[0].iterate(tx)
    return CallIterator(itertools.chain.from_iterable, args, kwargs, lambda: chain_rows(tx, drain(tx, parts)))


@_iterator(itertools.islice)
def _islice(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    bounds = [arg.as_constant() for arg in args[1:]]
    return islice_rows(tx, args[0].iterate(tx), slice(*bounds))


@_iterator(itertools.count)
def _count(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    start = args[0] if args else kwargs.get("start", tx.constant(0))
    step = args[1] if len(args) > 1 else kwargs.get("step", tx.constant(1))
    while True:
        yield start
        start = binary(tx, "+", start, step)


@_iterator(itertools.repeat)
def _repeat(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    times = args[1] if len(args) > 1 else kwargs.get("times")
    return itertools.repeat(args[0]) if times is None else itertools.repeat(args[0], times.as_constant())


@_iterator(itertools.cycle)
def _cycle(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    return cycle_rows(tx, args[0].iterate(tx))


@_iterator(itertools.compress)
def _compress(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    data, selectors = (*args, *[kwargs[name] for name in ("data", "selectors")[len(args) :]])
    rows = zip(drain(tx, data.iterate(tx)), drain(tx, selectors.iterate(tx)), strict=False)
    return (item for item, wanted in rows if wanted.truth(tx))


@_iterator(itertools.filterfalse)
def _filterfalse(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    plain = args[0].is_constant() and args[0].as_constant() in (None, bool)
    items = drain(tx, args[1].iterate(tx))
    return (item for item in items if not (item if plain else tx.call(args[0], [item])).truth(tx))


@_iterator(itertools.product)
def _product(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    pools = [arg.unpack(tx) for arg in args] * (kwargs["repeat"].as_constant() if "repeat" in kwargs else 1)
    rows = 1
    for pool in pools:
        rows *= len(pool)
    bounded(rows, 100_000, "a product")
    return (tx.tuple_of(list(row)) for row in itertools.product(*pools))


def _choose(
    function: Callable[..., Iterator[tuple[Value, ...]]],
) -> Callable[[Tracer, Args, Kwargs], Iterator[Value]]:
    def rows(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
        size = args[1:] or [v for name, v in kwargs.items() if name == "r"]
        counts = [value.as_constant() for value in size]
        return (tx.tuple_of(list(row)) for row in function(args[0].unpack(tx), *counts))

    return rows


_iterator(itertools.combinations)(_choose(itertools.combinations))
_iterator(itertools.combinations_with_replacement)(_choose(itertools.combinations_with_replacement))
_iterator(itertools.permutations)(_choose(itertools.permutations))
_iterator(itertools.pairwise)(_choose(itertools.pairwise))


@_iterator(itertools.accumulate)
def _accumulate(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    function = args[1] if len(args) > 1 else kwargs.get("func")
    initial = kwargs.get("initial")

    def combine(total: Value, item: Value) -> Value:
        return binary(tx, "+", total, item) if function is None else tx.call(function, [total, item])

    return accumulate_rows(tx, args[0].iterate(tx), combine, initial)


@_iterator(itertools.starmap)
def _starmap(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    return (tx.call(args[0], row.unpack(tx)) for row in drain(tx, args[1].iterate(tx)))


@_iterator(itertools.takewhile)
def _takewhile(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    return itertools.takewhile(
        lambda item: tx.call(args[0], [item]).truth(tx), drain(tx, args[1].iterate(tx))
    )


@_iterator(itertools.dropwhile)
def _dropwhile(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    return itertools.dropwhile(
        lambda item: tx.call(args[0], [item]).truth(tx), drain(tx, args[1].iterate(tx))
    )


@_iterator(itertools.zip_longest)
def _zip_longest(tx: Tracer, args: Args, kwargs: Kwargs) -> Iterator[Value]:
    fill = kwargs.get("fillvalue", tx.constant(None))
    rows = itertools.zip_longest(*[drain(tx, arg.iterate(tx)) for arg in args], fillvalue=fill)
    return (tx.tuple_of(list(row)) for row in rows)
