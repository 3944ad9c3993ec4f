"""Calls of functions behind functools.lru_cache and functools.cache.

The cache is part of the program: `cache_clear`, and entries pushed out by others, bring the next call to the function again, and a
cached object is the same object every time. So what is relied on is that the cache still holds its entry:

    scale(2)      called for real while tracing, so that the entry is there
                  guard: the dictionary inside of the cache has it, with the same value (without a bound) or as the same link of the
                  list that says who goes first (with one); a call at run time moves the link to the end of that list, as eager's does

The dictionary is found among what the cache refers to; it has no name.
"""

from __future__ import annotations

import functools
import gc
import logging
import math
import operator
import types
import weakref
from collections.abc import Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Const, DictItem
from dyncomp.values.base import ABSENT, Tracer, Value
from dyncomp.values.constant import SCALAR_TYPES, ConstantValue
from dyncomp.values.registry import call_if
from dyncomp.values.sym_number import SymNumberValue

Args = Sequence[Value]
Kwargs = dict[str, Value]
_TOO_SMALL: weakref.WeakSet[Any] = weakref.WeakSet()  # functions whose entries push each other out within one run


def _is_cached(fn: Any) -> bool:
    return isinstance(fn, functools._lru_cache_wrapper)


def _name(fn: Any) -> str:
    """Its name; what has none itself (a partial, an object that is called) gives none to the cache around it."""
    return getattr(fn, "__qualname__", f"a cached {type(getattr(fn, '__wrapped__', fn)).__name__}")


@call_if(lambda fn: _is_cached(fn) and _name(fn).endswith("_once"), priority=55)
def call_once(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """`logger.warning_once(text)`: the cache makes all calls but the first do nothing, so the first is made
    here."""
    real = [arg.as_constant() if arg.is_constant() else arg.real() for arg in args]
    if kwargs or not isinstance(real[0], logging.Logger) or any(obj is ABSENT for obj in real):
        raise GraphBreak("side-effect", f"call of {_name(fn)}")
    fn(*real)
    return tx.constant(None)


@call_if(_is_cached, priority=60)
def call_cached(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """With constants only: the entry of the cache. Anything else: the function behind the cache is traced, which is neither read
    nor filled."""
    bound = fn.cache_parameters()["maxsize"]
    computed = _computed(tx, fn, args, kwargs) if bound != 0 else None
    if computed is not None:
        return computed
    if bound != 0:
        args, kwargs = [_pinned(tx, arg) for arg in args], {name: _pinned(tx, arg) for name, arg in kwargs.items()}
    constants = all(isinstance(arg, ConstantValue) and arg.is_constant() for arg in (*args, *kwargs.values()))
    if not constants or bound == 0:
        return tx.call(tx.constant(fn.__wrapped__), args, kwargs)
    real = [arg.as_constant() for arg in args]
    named = {name: arg.as_constant() for name, arg in kwargs.items()}
    entries, mark = _inside(fn)
    key = _key_of(mark, real, named, fn.cache_parameters()["typed"])
    if bound is not None and _pushed_out(tx, fn, key, bound):
        raise GraphBreak("side-effect", f"call of {_name(fn)}, whose cache is too small for one run")
    try:
        answer = fn(*real, **named)
    except Exception as error:  # noqa: BLE001  the program's own error, raised again inside the trace
        tx.raise_real(error)
    if key not in entries:
        raise GraphBreak("side-effect", f"call of {_name(fn)}, whose cache does not keep the answer")
    source = DictItem(Const(entries, f"cache of {_name(fn)}"), key)
    if bound is None:
        return tx.wrap(answer, source)
    tx.guard(source, "id", entries[key])
    tx.effects.call(functools.partial(fn, **named) if named else fn, *args)
    if type(answer) in SCALAR_TYPES:
        return tx.constant(answer)
    return tx.wrap(answer, Const(answer, f"{_name(fn)}(...)"))


def _computed(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """A number made of numbers that vary is computed anew in each call, and the cache is asked all the same, for what others see of
    it; None for all other calls. Numbers have no identity, so it does not show where they come from.
    """
    values = [*args, *kwargs.values()]
    varies = any(isinstance(value, SymNumberValue) and value.is_constant() for value in values)
    if not varies or any(value.symbolic for value in kwargs.values()) or not all(isinstance(value, SymNumberValue | ConstantValue) and value.is_constant() for value in values):
        return None
    try:
        answer = fn(*map(_at_hand, args), **{name: _at_hand(arg) for name, arg in kwargs.items()})
    except Exception:  # noqa: BLE001  the program's own error: it belongs to these very numbers
        return None
    if type(answer) not in (int, float, bool) or not _follows_from_arguments(fn.__wrapped__, set()):
        return None
    effects = len(tx.effects)
    result = tx.call(tx.constant(fn.__wrapped__), args, kwargs)
    if len(tx.effects) != effects:
        raise GraphBreak("side-effect", f"call of {_name(fn)}, which does more than compute a number")
    if not isinstance(result, SymNumberValue | ConstantValue) or not result.is_constant() or _at_hand(result) != answer:
        return None
    tx.effects.call(functools.partial(fn, **{n: _at_hand(a) for n, a in kwargs.items()}) if kwargs else fn, *args)
    return result


def _follows_from_arguments(fn: Any, seen: set[int]) -> bool:
    """True of a function that reads nothing but its arguments and other such functions: its answer of today is the one that was
    cached.
    """
    if id(fn) in seen:
        return True
    seen.add(id(fn))
    if not isinstance(fn, types.FunctionType):
        return False
    cells = [cell.cell_contents for cell in fn.__closure__ or () if cell != types.CellType()]
    named = [fn.__globals__[name] for name in _names_in(fn.__code__) if name in fn.__globals__]
    if len(cells) != len(fn.__closure__ or ()) or fn.__dict__ or not _all_numbers(fn.__defaults__, fn.__kwdefaults__):
        return False
    return all(
        obj is math or obj is operator or isinstance(obj, types.BuiltinFunctionType) or _follows_from_arguments(obj, seen)
        for obj in (*named, *cells)
    )


def _names_in(code: types.CodeType) -> set[str]:
    """Globals, attributes, and what is imported, of nested functions too."""
    inner = [_names_in(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*inner)


def _all_numbers(defaults: Any, named: Any) -> bool:
    return all(type(value) in SCALAR_TYPES for value in (*(defaults or ()), *(named or {}).values()))


def _at_hand(value: Value) -> Any:
    """The value in this call, without a guard on it."""
    return value.number.node.hint if isinstance(value, SymNumberValue) else value.as_constant()


def _pinned(tx: Tracer, arg: Value) -> Value:
    """Numbers that vary from call to call: the cache is asked for each by itself, as in eager."""
    return tx.constant(arg.as_constant()) if isinstance(arg, SymNumberValue) and arg.is_constant() else arg


def _inside(fn: Any) -> tuple[dict[Any, Any], Any]:
    """The dictionary of entries, and what stands between positional and named arguments in its keys."""
    found = gc.get_referents(fn)
    entries = [obj for obj in found if type(obj) is dict and obj is not fn.__dict__]
    marks = [obj for obj in found if type(obj) is object]
    if len(entries) != 1:
        raise GraphBreak("unsupported-call", f"{_name(fn)}: a cache of unknown build")
    return entries[0], marks[0] if marks else None


def _key_of(mark: Any, args: Sequence[Any], kwargs: dict[str, Any], typed: bool) -> Any:
    """The key of this call, by the rule of functools."""
    if not kwargs and not typed:
        return args[0] if len(args) == 1 and type(args[0]) in (str, int) else tuple(args)
    parts = [*args]
    if kwargs:
        parts += [mark, *(part for item in kwargs.items() for part in item)]
    if typed:
        parts += [*map(type, args), *map(type, kwargs.values())]
    if not kwargs and len(parts) == 1 and type(parts[0]) in (str, int):
        return parts[0]
    return tuple(parts)


def _pushed_out(tx: Tracer, fn: Any, key: Any, bound: int) -> bool:
    """True if one run of the frame calls with more arguments than the cache has room for: it would never find its entries."""
    seen: set[Any] = tx.state.setdefault(__name__, {}).setdefault(id(fn), set())
    seen.add(key)
    if len(seen) > bound:
        _TOO_SMALL.add(fn)
    return fn in _TOO_SMALL
