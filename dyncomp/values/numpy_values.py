"""NumPy's numbers, and arrays that the traced program makes of known numbers.

    np.sqrt(x.shape[-1])                 a NumpyScalarValue: computed while tracing; a symbolic size is pinned
    x * np.float32(0.5)                  the graph gets `0.5`, which is how torch reads a NumPy number
    torch.tensor(np.float32(0.5))        ... and the dtype of that number where torch takes it over
    for r in np.linspace(0, 0.1, n):     a NumpyArrayValue: real, owned by the trace, never written
    torch.from_numpy(np.arange(3))       a copy of a constant tensor in the graph

NumPy itself computes, on the real numbers, so results are its own. What depends on more than the arguments is left to
Python, as a break: floating-point errors (they warn, or raise, as `np.errstate` says), arrays of random numbers, arrays of the
caller, writes to arrays, arrays of tensors. Importing this module without NumPy registers nothing.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.guards.plain import know
from dyncomp.guards.source import Call, Const, Source
from dyncomp.values import registry
from dyncomp.values.base import Builder, NotConstant, Tracer, Unreconstructible, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.operators import BINARY, COMPARE, UNARY

Args = Sequence[Value]
Kwargs = dict[str, Value]

try:
    import numpy as np
except ImportError:  # torch works without it, and so does this compiler
    np = None  # type: ignore[assignment]

_BITS: Any = None if np is None else know("bits of a NumPy number", np.generic.tobytes)
# Results depend on the arguments alone, and no argument is written.
_FUNCTIONS = (
    "prod sum mean median average var std max min amax amin argmax argmin any all ptp cumsum cumprod diff around round clip "
    "linspace arange logspace geomspace array asarray zeros ones full eye identity tri tril triu meshgrid indices "
    "concatenate stack vstack hstack split array_split reshape ravel squeeze expand_dims transpose swapaxes moveaxis flip roll "
    "tile repeat outer dot matmul inner cross kron trace diag where nonzero argsort sort searchsorted unique isclose allclose "
    "array_equal isscalar ndim shape size interp percentile quantile histogram polyval gradient convolve nan_to_num "
    "result_type can_cast promote_types dtype"
).split()
_ARRAY_METHODS = frozenset(
    "tolist item astype reshape sum mean prod max min std var argmax argmin cumsum cumprod copy flatten ravel transpose "
    "squeeze round clip any all nonzero dot repeat take swapaxes diagonal conj argsort searchsorted trace tobytes".split()
)
_ARRAY_ATTRIBUTES = frozenset("shape dtype size ndim itemsize nbytes T real imag strides".split())
_MOST_ELEMENTS = 4096  # of a tensor made from an array: they are written into the graph
_WRITES = frozenset({"setflags", "setfield", "tofile", "dump", "byteswap", "resize", "fill", "put", "sort"})


class NumpyScalarValue(Value):
    """A NumPy number or dtype: an immutable object that is known while tracing. One of the call is guarded when it is read."""

    def __init__(self, obj: Any, source: Source | None = None, tx: Tracer | None = None):
        super().__init__(source)
        self._obj, self._tx = obj, tx

    def python_type(self) -> type:
        return type(self._obj)

    def describe(self) -> str:
        return f"{self._obj!r}" if self.source is None else f"{self.source} (a {type(self._obj).__name__})"

    def is_constant(self) -> bool:
        return True

    def as_constant(self) -> Any:
        if self._tx is not None and self.source is not None:
            # Bytes are equal for the same number only, nan and -0.0 included.
            self._tx.guard(Call(self.source, _BITS), "equals", self._obj.tobytes())
            self._tx = None
        return self._obj

    def key(self, tx: Tracer) -> Hashable:
        return self.as_constant()  # type: ignore[no-any-return]

    def truth(self, tx: Tracer) -> bool:
        return bool(self.as_constant())

    def fx_arg(self, tx: Tracer) -> Any:
        number = self.as_constant()
        plain = number.item() if isinstance(number, np.integer | np.floating) else None
        if plain is None:  # torch takes a NumPy bool for a float and drops the imaginary part of a complex number
            raise GraphBreak("unsupported-object", f"{self.describe()} as an argument of a tensor operation")
        return plain

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(self._obj)

    # -- operations
    def unary(self, tx: Tracer, op: str) -> Value:
        return compute(tx, UNARY[op], [self])

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        if _is_tensor(other):
            return None  # NumPy leaves it to the tensor, whose __array_priority__ is higher
        return compute(tx, BINARY[op], [other, self] if reflected else [self, other])

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if _is_tensor(other):
            return None
        return compute(tx, COMPARE[op], [self, other])

    def getattr(self, tx: Tracer, name: str) -> Value:
        return _attribute(tx, self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return _method(tx, self, name, args, kwargs)


class NumpyArrayValue(Value):
    """An array that the program made while traced. `shared`: another object may see its memory, so that it cannot be built anew."""

    def __init__(self, array: Any):
        super().__init__()
        self.array = array
        self.shared = False

    def python_type(self) -> type:
        return np.ndarray

    def describe(self) -> str:
        return f"a NumPy array of shape {self.array.shape}"

    def as_constant(self) -> Any:
        return self.array.copy(order="K")

    def key(self, tx: Tracer) -> Hashable:
        tx.raise_(TypeError, "unhashable type: 'numpy.ndarray'")

    def truth(self, tx: Tracer) -> bool:
        return compute(tx, bool, [self]).truth(tx)

    def fx_arg(self, tx: Tracer) -> Any:
        raise GraphBreak("unsupported-object", f"{self.describe()} as an argument of a tensor operation")

    def reconstruct(self, builder: Builder) -> None:
        if self.shared:
            raise Unreconstructible(self, "a NumPy array that shares memory")
        builder.load_const(_fresh)
        builder.load_const(self.as_constant())
        builder.call(1)

    # -- operations
    def length(self, tx: Tracer) -> Value:
        return compute(tx, len, [self])

    def getitem(self, tx: Tracer, key: Value) -> Value:
        return compute(tx, lambda array, index: array[index], [self, key])

    def iterate(self, tx: Tracer) -> Value:
        if self.array.ndim == 0:
            tx.raise_(TypeError, "iteration over a 0-d array")
        return tx.list_of([self.getitem(tx, tx.constant(i)) for i in range(len(self.array))]).iterate(tx)

    def unary(self, tx: Tracer, op: str) -> Value:
        return compute(tx, UNARY[op], [self])

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        if inplace:
            raise GraphBreak("unsupported-mutation", f"{op}= on {self.describe()}")
        return compute(tx, BINARY[op], [other, self] if reflected else [self, other])

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        return compute(tx, COMPARE[op], [self, other])

    def contains(self, tx: Tracer, item: Value) -> Value:
        return compute(tx, lambda array, value: value in array, [self, item])

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name in _ARRAY_METHODS:
            return NumpyMethodValue(self, name)
        if name not in _ARRAY_ATTRIBUTES:
            return super().getattr(tx, name)
        return compute(tx, lambda array: getattr(array, name), [self])

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in _ARRAY_METHODS:
            return super().call_method(tx, name, args, kwargs)
        return _method(tx, self, name, args, kwargs)


class NumpyMethodValue(Value):
    """A method of a NumPy number or array."""

    def __init__(self, owner: NumpyScalarValue | NumpyArrayValue, name: str):
        super().__init__()
        self.owner, self.name = owner, name

    def python_type(self) -> type:
        return types.BuiltinFunctionType

    def describe(self) -> str:
        return f"{self.name} of {self.owner.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return self.owner.call_method(tx, self.name, args, kwargs)

    def reconstruct(self, builder: Builder) -> None:
        builder.load(self.owner)
        builder.load_attr(self.name)


def _fresh(array: Any) -> Any:
    """What generated code calls for an array of a known content: each call makes one of its own."""
    return array.copy(order="K")


def _is_tensor(value: Value) -> bool:
    return issubclass(value.python_type(), torch.Tensor)


def _attribute(tx: Tracer, value: NumpyScalarValue, name: str) -> Value:
    found = getattr(value.python_type(), name, None)
    if callable(found) and not isinstance(found, type):
        return NumpyMethodValue(value, name)
    return compute(tx, lambda number: getattr(number, name), [value])


def _method(tx: Tracer, value: Value, name: str, args: Args, kwargs: Kwargs) -> Value:
    if name in _WRITES:
        raise GraphBreak("unsupported-call", f"{name} of {value.describe()}")
    return compute(tx, lambda owner, *rest, **named: getattr(owner, name)(*rest, **named), [value, *args], kwargs)


def compute(tx: Tracer, function: Callable[..., Any], args: Args, kwargs: Kwargs | None = None) -> Value:
    """`function(*args, **kwargs)` for real. Its arguments must be known, and it may not write to them."""
    kwargs = kwargs or {}
    if "out" in kwargs:
        raise GraphBreak("unsupported-mutation", "a NumPy function that writes to `out`")
    try:
        real_args = [_real(arg) for arg in args]
        real_kwargs = {name: _real(arg) for name, arg in kwargs.items()}
    except NotConstant as unknown:
        name = getattr(function, "__name__", repr(function))
        raise GraphBreak("unsupported-call", f"NumPy's {name} of {unknown}") from None
    try:
        with np.errstate(all="raise"):
            result = function(*real_args, **real_kwargs)
    except FloatingPointError as error:
        raise GraphBreak("unsupported-call", f"a NumPy operation that warns or raises as np.errstate says: {error}") from None
    except Exception as error:  # noqa: BLE001  the program's own error, raised again inside the trace
        tx.raise_real(error)
    return _result(tx, result, [arg for arg in (*args, *kwargs.values()) if isinstance(arg, NumpyArrayValue)])


def _real(value: Value) -> Any:
    return value.array if isinstance(value, NumpyArrayValue) else value.as_constant()


def _result(tx: Tracer, result: Any, operands: Sequence[NumpyArrayValue]) -> Value:
    if type(result) in (tuple, list):
        items = [_result(tx, item, operands) for item in result]
        return tx.tuple_of(items) if type(result) is tuple else tx.list_of(items)
    if not isinstance(result, np.ndarray):
        return tx.constant(result)
    if type(result) is not np.ndarray or result.dtype.hasobject:
        raise GraphBreak("unsupported-object", f"a NumPy array of type {type(result).__name__}, dtype {result.dtype}")
    for operand in operands:
        if result is operand.array:
            return operand
    made = NumpyArrayValue(result)
    for operand in operands:
        if np.may_share_memory(result, operand.array):
            made.shared = operand.shared = True
    return made


def _call(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    return compute(tx, fn, args, kwargs)


def _is_known_function(fn: Any) -> bool:
    # By identity: a lookup would call the `__hash__` and `__eq__` of any object of the program.
    return type(fn) is np.ufunc or id(fn) in _known_functions


def _is_known_in_c(fn: Any) -> bool:
    return not isinstance(fn, types.FunctionType) and _is_known_function(fn)


# -- tensors made of NumPy's numbers -----------------------------------------------------------------------------
def holds_numpy(value: Value) -> bool:
    """True for a NumPy number or array, and for lists and tuples with one in them."""
    items = getattr(value, "items", None)
    if isinstance(items, list):
        return any(map(holds_numpy, items))
    return isinstance(value, NumpyScalarValue | NumpyArrayValue)


def tensor_of(tx: Tracer, function: Any, data: Value, kwargs: Kwargs) -> Value:
    """torch.tensor or torch.as_tensor of such data: the dtype is what torch finds in it."""
    if isinstance(data, NumpyArrayValue):
        made = _constant_tensor(tx, data, shares=function is torch.as_tensor)
        if set(kwargs) - {"dtype", "device"}:
            raise GraphBreak("unsupported-call", f"{function.__name__} of a NumPy array with {', '.join(sorted(kwargs))}")
        moved = {name: given for name, given in kwargs.items() if given.as_constant() is not None}
        return tx.call(made.getattr(tx, "to"), [], moved) if moved else made
    if "dtype" not in kwargs or kwargs["dtype"].as_constant() is None:
        try:
            found = function(data.as_constant()).dtype
        except Exception as error:  # noqa: BLE001  the program's own error
            tx.raise_real(error)
        kwargs = {**kwargs, "dtype": tx.constant(found)}
    return tx.graph_call(function, [data], kwargs)


def _constant_tensor(tx: Tracer, value: NumpyArrayValue, shares: bool) -> Value:
    if shares:
        value.shared = True
        if not value.array.flags.c_contiguous:
            raise GraphBreak("unsupported-call", "a tensor in the memory of a NumPy array that is not contiguous")
    if value.array.size > _MOST_ELEMENTS:
        raise GraphBreak("unsupported-call", f"a tensor of {value.describe()}, made of more than {_MOST_ELEMENTS} numbers")
    try:
        dtype = torch.from_numpy(np.array(value.array, order="C")).dtype
    except TypeError as error:
        tx.raise_real(error)
    numbers = tx.constant(value.array.ravel().tolist())
    flat = tx.graph_call(torch.tensor, [numbers], {"dtype": tx.constant(dtype)})
    return tx.graph_call("reshape", [flat, tx.constant(value.array.shape)])


def _from_numpy(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and isinstance(args[0], NumpyArrayValue):
        return _constant_tensor(tx, args[0], shares=True)
    raise GraphBreak("unsupported-call", "torch.from_numpy of an array of the caller")


def _wrap_number(tx: Tracer, obj: Any, source: Source) -> Value:
    return NumpyScalarValue(obj) if isinstance(source, Const) else NumpyScalarValue(obj, source, tx)


def _wrap_dtype(tx: Tracer, obj: Any, source: Source) -> Value:
    if not isinstance(source, Const):
        tx.guard(source, "id", obj)
    return NumpyScalarValue(obj)


def _register() -> None:
    global _known_functions
    found = [getattr(np, name) for name in _FUNCTIONS if hasattr(np, name)]
    _known_functions = {id(function): function for function in found}
    registry.call_if(_is_known_function, priority=20)(_call)
    registry.wrap_if(_is_known_in_c, priority=39)(lambda tx, obj, source: BuiltinValue(obj, source))
    registry.on_call(torch.from_numpy)(_from_numpy)
    numbers = [kind for kind in {*np.sctypeDict.values()} if issubclass(kind, np.number | np.bool_)]
    for kind in numbers:
        registry.on_call(kind)(lambda tx, args, kwargs, kind=kind: compute(tx, kind, args, kwargs))
        registry.wrap_type(kind)(_wrap_number)
    # One object for each of the dtypes that numbers have: identity is what a guard compares.
    registry.wrap_if(lambda obj: isinstance(obj, np.dtype), priority=20)(_wrap_dtype)


_known_functions: dict[int, Any] = {}
if np is not None:
    _register()
