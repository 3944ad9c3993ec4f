"""Python's random numbers: `random.random()` and its like, and `random.Random` objects.

    x * random.uniform(0.5, 1.5)        the call runs before the graph, which takes the number (`interp/early_calls.py`)
    random.choice([0.1, 0.2])           likewise: all items are numbers of one type
    if random.random() < p:             nobody knows the number while tracing: the branch breaks the graph
    random.choice(["a", "b"])           what follows depends on which one it is: the call breaks the graph

Each run draws anew, in the order of the program, from the same stream as eager, whose state it leaves as eager does.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Early, Source
from dyncomp.values.base import ABSENT, Builder, Tracer, Value
from dyncomp.values.builtin_kind import BoundBuiltin
from dyncomp.values.constant import ConstantValue
from dyncomp.values.identity_key import IdentityKey
from dyncomp.values.registry import on_call, wrap_type
from dyncomp.values.sequence import ListValue
from dyncomp.values.sequence_base import SequenceValue
from dyncomp.values.sym_number import SymNumberValue, wrap_number

Args = Sequence[Value]
Kwargs = dict[str, Value]
_METHODS = frozenset(name for name in dir(random.Random) if not name.startswith("_"))
_FLOATS = frozenset(
    {
        "random", "uniform", "gauss", "normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "betavariate",
        "paretovariate", "weibullvariate",
    }
)  # fmt: skip
_ANY_FLOAT = frozenset({"uniform", "gauss", "normalvariate"})  # of these, what raises for no float
_INTS = frozenset({"randint", "randrange"})
_OF_FIXED_ARGUMENTS = frozenset({"triangular", "binomialvariate"})  # whose type depends on them
_BITS = 62  # of an int: twice as much still fits a register
_MOST_ITEMS = 64  # of a list of numbers: each is an input of the graph


class RandomValue(Value):
    """A stream: an object of exactly `random.Random`. One made in the traced code is made before the graph, too."""

    def __init__(self, source: Source, obj: Any = ABSENT):
        super().__init__(source)
        self.obj = obj

    def python_type(self) -> type:
        return random.Random

    def describe(self) -> str:
        return "a random.Random object"

    def real(self) -> Any:
        return self.obj

    def key(self, tx: Tracer) -> Hashable:
        return IdentityKey(self)

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__class__":
            return tx.constant(random.Random)
        return BoundBuiltin(self, name) if name in _METHODS else super().getattr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in _METHODS:
            return super().call_method(tx, name, args, kwargs)
        if tx.fake_mode.runs_python:
            raise GraphBreak("random", f"random.{name}() after an operation that is written in Python and may draw numbers itself")
        given = _by_name(name, [self, *args], kwargs)
        if name in _FLOATS or name in _INTS or name in _OF_FIXED_ARGUMENTS:
            return self._number(tx, name, args, kwargs, list(given.values())[1:])
        rule = _RULES.get(name)
        if rule is None:
            raise GraphBreak("random", f"random.{name}()")
        del given["self"]
        return rule(self, tx, **given)

    def _early(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs, example: Any = None, may_raise: bool = False) -> Early:
        tx.early.note_stream(self, may_raise)
        return tx.early.call(getattr(random.Random, name), [self, *args], kwargs, example)  # type: ignore[no-any-return]

    # -- one number -----------------------------------------------------------------------------------------
    def _number(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs, given: Args) -> Value:
        kinds = (int, bool) if name in _INTS else (int, float, bool)
        for value in given:
            if value.python_type() not in kinds or not is_there(tx, value):
                raise GraphBreak("random", f"random.{name}() of other things than numbers that are there before the graph runs")
        if all(isinstance(value, ConstantValue) for value in given):
            # The others compute powers and exponentials of what they draw, which may be beyond floats.
            example, may_raise = _trial(name, *[_seen(value, name) for value in given]), name in _FLOATS - _ANY_FLOAT - {"random"}
        elif name in _OF_FIXED_ARGUMENTS:
            raise GraphBreak("random", f"random.{name}() of numbers that vary")
        else:
            example, may_raise = 0.5 if name in _FLOATS else 1, True
        if type(example) is float:
            return SymNumberValue(tx, tx.sizes.early(self._early(tx, name, args, kwargs, example, may_raise)))
        if type(example) is not int:
            raise GraphBreak("random", f"random.{name}() that gives a {type(example).__name__}")
        return self._whole_number(tx, name, args, kwargs, given, example, may_raise)

    def _whole_number(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs, given: Args, example: int, may_raise: bool) -> Value:
        numbers: list[Any] = [value.number if isinstance(value, SymNumberValue) else value.as_constant() for value in given]
        if any(abs(number) >> _BITS for number in numbers if type(number) is int):
            raise GraphBreak("random", f"random.{name}() of numbers of more than {_BITS} bits")
        low, most = None, None
        if name == "randint":
            low, most = numbers
        elif name == "randrange" and len(numbers) < 3:
            low, most = (0, numbers[0] - 1) if len(numbers) == 1 else (numbers[0], numbers[1] - 1)
        early = self._early(tx, name, args, kwargs, example, may_raise)
        bounds = [bound if type(bound) is int else end * (1 << _BITS) for bound, end in ((low, -1), (most, 1))]
        number = tx.sizes.early(early, *bounds)
        if isinstance(most, torch.SymInt):
            number.node.shape_env.learn_bound(number, most)
        return wrap_number(tx, number)

    # -- bits, items of sequences -------------------------------------------------------------------------------
    def getrandbits(self, tx: Tracer, k: Value) -> Value:
        bits = _fixed(k, "getrandbits")
        _trial("getrandbits", bits)
        if bits > _BITS:
            raise GraphBreak("random", f"random.getrandbits() of more than {_BITS} bits")
        early = self._early(tx, "getrandbits", [tx.constant(bits)], {}, 0)
        return wrap_number(tx, tx.sizes.early(early, 0, (1 << bits) - 1))

    def choice(self, tx: Tracer, seq: Value) -> Value:
        numbers = _numbers_in(seq, "choice")
        _trial("choice", numbers)
        return _one_of(tx, self._early(tx, "choice", [tx.constant(numbers)], {}, numbers[0]), numbers)

    def choices(self, tx: Tracer, population: Value, weights: Value | None = None, *, cum_weights: Value | None = None, k: Value | None = None) -> Value:
        named = {"weights": weights, "cum_weights": cum_weights, "k": k}
        options = {name: _fixed(value, "choices") for name, value in named.items() if value is not None}
        return self._several(tx, "choices", _numbers_in(population, "choices"), options, options.get("k", 1))

    def sample(self, tx: Tracer, population: Value, k: Value, *, counts: Value | None = None) -> Value:
        options = {"k": _fixed(k, "sample")}
        if counts is not None:
            options["counts"] = _fixed(counts, "sample")
        return self._several(tx, "sample", _numbers_in(population, "sample"), options, options["k"])

    def shuffle(self, tx: Tracer, x: Value) -> Value:
        if not isinstance(x, ListValue) or x.cls is not list:
            raise GraphBreak("random", f"random.shuffle() of {x.describe()}")
        numbers = _numbers_in(x, "shuffle")
        if len(numbers) > 1:
            x.replace(tx, self._several(tx, "shuffle", numbers, {}, len(numbers)).unpack(tx))
        return tx.constant(None)

    def _several(self, tx: Tracer, name: str, numbers: Sequence[Any], options: dict[str, Any], count: int) -> Value:
        if name != "shuffle":
            _trial(name, numbers, **options)
        if count > _MOST_ITEMS:
            raise GraphBreak("random", f"random.{name}() of more than {_MOST_ITEMS} numbers")
        tx.early.note_stream(self)
        function = _shuffled if name == "shuffle" else getattr(random.Random, name)
        named = {key: tx.constant(value) for key, value in options.items()}
        found = tx.early.call_for_list(function, [self, tx.constant(numbers)], named, [numbers[0]] * count if count else [])
        return tx.list_of([_one_of(tx, one, numbers) for one in found])

    # -- the state ---------------------------------------------------------------------------------------------
    def seed(self, tx: Tracer, a: Value | None = None, version: Value | None = None) -> Value:
        given = [value for value in (a, version) if value is not None]
        for value in given:
            if not is_there(tx, value) or value.python_type() not in (int, float, bool, str, bytes, type(None)):
                raise GraphBreak("random", f"random.seed() with {value.describe()}")
        self._early(tx, "seed", given, {})
        return tx.constant(None)

    def getstate(self, tx: Tracer) -> Value:
        return StreamState(self._early(tx, "getstate", [], {}))

    def setstate(self, tx: Tracer, state: Value) -> Value:
        outside = isinstance(state, SequenceValue) and state.source is not None and not state.is_read
        if not outside and not isinstance(state, StreamState):
            raise GraphBreak("random", "random.setstate() with a state that the compiled code has made or read")
        self._early(tx, "setstate", [state], {}, may_raise=outside)
        return tx.constant(None)

    def reconstruct(self, builder: Builder) -> None:
        assert self.source is not None
        builder.load_source(self.source)


_RULES: dict[str, Callable[..., Value]] = {
    name: getattr(RandomValue, name)
    for name in ("getrandbits", "choice", "choices", "sample", "shuffle", "seed", "getstate", "setstate")
}


class StreamState(Value):
    """What `getstate()` gave: it can be kept, handed on, and given to `setstate`."""

    def python_type(self) -> type:
        return tuple

    def describe(self) -> str:
        return "the state of a random.Random object"

    def truth(self, tx: Tracer) -> bool:
        return True


# -- arguments -----------------------------------------------------------------------------------------------
def _by_name(name: str, args: Args, kwargs: Kwargs) -> dict[str, Value]:
    """Arguments in the order of the method's own; those that it does not take are Python's to refuse."""
    try:
        return inspect.signature(getattr(random.Random, name)).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise GraphBreak("eager-error", f"random.{name}: {error}") from None


def _trial(name: str, *args: Any, **kwargs: Any) -> Any:
    """What the method gives another stream. An error depends on the arguments alone; the program gets it from Python itself."""
    try:
        return getattr(random.Random(0), name)(*args, **kwargs)
    except Exception as error:
        raise GraphBreak("eager-error", f"random.{name}: {type(error).__name__}: {error}") from error


def is_there(tx: Tracer, value: Value) -> bool:
    """True for a constant, and for a number that the code before the graph can compute."""
    if isinstance(value, SymNumberValue):
        return not isinstance(value.number, torch.SymBool) and not tx.sizes.is_from_graph(value.number)
    return isinstance(value, ConstantValue)


def _seen(value: Value, name: str) -> Any:
    """The number in this call. That of a float need not stay, where any float will do."""
    assert isinstance(value, ConstantValue)
    return value.peek() if name in _ANY_FLOAT and type(value.peek()) is float else value.as_constant()


def _fixed(value: Value, name: str) -> Any:
    if not value.is_constant() or value.symbolic:
        raise GraphBreak("random", f"random.{name}() with {value.describe()}")
    return value.as_constant()


def _numbers_in(value: Value, name: str) -> Any:
    """A range, or the numbers in a list or tuple: all ints, or all floats."""
    if isinstance(value, ConstantValue) and value.python_type() is range:
        numbers = value.as_constant()
        ends: Sequence[Any] = (numbers.start, numbers.stop)
    else:
        items = value.items if isinstance(value, SequenceValue) else []
        known = bool(items) and all(isinstance(item, ConstantValue) for item in items)
        kinds = {item.python_type() for item in items} if known else set()
        if kinds not in ({int}, {float}):
            raise GraphBreak("random", f"random.{name}() among other things than numbers of one type")
        ends = numbers = [item.as_constant() for item in items]
    if any(type(end) is int and abs(end) >> _BITS for end in ends):
        raise GraphBreak("random", f"random.{name}() among numbers of more than {_BITS} bits")
    return numbers


def _one_of(tx: Tracer, early: Early, numbers: Sequence[Any]) -> Value:
    if isinstance(early.example, float):
        return SymNumberValue(tx, tx.sizes.early(early))
    ends = (numbers[0], numbers[-1]) if isinstance(numbers, range) else numbers
    return wrap_number(tx, tx.sizes.early(early, min(ends), max(ends)))


def _shuffled(stream: random.Random, numbers: list[Any]) -> list[Any]:
    """Run-time helper"""
    stream.shuffle(numbers)
    return numbers


# -- calls ---------------------------------------------------------------------------------------------------
@wrap_type(random.Random)
def wrap_random(tx: Tracer, obj: Any, source: Source) -> Value:
    return RandomValue(source, obj)


@on_call(random.Random)
def _make(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The seed is the one argument."""
    if kwargs or not all(is_there(tx, arg) for arg in args):
        raise GraphBreak("random", "a random.Random object seeded with something that is not there before the graph runs")
    if args and args[0].python_type() not in (int, float, bool, str, bytes, type(None)):
        raise GraphBreak("eager-error", f"random.Random({args[0].describe()})")
    return RandomValue(tx.early.call(random.Random, args, {}))


def _register(name: str) -> None:
    @on_call(getattr(random.Random, name))
    def call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not args or not isinstance(args[0], RandomValue):
            raise GraphBreak("random", f"random.{name}() of another class than random.Random")
        return args[0].call_method(tx, name, args[1:], kwargs)


for _name in sorted(_METHODS):
    if callable(getattr(random.Random, _name)):
        _register(_name)
