"""Calls of functions that torch.jit compiled: their graph is followed operation by operation.

    @torch.jit.script
    def f(x, n: int):                      %m : int = aten::floordiv(%n, 2)       a number of the trace, as TorchScript computes it
        m = n // 2                         %y : Tensor = aten::mul(%x, %m)        a graph node: torch.ops.aten.mul.Scalar(x, m)
        return x * m if x.size(0) > m ...  %c : bool = aten::gt(%s, %m)
                                           prim::If(%c)                           a branch that the sizes decide

What runs is the graph and not the Python that it was made from: TorchScript reads globals when it compiles, makes a float of an int
where a float is declared, gives a float for an int to the power of an int, and copies the lists that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.fake.facts import facts_of
from dyncomp.guards.source import Source
from dyncomp.values import registry, torch_names
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.operators import BINARY, COMPARE
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.torch_tensor import TensorValue

_CURE = "Call the Python function itself, without torch.jit.script, inside the compiled function."
_SCHEMA = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?\(")
_SCALARS = frozenset({"IntType", "FloatType", "BoolType", "StringType", "NumberType", "DeviceObjType", "NoneType"})
_DTYPES = dict(enumerate((
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128, torch.bool,
))) | {15: torch.bfloat16}  # fmt: skip
# Operations on numbers that mean what the Python operator means; on other operands TorchScript's own kernel is asked.
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "remainder": "%",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_READ = {"Int": int, "Float": float, "Bool": bool, "item": None, "IntImplicit": int, "FloatImplicit": float}
_DRAWS = ("dropout", "rand", "bernoulli", "normal", "multinomial", "uniform", "exponential", "poisson")


class _Body:
    """One call: the values of the graph's names so far."""

    def __init__(self, tx: Tracer, name: str):
        self.tx, self.name = tx, name
        self.values: dict[str, Value] = {}

    def refuse(self, what: str) -> GraphBreak:
        return GraphBreak("unsupported-call", f"{what} in the torch.jit.script function {self.name}", _CURE)

    def run(self, block: Any) -> list[Value]:
        for node in block.nodes():
            results = self._step(node)
            for output, value in zip(node.outputs(), results, strict=True):
                self.values[output.debugName()] = value
        return [self.values[value.debugName()] for value in block.outputs()]

    def _step(self, node: Any) -> list[Value]:
        kind = node.kind()
        rule = _FORMS.get(kind)
        if rule is not None:
            return rule(self, node, self._inputs(node))
        found = _SCHEMA.match(node.schema())
        if found is None:
            raise self.refuse(kind)
        space, name, overload = found.groups()
        return self._operation(node, space, name, overload or "default", self._inputs(node))

    def _inputs(self, node: Any) -> list[Value]:
        return [self.values[value.debugName()] for value in node.inputs()]

    def _operation(self, node: Any, space: str, name: str, overload: str, inputs: list[Value]) -> list[Value]:
        tx, outputs = self.tx, list(node.outputs())
        if (listed := self._of_lists(name, overload, inputs)) is not None:
            return [listed]
        if name == "tensor" and overload in ("int", "float", "bool"):
            return [self._tensor(*inputs)]
        if name == "to" and overload in ("prim_Device", "prim_dtype"):
            return [self._to(inputs[0], inputs[1:-2], inputs[-2:])]
        if not any(map(_holds_tensor, inputs)) and all(output.type().kind() in _SCALARS for output in outputs):
            return [self._number(space, name, overload, inputs)]
        if isinstance(inputs[0] if inputs else None, TensorValue) and outputs[0].type().kind() != "TensorType":
            if (read := self._of_tensor(name, inputs)) is not None:
                return [read]
        return self._call(space, name, overload, inputs, len(outputs), tx)

    def _call(self, space: str, name: str, overload: str, inputs: list[Value], count: int, tx: Tracer) -> list[Value]:
        qualified = f"{space}::{name}" + ("" if overload == "default" else f".{overload}")
        if not torch._C._dispatch_has_kernel(qualified):
            raise self.refuse(qualified)
        op = getattr(getattr(getattr(torch.ops, space), name), overload)
        if facts_of(op).random or name.startswith(_DRAWS):
            raise self.refuse(f"{qualified}, which may draw other random numbers there than in Python,")
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        for argument, value in zip(op._schema.arguments, inputs, strict=True):
            if argument.kwarg_only:
                kwargs[argument.name] = self._typed(argument, value)
            else:
                args.append(self._typed(argument, value))
        result = tx.graph_call(op, args, kwargs)
        return [result] if count == 1 else result.unpack(tx)

    def _typed(self, argument: Any, value: Value) -> Value:
        if "ScalarType" in str(argument.real_type) and value.is_constant() and type(value.as_constant()) is int:
            return self._dtype(value)
        return value

    def _dtype(self, value: Value) -> Value:
        number = value.as_constant()
        if number is not None and number not in _DTYPES:
            raise self.refuse(f"the dtype number {number}")
        return self.tx.constant(None if number is None else _DTYPES[number])

    def _to(self, tensor: Value, where: list[Value], flags: list[Value]) -> Value:
        device, dtype = where if len(where) == 2 else (self.tx.constant(None), where[0])
        given = {"device": device, "dtype": self._dtype(dtype), "non_blocking": flags[0], "copy": flags[1]}
        kwargs = {name: value for name, value in given.items() if value.as_constant() is not None}
        return tensor.call_method(self.tx, "to", [], kwargs)

    def _tensor(self, data: Value, dtype: Value, device: Value, requires_grad: Value) -> Value:
        kwargs = {"dtype": self._dtype(dtype), "device": device, "requires_grad": requires_grad}
        return self.tx.call(self.tx.constant(torch.tensor), [data], kwargs)

    def _number(self, space: str, name: str, overload: str, inputs: list[Value]) -> Value:
        tx = self.tx
        if any(value.symbolic for value in inputs):
            kinds = {value.python_type() for value in inputs}
            symbol = _OPERATORS.get(name)
            if symbol is not None and kinds == {int}:
                return tx.call(tx.constant((BINARY | COMPARE)[symbol]), inputs)
            if name in ("min", "max") and kinds == {int} and len(inputs) == 2:
                return tx.call(tx.constant(min if name == "min" else max), inputs)
        op = getattr(getattr(getattr(torch.ops, space), name, None), overload, None)
        if op is None:
            raise self.refuse(f"{space}::{name}")
        try:
            return tx.constant(op(*[value.as_constant() for value in inputs]))
        except (RuntimeError, TypeError, ValueError) as error:
            raise GraphBreak("eager-error", f"{name}: {error}") from error

    def _of_tensor(self, name: str, inputs: list[Value]) -> Value | None:
        """A number that a tensor tells."""
        tx, tensor = self.tx, inputs[0]
        if name in _READ:
            cls = _READ[name]
            return tensor.call_method(tx, "item", [], {}) if cls is None else tx.call(tx.constant(cls), [tensor])
        if name == "len":
            return tensor.length(tx)
        if name in torch_names.METADATA_METHODS:
            answer = tensor.call_method(tx, name, inputs[1:], {})
            return ListValue(answer.unpack(tx)) if issubclass(answer.python_type(), tuple) else answer
        if name in ("device", "requires_grad", "is_cuda", "ndim", "shape"):
            answer = tensor.getattr(tx, name)
            return ListValue(answer.unpack(tx)) if issubclass(answer.python_type(), tuple) else answer
        return None

    def _of_lists(self, name: str, overload: str, inputs: list[Value]) -> Value | None:
        first = inputs[0] if inputs else None
        if not isinstance(first, ListValue):
            return None
        if name == "__getitem__":
            return first.getitem(self.tx, inputs[1])
        if name == "len":
            return first.length(self.tx)
        if name == "append":
            first.call_method(self.tx, "append", inputs[1:], {})
            return first
        if name == "list":
            return ListValue(first.unpack(self.tx))
        if name == "add" and overload == "t":
            return ListValue([*first.unpack(self.tx), *inputs[1].unpack(self.tx)])
        return None


# -- nodes without a schema ------------------------------------------------------------------------------------
def _constant(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    output = node.output()
    if output.type().kind() == "FunctionType":  # of a call that is inlined
        return [body.tx.constant(None)]
    value = output.toIValue()
    if isinstance(value, torch.Tensor):
        raise body.refuse("a tensor that is a constant")
    return [body.tx.constant(value)]


def _branch(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    then, otherwise = node.blocks()
    return body.run(then if inputs[0].truth(body.tx) else otherwise)


def _loop(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    count, going, carried = inputs[0].as_constant(), inputs[1], inputs[2:]
    (block,) = node.blocks()
    names = [value.debugName() for value in block.inputs()]
    i = 0
    while i < count and going.truth(body.tx):
        body.values.update(zip(names, [body.tx.constant(i), *carried], strict=True))
        going, *carried = body.run(block)
        i += 1
    return carried


def _tuple(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    if not node.output().type().annotation_str.startswith(("Tuple[", "tuple[")):
        raise body.refuse("a named tuple")
    return [TupleValue(inputs, tuple)]


def _item_of_tuple(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    return [inputs[0].getitem(body.tx, inputs[1])]


def _list(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    return [ListValue(inputs)]


def _unpack(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    return inputs[0].unpack(body.tx)


def _same(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    return inputs


def _nothing(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    return [body.tx.constant(None)]


def _is_none(negated: bool) -> Callable[[_Body, Any, list[Value]], list[Value]]:
    def rule(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
        nones = [value.is_constant() and value.as_constant() is None for value in inputs]
        if not any(nones):
            raise body.refuse("a comparison of identities")
        return [body.tx.constant(all(nones) != negated)]

    return rule


def _raise(body: _Body, node: Any, inputs: list[Value]) -> list[Value]:
    raise GraphBreak("eager-error", f"the torch.jit.script function {body.name} raises")


_FORMS: dict[str, Callable[[_Body, Any, list[Value]], list[Value]]] = {
    "prim::Constant": _constant,
    "prim::If": _branch,
    "prim::Loop": _loop,
    "prim::TupleConstruct": _tuple,
    "prim::TupleIndex": _item_of_tuple,
    "prim::TupleUnpack": _unpack,
    "prim::ListConstruct": _list,
    "prim::ListUnpack": _unpack,
    "prim::unchecked_cast": _same,
    "prim::Uninitialized": _nothing,
    "prim::RaiseException": _raise,
    "aten::__is__": _is_none(negated=False),
    "aten::__isnot__": _is_none(negated=True),
}


# -- arguments -------------------------------------------------------------------------------------------------
def _holds_tensor(value: Value) -> bool:
    if isinstance(value, ListValue | TupleValue):
        return any(map(_holds_tensor, value.items))
    return isinstance(value, TensorValue)


def _given(body: _Body, kind: Any, value: Value) -> Value:
    """An argument as TorchScript takes it."""
    name = kind.kind()
    if name == "OptionalType":
        none = value.is_constant() and not value.symbolic and value.as_constant() is None
        return value if none else _given(body, kind.getElementType(), value)
    cls = value.python_type()
    if name == "TensorType" and isinstance(value, TensorValue):
        return value
    if name == "IntType" and cls is int or name == "BoolType" and cls is bool or name == "StringType" and cls is str:
        return value
    if name == "FloatType" and cls in (int, float):
        return body.tx.constant(float(value.as_constant()))
    if name == "ListType" and cls is list:
        return ListValue([_given(body, kind.getElementType(), item) for item in value.unpack(body.tx)])
    raise body.refuse(f"an argument of type {cls.__qualname__} for {kind}")


def _bound(body: _Body, schema: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> list[Value]:
    arguments = schema.arguments
    names = [argument.name for argument in arguments]
    if len(args) > len(names) or not set(kwargs) <= set(names[len(args) :]):
        raise GraphBreak("eager-error", f"arguments of the torch.jit.script function {body.name}")
    bound = []
    for i, argument in enumerate(arguments):
        if i < len(args):
            bound.append(_given(body, argument.type, args[i]))
        elif argument.name in kwargs:
            bound.append(_given(body, argument.type, kwargs[argument.name]))
        elif argument.has_default_value():
            bound.append(body.tx.constant(argument.default_value))
        else:
            raise GraphBreak("eager-error", f"the torch.jit.script function {body.name} lacks {argument.name}")
    return bound


@registry.wrap_if(lambda obj: isinstance(obj, torch.jit.ScriptFunction), priority=15)
def wrap_script_function(tx: Tracer, obj: Any, source: Source) -> Value:
    return BuiltinValue(obj, source)


@registry.call_if(lambda fn: isinstance(fn, torch.jit.ScriptFunction), priority=6)
def call_script_function(tx: Tracer, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    body = _Body(tx, str(fn.schema.name or fn.name))
    if torch._C._is_any_autocast_enabled():
        raise body.refuse("autocast, which has rules of its own")
    if tx.fake_mode.levels:
        raise body.refuse("a function transform")
    graph = fn.inlined_graph
    names = [value.debugName() for value in graph.inputs()]
    body.values.update(zip(names, _bound(body, fn.schema, args, kwargs), strict=True))
    results = body.run(graph)
    return results[0] if len(results) == 1 else TupleValue(results, tuple)
