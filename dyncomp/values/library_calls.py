"""What calls of standard-library callables written in C do: functools, operator, inspect,
dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import pickle
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, SlotAttr, Source
from dyncomp.values import special_results
from dyncomp.values.base import ABSENT, Builder, Tracer, Unreconstructible, Value
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.constant import fold_call
from dyncomp.values.exception import exception_triple
from dyncomp.values.function import BoundMethodValue
from dyncomp.values.klass import ClassValue
from dyncomp.values.mapping import DictValue
from dyncomp.values.operators import BINARY, COMPARE, INPLACE, UNARY, binary, compare, is_same
from dyncomp.values.registry import call_if, on_call, wrap_type

Args = Sequence[Value]
Kwargs = dict[str, Value]


# -- functools -----------------------------------------------------------------------------------------------
class PartialValue(Value):
    """functools.partial"""

    def __init__(
        self, function: Value, args: list[Value], kwargs: dict[str, Value], source: Source | None = None, obj: Any = None
    ):
        super().__init__(source)
        self.function, self.args, self.kwargs, self._obj = function, args, kwargs, obj
        self._attributes: DictValue | None = None

    def python_type(self) -> type:
        return functools.partial

    def describe(self) -> str:
        return f"partial {self.function.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return tx.call(self.function, [*self.args, *args], {**self.kwargs, **kwargs})

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            return tx.tuple_of(list(self.args))
        if name == "keywords":
            return DictValue({key: (tx.constant(key), value) for key, value in self.kwargs.items()})
        if name == "__dict__":
            return self._own(tx)
        if not self._own(tx).entries(tx):
            if name in ("__module__", "__doc__"):
                return tx.constant(getattr(functools.partial, name))
            if name in ("__name__", "__qualname__", "__annotations__", "__type_params__"):
                tx.raise_(AttributeError, f"'functools.partial' object has no attribute {name!r}")
        return super().getattr(tx, name)

    def _own(self, tx: Tracer) -> DictValue:
        """`self.__dict__`"""
        if self._attributes is None:
            if self.source is None:
                self._attributes = DictValue({})
            else:  # asking for it makes it, if nobody has asked before
                self._attributes = tx.wrap(vars(self._obj), Call(self.source, vars))  # type: ignore[assignment]
        assert self._attributes is not None
        return self._attributes

    def reconstruct(self, builder: Builder) -> None:
        if self._attributes is not None and self._attributes._items:
            raise Unreconstructible(self, "a partial with attributes")
        builder.load_const(functools.partial)
        for value in (self.function, *self.args, *self.kwargs.values()):
            builder.load(value)
        builder.call(1 + len(self.args) + len(self.kwargs), tuple(self.kwargs))


@on_call(functools.partial)
def _partial(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function = args[0]
    if isinstance(function, PartialValue):
        return PartialValue(function.function, [*function.args, *args[1:]], {**function.kwargs, **kwargs})
    if class_lookup(function.python_type(), "__call__") is ABSENT:
        tx.raise_(TypeError, "the first argument must be callable")
    return PartialValue(function, list(args[1:]), dict(kwargs))


@wrap_type(functools.partial)
def wrap_partial(tx: Tracer, obj: Any, source: Source) -> Value:
    function = tx.wrap(obj.func, SlotAttr(source, "func"))
    args = tx.wrap(obj.args, SlotAttr(source, "args")).unpack(tx)
    keywords = tx.wrap(obj.keywords, SlotAttr(source, "keywords"))
    assert isinstance(keywords, DictValue)
    kwargs = {key.as_constant(): value for key, value in keywords.entries(tx)}
    return PartialValue(function, args, kwargs, source, obj)


@on_call(functools.reduce)
def _reduce(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = args[1].unpack(tx)
    if len(args) > 2:
        items = [args[2], *items]
    if not items:
        tx.raise_(TypeError, "reduce() of empty iterable with no initial value")
    total = items[0]
    for item in items[1:]:
        total = tx.call(args[0], [total, item])
    return total


# -- operator ------------------------------------------------------------------------------------------------
def _binary_call(op: str, inplace: bool) -> Callable[[Tracer, Args, Kwargs], Value]:
    return lambda tx, args, kwargs: binary(tx, op, args[0], args[1], inplace=inplace)


def _compare_call(op: str) -> Callable[[Tracer, Args, Kwargs], Value]:
    return lambda tx, args, kwargs: compare(tx, op, args[0], args[1])


def _unary_call(op: str) -> Callable[[Tracer, Args, Kwargs], Value]:
    return lambda tx, args, kwargs: args[0].unary(tx, op)


for _op, _function in BINARY.items():
    on_call(_function)(_binary_call(_op, False))
for _op, _function in INPLACE.items():
    on_call(_function)(_binary_call(_op, True))
for _op, _function in COMPARE.items():
    on_call(_function)(_compare_call(_op))
for _op, _one in UNARY.items():
    on_call(_one)(_unary_call(_op))


@on_call(operator.not_)
def _not(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(not args[0].truth(tx))


@on_call(operator.truth)
def _truth(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(args[0].truth(tx))


@on_call(operator.is_)
def _is(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(is_same(tx, args[0], args[1]))


@on_call(operator.is_not)
def _is_not(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(not is_same(tx, args[0], args[1]))


@on_call(operator.getitem)
def _getitem(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return args[0].getitem(tx, args[1])


@on_call(operator.setitem)
def _setitem(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].setitem(tx, args[1], args[2])
    return tx.constant(None)


@on_call(operator.delitem)
def _delitem(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].delitem(tx, args[1])
    return tx.constant(None)


@on_call(operator.contains)
def _contains(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(args[0].contains(tx, args[1]).truth(tx))


@on_call(operator.index)
def _index(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args[0].is_constant() and not args[0].symbolic:
        return fold_call(tx, operator.index, args, kwargs)
    return special_results.index(tx, args[0].call_method(tx, "__index__", [], {}))


@call_if(lambda fn: isinstance(fn, operator.itemgetter), priority=60)
def call_itemgetter(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    found = [args[0].getitem(tx, tx.constant(key)) for key in fn.__reduce__()[1]]
    return found[0] if len(found) == 1 else tx.tuple_of(found)


@call_if(lambda fn: isinstance(fn, operator.attrgetter), priority=60)
def call_attrgetter(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    found: list[Value] = []
    for path in fn.__reduce__()[1]:
        value = args[0]
        for name in path.split("."):
            value = value.getattr(tx, name)
        found.append(value)
    return found[0] if len(found) == 1 else tx.tuple_of(found)


@call_if(lambda fn: isinstance(fn, operator.methodcaller), priority=60)
def call_methodcaller(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    parts = fn.__reduce__()
    caller, (name, *values) = parts[0], parts[1]
    keywords = getattr(caller, "keywords", {})
    return args[0].call_method(
        tx, name, [tx.constant(v) for v in values], {key: tx.constant(v) for key, v in keywords.items()}
    )


class GetterValue(Value):
    """An itemgetter or attrgetter made while tracing."""

    def __init__(self, cls: type, args: list[Value]):
        super().__init__()
        self.cls, self.args = cls, args

    def python_type(self) -> type:
        return self.cls

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.cls is operator.attrgetter:
            fn = operator.attrgetter(*[arg.as_constant() for arg in self.args])
            return call_attrgetter(tx, fn, args, kwargs)
        found = [args[0].getitem(tx, key) for key in self.args]
        return found[0] if len(found) == 1 else tx.tuple_of(found)

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(self.cls)
        for arg in self.args:
            builder.load(arg)
        builder.call(len(self.args))


@on_call(operator.itemgetter)
def _itemgetter(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return GetterValue(operator.itemgetter, list(args))


@on_call(operator.attrgetter)
def _attrgetter(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not all(arg.is_constant() and isinstance(arg.as_constant(), str) for arg in args):
        tx.raise_(TypeError, "attribute name must be a string")
    return GetterValue(operator.attrgetter, list(args))


# -- inspect -------------------------------------------------------------------------------------------------
@on_call(inspect.signature)
def _signature(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Of a bound method: of its function, bound to anything."""
    target = args[0]
    if isinstance(target, BoundMethodValue) and target.function.is_constant():
        bound = types.MethodType(target.function.as_constant(), object())
        return fold_call(tx, lambda: inspect.signature(bound), [], {})
    return fold_call(tx, inspect.signature, args, kwargs)


@on_call(sys.exception)
def _exception(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _handled(tx) or tx.constant(None)


@on_call(sys.exc_info)
def _exc_info(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.tuple_of(exception_triple(tx, _handled(tx)))


def _handled(tx: Tracer) -> Any:
    """The exception being handled; None where there is none and it cannot matter: an ExitStack only asks to link later ones to it."""
    frame = tx.frames[-1]
    handled = frame.current_exception()
    if handled is None and frame.function.globals.get("__name__") != "contextlib":
        raise GraphBreak("exception", "asking for an exception that was being handled before the captured code began")
    return handled


# -- dataclasses ---------------------------------------------------------------------------------------------
@on_call(dataclasses.fields)
def _fields(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The fields of a class are made once, with the class."""
    target = args[0]
    cls = target.as_constant() if isinstance(target, ClassValue) else target.python_type()
    try:
        found = dataclasses.fields(cls)
    except TypeError as error:
        tx.raise_real(error)
    return tx.tuple_of([tx.trust(field) for field in found])


# -- pickle --------------------------------------------------------------------------------------------------
@on_call(pickle.dumps)
def _dumps(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Of a dict of numbers and different strings, as a key for what was computed with these arguments. What is in it twice is
    written down by identity, which constants do not keep."""
    target = args[0]
    if isinstance(target, DictValue) and target.python_type() is dict and len(args) == 1 and not kwargs:
        entries = target.entries(tx)
        items = [part for entry in entries for part in entry]
        if all(part.is_constant() and part.python_type() in _PICKLED_BY_VALUE for part in items):
            texts = [part.as_constant() for part in items if part.python_type() is str]
            if len(set(texts)) == len(texts):
                known = {key.as_constant(): value.as_constant() for key, value in entries}
                return tx.constant(pickle.dumps(known))
    raise GraphBreak("unsupported-call", f"call of pickle.dumps of {target.describe()}")


_PICKLED_BY_VALUE = frozenset({str, int, float, bool, type(None)})


# -- other compilers ----------------------------------------------------------------------------------------
def _is_peer_tagging(fn: Any) -> bool:
    return getattr(fn, "__module__", None) == "torch._dynamo.mutation_guard" and fn.__qualname__.endswith(".tag")


@call_if(_is_peer_tagging, priority=55)
def call_peer_tagging(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """Once torch's own compiler has run, every `nn.Module.__init__` notes the new module in that compiler's weak table.
    A module made in captured code is not one that it compiled, so the note is left out."""
    return tx.constant(None)
