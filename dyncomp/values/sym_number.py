"""Numbers that vary from call to call: sizes of tensors, ints of the call, and what is computed from them.

    x.shape[0] * 2      SymNumberValue of the torch.SymInt 2*s0
    if x.shape[0] > 3   the env answers and guards it
    range(x.shape[0])   the number is needed: it is pinned, which is a guard on its value

Arithmetic is torch's and the shape engine's; results that turn out plain become constants.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.guards.number import Number
from dyncomp.shape.errors import DataDependent
from dyncomp.shape.int_program import python_function
from dyncomp.shape.symbolic import MATH_FUNCTIONS, PLAIN_TYPES, is_symbolic, plain, select, value_program
from dyncomp.values import registry
from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.constant import ConstantValue, fold_call
from dyncomp.values.operators import BINARY, COMPARE, UNARY

_PLAIN = (int, float, bool)


class SymNumberValue(Value):
    """`number`: a torch.SymInt, SymFloat or SymBool of this trace's env."""

    symbolic = True

    def __init__(self, tx: Tracer, number: Any, source: Any = None):
        super().__init__(source)
        self._tx, self.number = tx, number

    def python_type(self) -> type:
        return PLAIN_TYPES[type(self.number)]

    def describe(self) -> str:
        return str(self.source or self.number)

    # -- the number itself: pins it
    def is_constant(self) -> bool:
        return self.number.node.has_hint()  # type: ignore[no-any-return]

    def as_constant(self) -> Any:
        try:
            return self.python_type()(self.number)
        except DataDependent as error:
            reason = "data-dependent-branch" if isinstance(self.number, torch.SymBool) else "data-dependent-value"
            raise GraphBreak(reason, str(error), error.cure) from error

    def key(self, tx: Tracer) -> Hashable:
        return self.as_constant()  # type: ignore[no-any-return]

    def truth(self, tx: Tracer) -> bool:
        return asked(lambda: bool(self.number))

    # -- graph and code
    def fx_arg(self, tx: Tracer) -> Any:
        if isinstance(self.number, torch.SymBool):
            return self.as_constant()
        return tx.number_node(self.number)

    def reconstruct(self, builder: Builder) -> None:
        number = plain(self.number)
        if not is_symbolic(number) or isinstance(number, torch.SymBool) and (number.node.has_hint() or self._tx.sizes.is_from_graph(number)):
            builder.load_const(self.as_constant())
            return
        computed = not isinstance(number, torch.SymBool) and self._tx.sizes.may_have_no_result(number)
        if computed or self._tx.sizes.is_from_graph(number):
            builder.load_node(self._tx.number_node(number))
            return
        program = value_program(number.node.shape_env, [number])
        builder.load_const(python_function(program))
        for origin in program.inputs:
            _load_number(builder, origin)
        builder.call(len(program.inputs))

    # -- operations
    def unary(self, tx: Tracer, op: str) -> Value:
        if op == "~" and isinstance(self.number, torch.SymInt):
            return self._result(tx, _inverted, self)
        return self._result(tx, UNARY[op], self)

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        if not is_number(other):
            return None
        operands = (other, self) if reflected else (self, other)
        return self._result(tx, BINARY[op], *operands)

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if not is_number(other):
            return None
        return self._result(tx, COMPARE[op], self, other)

    def _result(self, tx: Tracer, function: Callable[..., Any], *operands: Value) -> Value:
        return compute(tx, function, *operands)

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name in ("real", "numerator"):
            return self
        if name == "imag":
            return tx.constant(self.python_type()(0))
        if self._method(name) is not None:
            return NumberMethodValue(self, name)
        return tx.constant(self.as_constant()).getattr(tx, name)

    def _method(self, name: str) -> Callable[..., Any] | None:
        """The symbolic form of a method; None for all others."""
        if name == "is_integer" and self.python_type() is float:
            return _is_integer
        return _METHODS.get(name) if hasattr(self.python_type(), name) else None

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        function = self._method(name)
        if function is not None and not kwargs and all(map(is_number, args)):
            return compute(tx, function, self, *args)
        return tx.constant(self.as_constant()).call_method(tx, name, args, kwargs)

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        tx.raise_(TypeError, f"'{self.python_type().__name__}' object is not callable")


class NumberMethodValue(Value):
    """A method of a number that is not called on the spot."""

    def __init__(self, number: SymNumberValue, name: str):
        super().__init__()
        self.owner, self.name = number, name

    def python_type(self) -> type:
        return type(getattr(self.owner.python_type()(), self.name))

    def describe(self) -> str:
        return f"{self.owner.describe()}.{self.name}"

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.call_method(tx, self.name, args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.owner
        return tx.constant(getattr(self.owner.as_constant(), self.name)).getattr(tx, name)

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, builder: Builder) -> None:
        builder.load(self.owner)
        builder.load_attr(self.name)


def asked(question: Callable[[], Any]) -> Any:
    """The answer; a number that only running the program tells breaks the graph."""
    try:
        return question()
    except DataDependent as error:
        raise GraphBreak("data-dependent-branch", str(error), error.cure) from error


def compute(tx: Tracer, function: Callable[..., Any], *operands: Value, plainly: Callable[..., Any] | None = None) -> Value:
    """`function` of numbers, some of them symbolic. `plainly`: what the program called, whose errors are meant."""
    # Python's own arithmetic for numbers that are pinned by now: torch's turns those into floats and asks them for its methods.
    real = [plain(operand.number) if isinstance(operand, SymNumberValue) else operand.as_constant() for operand in operands]
    try:
        result = asked(lambda: function(*real))
    except GraphBreak:
        raise
    except (ArithmeticError, TypeError, ValueError, RuntimeError) as error:  # torch's own checks are the last kind
        if plainly is None and isinstance(error, ZeroDivisionError):
            tx.raise_real(error)
        # An error of Python's, or beyond the engine: the numbers themselves tell which.
        try:
            result = (plainly or function)(*[operand.as_constant() for operand in operands])
        except (ArithmeticError, TypeError, ValueError) as plain_error:
            tx.raise_real(plain_error)
    return wrap_number(tx, result)


def wrap_number(tx: Tracer, number: Any) -> Value:
    """The value of a computed number, plain or symbolic."""
    number = plain(number)
    return SymNumberValue(tx, number) if is_symbolic(number) else tx.constant(number)


def is_number(value: Value) -> bool:
    return isinstance(value, SymNumberValue) or (
        isinstance(value, ConstantValue) and issubclass(value.python_type(), _PLAIN)
    )


def _round(number: Any, digits: int | None = None) -> Any:
    """torch's own `round(SymInt, -1)` gives the number back."""
    if isinstance(number, torch.SymInt):
        node = number.node.round(digits)
        return torch.SymInt(node)
    return builtins.round(number, digits)


def _inverted(number: Any) -> Any:
    return -number - 1


def _is_integer(number: Any) -> Any:
    return torch.SymBool(number.node.is_integer())


def _to_int(number: Any) -> Any:
    return number if isinstance(number, torch.SymInt) else math.trunc(number)


_METHODS: dict[str, Callable[..., Any]] = {
    "__int__": _to_int, "__index__": _to_int, "__trunc__": _to_int, "__float__": torch.sym_float, "__abs__": abs,
    "__floor__": math.floor, "__ceil__": math.ceil, "__round__": _round, "__neg__": UNARY["-"], "__pos__": UNARY["+"],
    "__invert__": _inverted, "conjugate": UNARY["+"],
    **{f"__{name}__": BINARY[op] for name, op in (
        ("add", "+"), ("sub", "-"), ("mul", "*"), ("floordiv", "//"), ("truediv", "/"), ("mod", "%"), ("pow", "**"),
        ("and", "&"), ("or", "|"), ("xor", "^"), ("lshift", "<<"), ("rshift", ">>"))},
    **{f"__{name}__": COMPARE[op] for name, op in (
        ("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))},
}  # fmt: skip

# Functions of numbers that have a symbolic form; with plain numbers they fold as ever.
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    math.floor: math.floor, math.ceil: math.ceil, math.trunc: _to_int, math.sqrt: torch.sym_sqrt,
    torch.sym_max: torch.sym_max, torch.sym_min: torch.sym_min,
    torch.sym_int: torch.sym_int, torch.sym_float: torch.sym_float, torch.sym_not: torch.sym_not,
}  # fmt: skip
_FUNCTIONS.update({
    getattr(math, name): getattr(torch, f"_sym_{name}")
    for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh", "acos", "asin", "atan", "log2")
})  # fmt: skip
_FUNCTIONS.update({getattr(math, name): function for name, function in MATH_FUNCTIONS.items()})


def _log(number: Any, *base: Any) -> Any:
    logarithm = MATH_FUNCTIONS["log"]
    return logarithm(number) / logarithm(*base) if base else logarithm(number)


# As `math` computes them.
_FUNCTIONS.update({
    math.log: _log,
    math.pow: lambda a, b: torch.sym_float(a) ** torch.sym_float(b),
    math.fabs: lambda a: abs(torch.sym_float(a)),
    math.degrees: lambda a: torch.sym_float(a) * (180.0 / math.pi),
    math.radians: lambda a: torch.sym_float(a) * (math.pi / 180.0),
})  # fmt: skip


def _isqrt(number: Any) -> Any:
    """The root of floats may be rounded up to the next whole number."""
    if not isinstance(number, torch.SymInt):
        raise TypeError("no symbolic form")
    root = math.floor(torch.sym_sqrt(number))
    return root - select(root * root > number, 1, 0)


_MOST_DIVISORS = 64


def _gcd(a: Any, b: Any) -> Any:
    """With a plain number: the greatest of its divisors that divides the other one."""
    number, known = (a, b) if is_symbolic(a) else (b, a)
    if type(known) is not int or not isinstance(number, torch.SymInt) or abs(known) > 1 << 20:
        raise TypeError("no symbolic form")
    divisors = [d for d in range(1, abs(known) + 1) if known % d == 0]
    if not divisors:
        return torch.sym_max(number, -number)
    if len(divisors) > _MOST_DIVISORS:
        raise TypeError("no symbolic form")
    common: Any = 1
    for divisor in divisors[1:]:
        common = select(number % divisor == 0, divisor, common)
    return common


def _lcm(a: Any, b: Any) -> Any:
    common = _gcd(a, b)
    return abs(a) // common * abs(b) if a != 0 and b != 0 else 0


_FUNCTIONS.update({math.isqrt: _isqrt, math.gcd: _gcd, math.lcm: _lcm})


def hash_of(tx: Tracer, value: SymNumberValue) -> Value | None:
    """An int from 0 to below 2^61 - 1 is its own hash, which is guarded; None for all other numbers."""
    if not isinstance(value.number, torch.SymInt):
        return None
    inside = asked(lambda: bool(value.number >= 0)) and asked(lambda: bool(value.number < sys.hash_info.modulus))
    return SymNumberValue(tx, value.number) if inside else None


def _register(function: Any, symbolic: Callable[..., Any]) -> None:
    @registry.on_call(function)
    def call(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not kwargs and any(arg.symbolic for arg in args) and all(map(is_number, args)):
            return compute(tx, symbolic, *args, plainly=function)
        return fold_call(tx, function, args, kwargs)


for _function, _symbolic in _FUNCTIONS.items():
    _register(_function, _symbolic)


@registry.on_call(math.prod)
def _prod(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    items = args[0].unpack(tx) if len(args) == 1 and not kwargs and issubclass(args[0].python_type(), list | tuple) else []
    if any(item.symbolic for item in items) and all(map(is_number, items)):
        return compute(tx, _product, *items, plainly=lambda *numbers: math.prod(numbers))
    return fold_call(tx, math.prod, args, kwargs)


def _product(*numbers: Any) -> Any:
    total: Any = 1
    for number in numbers:
        total = total * number
    return total


def product(tx: Tracer, numbers: Sequence[Value]) -> Value:
    """Of sizes."""
    return compute(tx, _product, *numbers)


@registry.wrap_type(int, float)
def wrap_outside_number(tx: Tracer, obj: int | float, source: Any) -> Value:
    number = tx.sizes.number(obj, source)
    return ConstantValue(obj, source, tx) if number is None else SymNumberValue(tx, number, source)


def _load_number(builder: Builder, origin: Number) -> None:
    """Pushes the number that the call brought."""
    if origin.stands_alone:
        builder.load_source(origin.value_source())
        return
    builder.load_const(torch.Tensor.size if origin.what == "size" else torch.Tensor.stride)
    builder.load_source(origin.source)
    builder.load_const(origin.dim)
    builder.call(2)


@registry.result_if(is_symbolic)
def number_result(tx: Tracer, node: Any, number: Any) -> Value:
    tx.bind_number(number, node)
    return SymNumberValue(tx, number)
