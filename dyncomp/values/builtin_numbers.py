"""Calls that make or ask for numbers and text: int, str, abs, round, pow, hash..."""

from __future__ import annotations

import types
from typing import Any, NoReturn

from dyncomp.errors import GraphBreak, InternalError
from dyncomp.values import special_results
from dyncomp.values.base import PyRaise, Tracer, Value
from dyncomp.values.builtin_arguments import Args, Kwargs, one_argument
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.constant import ConstantValue, fold, fold_call
from dyncomp.values.instance import InstanceValue
from dyncomp.values.operators import binary
from dyncomp.values.registry import on_call
from dyncomp.values.sequence import TupleValue
from dyncomp.values.sets import SetValue
from dyncomp.values.sym_number import SymNumberValue, hash_of
from dyncomp.values.text import format_value, text_of


def _number(cls: type, slot: str) -> Any:
    def convert(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if len(args) == 1 and not kwargs and (args[0].symbolic or not args[0].is_constant()):
            return args[0].call_method(tx, slot, [], {})
        return fold_call(tx, cls, args, kwargs)

    return convert


on_call(int)(_number(int, "__int__"))
on_call(float)(_number(float, "__float__"))
on_call(complex)(_number(complex, "__complex__"))


@on_call(bool)
def _bool(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(args[0].truth(tx) if args else False)


@on_call(str)
def _str(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        return fold_call(tx, str, args, kwargs)
    return text_of(tx, args[0])


@on_call(repr)
def _repr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return text_of(tx, one_argument(tx, "repr", args, kwargs), repr)


@on_call(format)
def _format(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return format_value(tx, args[0], None, args[1] if len(args) > 1 else tx.constant(""))


@on_call(abs)
def _abs(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = one_argument(tx, "abs", args, kwargs)
    plain = value.is_constant() and not value.symbolic
    return fold(tx, abs, value) if plain else value.call_method(tx, "__abs__", [], {})


@on_call(round)
def _round(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and (args[0].symbolic or not args[0].is_constant()):
        return args[0].call_method(tx, "__round__", args[1:], kwargs)
    return fold_call(tx, round, args, kwargs)


@on_call(divmod)
def _divmod(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if all(arg.is_constant() and not arg.symbolic for arg in args):
        return fold_call(tx, divmod, args, kwargs)
    if len(args) != 2 or kwargs or not all(arg.python_type() in (int, float, bool) for arg in args):
        raise GraphBreak("unsupported-builtin", f"divmod of {' and '.join(arg.describe() for arg in args)}")
    left, right = args
    try:
        quotient = binary(tx, "//", left, right)
    except PyRaise as error:
        if not issubclass(error.value.python_type(), ZeroDivisionError):
            raise
        _raise_as_python(tx, divmod, *(arg.python_type()(n) for arg, n in ((left, 1), (right, 0))))
    return tx.tuple_of([quotient, binary(tx, "%", left, right)])


def _raise_as_python(tx: Tracer, function: Any, *args: Any) -> NoReturn:
    """The error of `function(*args)`, whose words differ between Pythons."""
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001 - whichever it is
        tx.raise_(type(error), *error.args)
    raise InternalError(f"{function.__name__}{args} raises nothing")


@on_call(pow)
def _pow(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2 and not kwargs:
        return binary(tx, "**", args[0], args[1])
    return fold_call(tx, pow, args, kwargs)


@on_call(hash)
def _hash(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = one_argument(tx, "hash", args, kwargs)
    if isinstance(value, InstanceValue) and isinstance(
        class_lookup(value.cls, "__hash__"), types.FunctionType
    ):
        result = value.special(tx, "__hash__")
        assert result is not None
        return special_results.hashed(tx, result)
    if isinstance(value, ConstantValue | TupleValue | SetValue) and value.is_constant():
        return fold(tx, hash, value)
    if isinstance(value, SymNumberValue):
        return hash_of(tx, value) or fold_call(tx, hash, [tx.constant(value.as_constant())], {})
    raise GraphBreak("unsupported-builtin", f"hash of {value.describe()}")
