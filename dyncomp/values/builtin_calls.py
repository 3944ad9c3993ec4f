"""What calls of the builtins do: conversions, iteration tools, attribute and class queries.

Each handler answers one builtin for all kinds of values; constants fall through to the real function.
"""

from __future__ import annotations

import abc
import builtins
import collections
import functools
import operator
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak, InternalError
from dyncomp.guards.source import Call, Const
from dyncomp.values.base import NotConstant, PyRaise, Tracer, Value
from dyncomp.values.constant import ConstantValue, fold, fold_call
from dyncomp.values.exception import ExceptionValue
from dyncomp.values.function import BoundMethodValue
from dyncomp.values.instance import HEAP_TYPE, InstanceValue, class_lookup
from dyncomp.values.iterators import EnumerateValue, FilterValue, MapValue, ZipValue
from dyncomp.values.klass import ClassValue
from dyncomp.values.mapping import DictValue, pairs_of
from dyncomp.values.operators import binary, compare
from dyncomp.values.registry import call_if, on_call
from dyncomp.values.sequence import ListValue, SequenceValue, TupleValue, sort_values
from dyncomp.values.sets import SetValue
from dyncomp.values.super_value import SuperValue
from dyncomp.values.text import text_of

Args = Sequence[Value]
Kwargs = dict[str, Value]


def _one(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        raise GraphBreak("eager-error", f"{name}() takes exactly one argument")
    return args[0]


# -- containers ----------------------------------------------------------------------------------------------
@on_call(list)
def _list(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(args[0].unpack(tx) if args else [])


@on_call(tuple)
def _tuple(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return tx.tuple_of(args[0].unpack(tx) if args else [])


@on_call(set)
def _set(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.set_of(args[0].unpack(tx) if args else [])


@on_call(frozenset)
def _frozenset(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = tx.set_of(args[0].unpack(tx) if args else [])
    assert isinstance(made, SetValue)
    return SetValue(made.items, frozenset)


@on_call(collections.deque)
def _deque(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    limit = args[1] if len(args) > 1 else kwargs.get("maxlen")
    made = ListValue([], collections.deque, maxlen=None if limit is None else limit.as_constant())
    for item in args[0].unpack(tx) if args else []:
        made.call_method(tx, "append", [item], {})
    return made


def _filled_dict(tx: Tracer, made: DictValue, args: Args, kwargs: Kwargs) -> DictValue:
    for key, value in pairs_of(tx, args[0]) if args else []:
        made.store(tx, key, value)
    for name, value in kwargs.items():
        made.store(tx, tx.constant(name), value)
    return made


@on_call(dict)
def _dict(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _filled_dict(tx, DictValue(), args, kwargs)


@on_call(collections.OrderedDict)
def _ordered_dict(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _filled_dict(tx, DictValue(cls=collections.OrderedDict), args, kwargs)


@on_call(collections.defaultdict)
def _defaultdict(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue(cls=collections.defaultdict)
    if args and not (args[0].is_constant() and args[0].as_constant() is None):
        made.factory = args[0]
    return _filled_dict(tx, made, args[1:], kwargs)


@on_call(dict.fromkeys)
def _fromkeys(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue()
    for key in args[0].unpack(tx):
        made.store(tx, key, args[1] if len(args) > 1 else tx.constant(None))
    return made


@on_call(slice)
def _slice(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.slice_of(list(args) if len(args) > 1 else [tx.constant(None), *args])


@on_call(range)
def _range(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return fold_call(tx, range, [_as_int(tx, arg) for arg in args], kwargs)


def _as_int(tx: Tracer, value: Value) -> Value:
    return value if value.is_constant() else value.call_method(tx, "__index__", [], {})


# -- numbers and text ----------------------------------------------------------------------------------------
def _number(cls: type, slot: str) -> Any:
    def convert(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if args and (args[0].symbolic or not args[0].is_constant()):
            result = args[0].call_method(tx, slot, [], {})
            return result if len(args) == 1 else fold_call(tx, cls, [result, *args[1:]], kwargs)
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
    return text_of(tx, _one(tx, "repr", args, kwargs), repr)


@on_call(abs)
def _abs(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = _one(tx, "abs", args, kwargs)
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
    left, right = args
    return tx.tuple_of([binary(tx, "//", left, right), binary(tx, "%", left, right)])


@on_call(pow)
def _pow(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2 and not kwargs:
        return binary(tx, "**", args[0], args[1])
    return fold_call(tx, pow, args, kwargs)


@on_call(hash)
def _hash(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = _one(tx, "hash", args, kwargs)
    if isinstance(value, InstanceValue) and isinstance(
        class_lookup(value.cls, "__hash__"), types.FunctionType
    ):
        return value.special(tx, "__hash__") or value
    if isinstance(value, ConstantValue | TupleValue | SetValue) and value.is_constant():
        return fold(tx, hash, value)
    raise GraphBreak("unsupported-builtin", f"hash of {value.describe()}")


# -- iteration -----------------------------------------------------------------------------------------------
@on_call(len)
def _len(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _one(tx, "len", args, kwargs).length(tx)


@on_call(iter)
def _iter(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return args[0].iterate(tx)
    raise GraphBreak("unsupported-builtin", "iter() with a sentinel")


@on_call(next)
def _next(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        if "__next__" in getattr(args[0], "methods", ()):
            return args[0].call_method(tx, "__next__", [], {})
        item = args[0].next(tx)
        return item if item is not None else tx.raise_(StopIteration)
    item = args[0].next(tx)
    return args[1] if item is None else item


@on_call(enumerate)
def _enumerate(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", tx.constant(0))
    inner = args[0] if args else kwargs["iterable"]
    return EnumerateValue(inner.iterate(tx), start.as_constant())


@on_call(zip)
def _zip(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and kwargs["strict"].truth(tx)
    return ZipValue([arg.iterate(tx) for arg in args], strict)


@on_call(map)
def _map(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return MapValue(args[0], [arg.iterate(tx) for arg in args[1:]])


@on_call(filter)
def _filter(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return FilterValue(args[0], args[1].iterate(tx))


@on_call(reversed)
def _reversed(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = _one(tx, "reversed", args, kwargs)
    if isinstance(value, InstanceValue):
        result = value.special(tx, "__reversed__")
        if result is not None:
            return result
        length = value.length(tx).as_constant()
        return tx.list_of([value.getitem(tx, tx.constant(i)) for i in range(length)][::-1]).iterate(tx)
    if isinstance(value, ConstantValue):
        return tx.constant(tuple(fold(tx, lambda v: tuple(reversed(v)), value).as_constant())).iterate(tx)
    return value.call_method(tx, "__reversed__", [], {})


@on_call(sorted)
def _sorted(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(sort_values(tx, args[0].unpack(tx), kwargs.get("key"), kwargs.get("reverse")))


@on_call(sum)
def _sum(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", tx.constant(0))
    items = args[0].unpack(tx)
    if items and all(item.is_constant() and not item.symbolic for item in (start, *items)):
        # Not one addition at a time: CPython's sum of floats compensates rounding in some versions.
        return fold_call(tx, sum, [tx.tuple_of(items), start], {})
    for item in items:
        start = binary(tx, "+", start, item)
    return start


def _truths(tx: Tracer, value: Value) -> Iterator[bool]:
    iterator = value.iterate(tx)
    while (item := iterator.next(tx)) is not None:
        yield item.truth(tx)


@on_call(any)
def _any(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(any(_truths(tx, _one(tx, "any", args, kwargs))))


@on_call(all)
def _all(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(all(_truths(tx, _one(tx, "all", args, kwargs))))


_SYMBOLIC_EXTREMES = {"max": torch.sym_max, "min": torch.sym_min}


def _error_of(fn: Any, *args: Any) -> Exception:
    """What the call raises on this Python."""
    try:
        fn(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is, the user's call raises it too
        return error
    raise InternalError(f"{fn} was expected to raise")


def _extreme(name: str, op: str) -> Any:
    empty = _error_of(getattr(builtins, name), ())

    def pick(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        items = list(args) if len(args) > 1 else args[0].unpack(tx)
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            tx.raise_(type(empty), str(empty))
        key = kwargs.get("key")
        has_key = key is not None and not (key.is_constant() and key.as_constant() is None)
        if not has_key and any(item.symbolic for item in items) and all(item.python_type() is int for item in items):
            return functools.reduce(lambda a, b: tx.call(tx.constant(_SYMBOLIC_EXTREMES[name]), [a, b]), items)
        best, best_key = items[0], tx.call(key, [items[0]]) if has_key else items[0]  # type: ignore[arg-type]
        for item in items[1:]:
            item_key = tx.call(key, [item]) if has_key else item  # type: ignore[arg-type]
            if compare(tx, op, item_key, best_key).truth(tx):
                best, best_key = item, item_key
        return best

    return pick


on_call(max)(_extreme("max", ">"))
on_call(min)(_extreme("min", "<"))


# -- attributes ----------------------------------------------------------------------------------------------
def _name_of(value: Value) -> str:
    try:
        name = value.as_constant()
    except NotConstant:
        raise GraphBreak("unsupported-builtin", "an attribute name that is not known while tracing") from None
    return str(name)


@on_call(getattr)
def _getattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    name = _name_of(args[1])
    if len(args) == 2:
        return args[0].getattr(tx, name)
    try:
        return args[0].getattr(tx, name)
    except PyRaise as error:
        if issubclass(error.value.python_type(), AttributeError):
            return args[2]
        raise


@on_call(hasattr)
def _hasattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(tx.has_attribute(args[0], _name_of(args[1])))


@on_call(setattr)
def _setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].setattr(tx, _name_of(args[1]), args[2])
    return tx.constant(None)


@on_call(delattr)
def _delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].delattr(tx, _name_of(args[1]))
    return tx.constant(None)


@on_call(vars)
def _vars(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _one(tx, "vars", args, kwargs).getattr(tx, "__dict__")


# -- classes -------------------------------------------------------------------------------------------------
@on_call(type)
def _type(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise GraphBreak("unsupported-builtin", "a class made by type()")
    value = args[0]
    return value.class_value(tx) if isinstance(value, InstanceValue) else tx.constant(value.python_type())


def _classes(tx: Tracer, value: Value) -> Iterator[Any]:
    """The classes in the second argument of isinstance, flattened."""
    if isinstance(value, SequenceValue):
        for item in value.items:
            yield from _classes(tx, item)
        return
    cls = value.as_constant()
    yield from cls.__args__ if isinstance(cls, types.UnionType) else (cls,)


@on_call(isinstance)
def _isinstance(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    for cls in _classes(tx, args[1]):
        if not isinstance(cls, type):
            return fold_call(tx, isinstance, args, kwargs)
        custom = class_lookup(type(cls), "__instancecheck__")
        if isinstance(custom, types.FunctionType) and not _is_abc_check(custom) and not _knows_better(value):
            if tx.call(tx.constant(custom), [tx.constant(cls), value]).truth(tx):
                return tx.constant(True)
        elif _is_instance(tx, value, cls):
            return tx.constant(True)
    return tx.constant(False)


def _is_instance(tx: Tracer, value: Value, cls: type) -> bool:
    if getattr(cls, "_is_protocol", False) and type(cls).__module__ == "typing":
        return _fits_protocol(tx, value, cls)
    if value.isinstance_of(tx, cls):
        return True
    if isinstance(cls, abc.ABCMeta) and value.python_type().__flags__ & HEAP_TYPE:
        # Any class may be registered with an abstract one later.
        token = abc.get_cache_token()
        tx.guard(Call(Const(abc.get_cache_token, "abc.get_cache_token"), _CALL_IT), "equals", token)
    return False


def _fits_protocol(tx: Tracer, value: Value, cls: Any) -> bool:
    """isinstance with a protocol asks for its members, on the object itself too."""
    if not getattr(cls, "_is_runtime_protocol", False):
        raise GraphBreak("eager-error", f"isinstance with {cls.__qualname__}, which is no runtime protocol")
    if cls in value.python_type().__mro__:
        return True
    members = {
        name
        for base in cls.__mro__[:-1]
        if getattr(base, "_is_protocol", False) and base.__name__ not in ("Protocol", "Generic")
        for name in (*vars(base), *vars(base).get("__annotations__", {}))
        if not name.startswith("_abc_") and name not in _PROTOCOL_MACHINERY
    }
    return all(tx.has_attribute(value, name) for name in sorted(members))


_CALL_IT = operator.methodcaller("__call__")
# What a protocol class has besides its members.
_PROTOCOL_MACHINERY = frozenset(
    {
        *vars(typing.Protocol),
        *vars(type("_Plain", (), {})),
        "__abstractmethods__",
        "__annotations__",
        "__orig_bases__",
        "__class_getitem__",
        "__match_args__",
        "__firstlineno__",
        "__static_attributes__",
        "__protocol_attrs__",
        "__non_callable_proto_members__",
        "__callable_proto_members_only__",
        "_is_runtime_protocol",
    }
)


def _is_abc_check(custom: types.FunctionType) -> bool:
    return custom.__module__ in ("abc", "typing", "_py_abc")


def _knows_better(value: Value) -> bool:
    """Tensors answer for the metaclasses of torch themselves."""
    return type(value).isinstance_of is not Value.isinstance_of


@on_call(type.__instancecheck__)
def _plain_instancecheck(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(args[1].isinstance_of(tx, args[0].as_constant()))


@on_call(issubclass)
def _issubclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return fold_call(tx, issubclass, args, kwargs)


@on_call(callable)
def _callable(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = _one(tx, "callable", args, kwargs)
    return tx.constant(class_lookup(value.python_type(), "__call__") is not class_lookup(object, "__call__"))


@on_call(super)
def _super(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args:
        return SuperValue(args[0].as_constant(), args[1])
    frame = tx.frames[-1]
    first = frame.code.co_varnames[0]
    receiver = frame.variable(first) or frame.cells[first].contents
    return SuperValue(frame.cells["__class__"].contents.as_constant(), receiver)


@on_call(property, classmethod, staticmethod)
def _descriptor(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-builtin", "a descriptor made inside the compiled function")


# -- object's own methods ------------------------------------------------------------------------------------
def _instance(value: Value, what: str) -> InstanceValue:
    if not isinstance(value, InstanceValue):
        raise GraphBreak("unsupported-builtin", f"{what} of {value.describe()}")
    return value


@on_call(object.__setattr__)
def _object_setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _instance(args[0], "object.__setattr__").generic_setattr(tx, _name_of(args[1]), args[2])
    return tx.constant(None)


@on_call(object.__delattr__)
def _object_delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _instance(args[0], "object.__delattr__").generic_setattr(tx, _name_of(args[1]), None)
    return tx.constant(None)


@on_call(object.__getattribute__)
def _object_getattribute(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = _instance(args[0], "object.__getattribute__")
    found = value.find_attribute(tx, _name_of(args[1]))
    if found is None:
        tx.raise_(AttributeError, f"{value.cls.__name__!r} object has no attribute {_name_of(args[1])!r}")
    return found


@on_call(object)
def _object(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return InstanceValue(object)


@on_call(object.__new__, dict.__new__, list.__new__, set.__new__)  # OrderedDict and defaultdict have dict's
def _object_new(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = args[0]
    if not isinstance(cls, ClassValue):
        raise GraphBreak("unsupported-builtin", "__new__ of an unknown class")
    return cls.new_instance(tx, args[1:])


@on_call(tuple.__new__)
def _tuple_new(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = args[1].unpack(tx) if len(args) > 1 else []
    if args[0].as_constant() is tuple:
        return tx.tuple_of(items)
    cls = args[0]
    assert isinstance(cls, ClassValue)
    made = cls.new_instance(tx)
    made.storage = TupleValue(items, tuple)
    return made


@on_call(object.__init__, object.__init_subclass__)
def _object_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(None)


@on_call(dict.__init__, collections.OrderedDict.__init__)
def _dict_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    storage = getattr(args[0], "storage", args[0])
    assert isinstance(storage, DictValue)
    _filled_dict(tx, storage, args[1:], kwargs)
    return tx.constant(None)


@on_call(list.__init__)
def _list_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    storage = getattr(args[0], "storage", args[0])
    assert isinstance(storage, ListValue)
    storage.replace(tx, args[1].unpack(tx) if len(args) > 1 else [])
    return tx.constant(None)


def _is_exception_init(fn: Any) -> bool:
    return (
        isinstance(fn, types.WrapperDescriptorType)
        and fn.__name__ == "__init__"
        and issubclass(fn.__objclass__, BaseException)
    )


@call_if(_is_exception_init, priority=60)
def call_exception_init(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    error = args[0]
    if kwargs or not isinstance(error, ExceptionValue):
        raise GraphBreak("exception", f"{error.describe()} initialised with keywords")
    error.args = list(args[1:])
    return tx.constant(None)


@on_call(object.__eq__)
def _object_eq(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.constant(True if args[0] is args[1] else NotImplemented)


@on_call(type.__call__)
def _type_call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = args[0]
    if not isinstance(cls, ClassValue):
        raise GraphBreak("unsupported-builtin", "type.__call__ of an unknown class")
    return cls.instantiate(tx, args[1:], kwargs)


# -- methods and partials ------------------------------------------------------------------------------------
@on_call(types.MethodType)
def _method(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return BoundMethodValue(args[0], args[1])


@on_call(types.SimpleNamespace)
def _namespace(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-object", "a SimpleNamespace made inside the compiled function")


@on_call(globals)
def _globals(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.frames[-1].globals()


@on_call(builtins.print, builtins.input, builtins.open, builtins.breakpoint)
def _side_effect(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("side-effect", "print, input, open or breakpoint")


@on_call(
    builtins.eval,
    builtins.exec,
    builtins.compile,
    builtins.locals,
    builtins.dir,
    builtins.__import__,
)
def _refused(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-builtin", "eval, exec, compile, locals, dir or __import__")
