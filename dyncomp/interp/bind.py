"""Arguments to parameters, as CPython binds them.

bind(tx, function, [a], {"k": b}) -> {"x": a, "k": b, "args": (), "kwargs": {}}
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from dyncomp.errors import GraphBreak
from dyncomp.values.base import Tracer, Value
from dyncomp.values.function import FunctionValue
from dyncomp.values.mapping import DictValue


def bind(
    tx: Tracer, function: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]
) -> dict[str, Value]:
    """A call that does not fit breaks the graph, so that the program gets Python's own TypeError."""
    code = function.code
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    bound: dict[str, Value] = dict(zip(positional, args, strict=False))
    extra = list(args[len(positional) :])
    left: dict[str, Value] = {}
    for name, value in kwargs.items():
        if name in positional[code.co_posonlyargcount :] or name in keyword_only:
            if name in bound:
                raise _misfit(function, f"got multiple values for argument {name!r}")
            bound[name] = value
        else:
            left[name] = value
    _fill_defaults(tx, function, bound, positional, keyword_only)
    _collect(tx, function, bound, extra, left)
    return bound


def _fill_defaults(
    tx: Tracer,
    function: FunctionValue,
    bound: dict[str, Value],
    positional: tuple[str, ...],
    keyword_only: tuple[str, ...],
) -> None:
    missing = [name for name in positional if name not in bound]
    if missing:
        defaults = function.defaults(tx)
        by_name = (
            dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
            if defaults
            else {}
        )
        for name in missing:
            if name not in by_name:
                raise _misfit(function, f"missing the argument {name!r}")
            bound[name] = by_name[name]
    for name in keyword_only:
        if name not in bound:
            default = function.kwdefault(tx, name)
            if default is None:
                raise _misfit(function, f"missing the keyword-only argument {name!r}")
            bound[name] = default


def _collect(
    tx: Tracer, function: FunctionValue, bound: dict[str, Value], extra: list[Value], left: dict[str, Value]
) -> None:
    code = function.code
    next_slot = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        bound[code.co_varnames[next_slot]] = tx.tuple_of(extra)
        next_slot += 1
    elif extra:
        raise _misfit(function, f"takes {code.co_argcount} positional arguments but more were given")
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[code.co_varnames[next_slot]] = DictValue(
            {name: (tx.constant(name), v) for name, v in left.items()}
        )
    elif left:
        raise _misfit(function, f"got an unexpected keyword argument {next(iter(left))!r}")


def _misfit(function: FunctionValue, what: str) -> GraphBreak:
    return GraphBreak("eager-error", f"{function.qualname}() {what}")
