"""NumPy's random numbers of the older kind, one at a time: `np.random.rand()`, `np.random.uniform(0, 1)`, `RandomState` objects.

As Python's (`python_random.py`): the call runs before the graph, which takes the float or int that it gives. Arrays of numbers, seeds
and `Generator` objects stay with Python. Importing this module without NumPy registers nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Source
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.constant import ConstantValue
from dyncomp.values.identity_key import IdentityKey
from dyncomp.values.numpy_values import np
from dyncomp.values.python_random import is_there
from dyncomp.values.sym_number import SymNumberValue, wrap_number

Args = Sequence[Value]
Kwargs = dict[str, Value]
_FLOATS = frozenset(
    {
        "rand", "randn", "random", "random_sample", "uniform", "normal", "standard_normal", "exponential", "standard_exponential", "beta",
        "gamma", "standard_gamma", "laplace", "logistic", "lognormal", "rayleigh", "triangular", "gumbel", "weibull", "pareto", "power",
    }
)  # fmt: skip
_SMALL = 1 << 62


class NumpyStream(Value):
    """An object of exactly `np.random.RandomState`."""

    def __init__(self, obj: Any, source: Source):
        super().__init__(source)
        self.obj = obj

    def python_type(self) -> type:
        return np.random.RandomState

    def describe(self) -> str:
        return "a NumPy RandomState"

    def real(self) -> Any:
        return self.obj

    def key(self, tx: Tracer) -> Hashable:
        return IdentityKey(self)

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> Value:
        function = vars(np.random.RandomState).get(name)
        if id(function) not in _methods:
            return super().getattr(tx, name)
        return tx.bind_method(function, self)  # type: ignore[attr-defined,no-any-return]

    def draw(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if tx.fake_mode.runs_python:
            raise GraphBreak("random", f"numpy.random.{name}() after an operation that is written in Python and may draw numbers itself")
        given = [*args, *kwargs.values()]
        takes = (int,) if name == "randint" else (int, float)
        if {"size", "dtype"} & set(kwargs) or any(value.python_type() not in takes or not is_there(tx, value) for value in given):
            raise GraphBreak("random", f"numpy.random.{name}() of more than one number, or of other things than numbers that are there before the graph runs")
        fixed = all(isinstance(value, ConstantValue) for value in given)
        example = self._trial(name, args, kwargs) if fixed else 0.5 if name in _FLOATS else 1
        if type(example) not in (int, float) or not fixed and name == "randint":
            raise GraphBreak("random", f"numpy.random.{name}() that gives {type(example).__name__}, or an int of a range that varies")
        tx.early.note_stream(self, may_raise=not fixed)
        early = tx.early.call(getattr(np.random.RandomState, name), [self, *args], kwargs, example)
        if type(example) is float:
            return SymNumberValue(tx, tx.sizes.early(early))
        bounds = sorted([0, *[value.as_constant() for value in given]])
        return wrap_number(tx, tx.sizes.early(early, bounds[0], bounds[-1]))

    @staticmethod
    def _trial(name: str, args: Args, kwargs: Kwargs) -> Any:
        """What another stream gives. An error depends on the arguments alone; the program gets it from NumPy itself."""
        numbers = [value.as_constant() for value in args]
        named = {key: value.as_constant() for key, value in kwargs.items()}
        if any(abs(number) >= _SMALL for number in (*numbers, *named.values()) if type(number) is int):
            raise GraphBreak("random", f"numpy.random.{name}() of large numbers")
        try:
            return getattr(np.random.RandomState(0), name)(*numbers, **named)
        except Exception as error:
            raise GraphBreak("eager-error", f"numpy.random.{name}: {type(error).__name__}: {error}") from error


_methods: dict[int, str] = {}


def _register(name: str) -> None:
    function = vars(np.random.RandomState)[name]
    _methods[id(function)] = name

    @registry.on_call(function)
    def call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not args or not isinstance(args[0], NumpyStream):
            raise GraphBreak("random", f"numpy.random.{name}() of another class than RandomState")
        return args[0].draw(tx, name, args[1:], kwargs)


if np is not None:
    for _name in sorted({*_FLOATS, "randint"}):
        _register(_name)
    registry.wrap_type(np.random.RandomState)(lambda tx, obj, source: NumpyStream(obj, source))
    registry.wrap_if(lambda obj: id(obj) in _methods, priority=38)(lambda tx, obj, source: BuiltinValue(obj, source))
