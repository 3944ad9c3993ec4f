"""Tensors while tracing: a graph node with a fake beside it.

    outside tensor      source + real object; metadata read -> `tensor` guard and a fake; used in the graph
    -> placeholder result of a node    node + fake
    in-place method     the same TensorValue, its node renewed, so that aliases stay one Python object

Sizes and other metadata are constants of the trace; values are never known: whatever needs one breaks the
graph.
"""

from __future__ import annotations

import contextlib
import operator
import types
import weakref
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch

from dyncomp._frame import _core
from dyncomp.errors import GraphBreak
from dyncomp.fake import FakeTensor, UnsupportedTensor
from dyncomp.fake.levels import is_wrapped
from dyncomp.fake.real import check_supported
from dyncomp.guards.plain import know
from dyncomp.guards.source import Const, InstanceDict, SlotAttr, Source, Weak, attribute
from dyncomp.shape.layout import known_equal
from dyncomp.shape.symbolic import is_symbolic
from dyncomp.values import registry, tensor_numbers, torch_names
from dyncomp.values.base import ABSENT, Builder, Tracer, Unreconstructible, Value
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.identity_key import IdentityKey
from dyncomp.values.numpy_values import NumpyScalarValue
from dyncomp.values.operators import BINARY, COMPARE, INPLACE, UNARY

PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter)

_LAYOUTS = f"{__name__}: layouts"
_NUMBER = (int, float, complex, bool)
_OPERATOR_NAMES = {operation: name for name, operation in reversed(torch_names.DUNDER_OPERATORS.items())}
_A_TENSOR = Const(know("a tensor", torch.empty(0)), "a tensor")  # stands for all of them where their class is guarded


class TensorValue(Value):
    """A tensor. `fake` and `node` of an outside tensor are made when first needed."""

    def __init__(self, *, source: Source | None = None, obj: Any = None, node: Any = None, fake: Any = None):
        super().__init__(source)
        self._obj = obj
        self._node = node
        self._fake = fake
        self._class: type = torch.Tensor if obj is None else type(obj)
        self.grad: Value | None = None  # what the program assigned to `.grad`

    # -- what it is
    def python_type(self) -> type:
        return self._class

    def describe(self) -> str:
        return f"tensor {self.source or self._node}"

    def real(self) -> Any:
        return super().real() if self._obj is None else self._obj

    def key(self, tx: Tracer) -> Hashable:
        return IdentityKey(self)  # tensors hash and compare as dict keys by identity

    def isinstance_of(self, tx: Tracer, cls: type) -> bool:
        if cls in torch_names.LEGACY_TENSOR_TYPES:
            return self.type_name(tx) == torch_names.LEGACY_TENSOR_TYPES[cls]
        if cls in torch_names.MARKED_CLASSES:
            return isinstance(self._obj, cls)
        return issubclass(self._class, cls)

    # -- the fake and the node
    def fake(self, tx: Tracer) -> Any:
        if self._fake is None:
            assert self.source is not None
            try:
                check_supported(self._obj)  # others may have no sizes or strides at all
                layout = tx.sizes.layout(self._obj, self.source)
                offset = tx.sizes.offset(self._obj, self.source)
                self._fake = tx.fake_mode.from_real(self._obj, layout, offset)
            except UnsupportedTensor as error:
                raise GraphBreak("unsupported-tensor", str(error)) from error
            spec = _core.tensor_spec(self._obj)
            if layout is not None:
                spec = spec._replace(sizes=_opened(layout[0]), strides=_opened(layout[1]))
            tx.guard(self.source, "tensor", spec)
            if (unmarked := tx.sizes.mark_guard(self._obj, self.source)) is not None:
                tx.guard(*unmarked)
            _known(tx)[id(self._fake)] = self
        return self._fake

    def fx_arg(self, tx: Tracer) -> Any:
        if self._node is None:
            self._node = tx.placeholder(self._obj, self.source, self.fake(tx))  # type: ignore[arg-type]
        return self._node

    def is_graph_input(self) -> bool:
        return self._obj is not None and self._node is not None

    def renew(self, node: Any) -> None:
        """An operation returned this very tensor: later users hang on that operation."""
        self._node = node

    def reconstruct(self, builder: Builder) -> None:
        if self._fake is not None and is_wrapped(self._fake):
            raise Unreconstructible(self, "a tensor of a function transform that leaves it")
        builder.load_node(self._node)

    def type_name(self, tx: Tracer) -> str:
        fake = self.fake(tx)
        return torch_names.type_name(fake.dtype, fake.device)

    # -- attributes
    def getattr(self, tx: Tracer, name: str) -> Value:
        if name in torch_names.METADATA_ATTRIBUTES and not self._is_replaced(tx, name):
            fake = self.fake(tx)
            # torch does not compute the attribute from symbolic sizes
            return tx.constant(fake.numel() * fake.itemsize if name == "nbytes" else getattr(fake, name))
        if name in torch_names.GRAPH_ATTRIBUTES and not self._is_replaced(tx, name):
            return tx.graph_call(getattr, [self, tx.constant(name)])
        if name == "__class__":
            return tx.constant(self._class)
        if name == "grad" and self.grad is not None:
            return self.grad
        if name in torch_names.GUARDED_ATTRIBUTES and self._obj is not None and self.source is not None:
            return tx.wrap(getattr(self._obj, name), SlotAttr(self.source, name))
        if name == "grad" and not self.fake(tx).requires_grad:
            return tx.constant(None)
        if name == "grad_fn" and not self.fake(tx).requires_grad:
            return tx.constant(None)
        if (own := self._own_attribute(tx, name)) is not None:
            return own
        member = self._class_attribute(tx, name)
        if _is_users_method(member):
            return tx.bind_method(member, self)
        if type(member) is property and _is_users_method(member.fget):
            return tx.call(tx.bind_method(member.fget, self), [])
        if callable(getattr(self._class, name, None)):
            return TensorMethodValue(self, name)
        if member is ABSENT:
            if self.source is not None:
                tx.guard(InstanceDict(self.source), "no_item", (name,))
            tx.raise_(AttributeError, f"'{self._class.__name__}' object has no attribute '{name}'")
        raise GraphBreak("unsupported-attribute", f"attribute {name!r} of a tensor")

    def _own_attribute(self, tx: Tracer, name: str) -> Value | None:
        """What the program stored on the tensor object itself."""
        if self._obj is None or self.source is None or not hasattr(self._obj, name):
            return None
        own = self._obj.__dict__
        if name not in own:
            return None
        return tx.wrap(own[name], attribute(self.source, name))

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        if name == "grad" and self._takes_grad(tx, value):
            self.set_grad(tx, value)
            return
        if name == "data" and isinstance(value, TensorValue) and self._is_own_data(tx, value):
            return  # `p.data -= g` assigns what it has just written in place
        reason = "autograd" if name in ("requires_grad", "grad") else "unsupported-mutation"
        raise GraphBreak(reason, f"setting attribute {name!r} of a tensor")

    def _is_own_data(self, tx: Tracer, value: TensorValue) -> bool:
        """True for the same elements of the same memory. Of several outside tensors in one memory nobody guards where they start."""
        mine, its = self.fake(tx), value.fake(tx)
        storage = mine.fake_storage
        if its.fake_storage is not storage or not mine.meta.same_layout(its.meta) or not known_equal(mine.meta.offset, its.meta.offset):
            return False
        return not any(one.source is not None and one is not self and one.fake(tx).fake_storage is storage for one in tensors_of(tx))

    def _takes_grad(self, tx: Tracer, value: Value) -> bool:
        """True for an assignment that cannot fail: None, or a tensor like this one."""
        if self._obj is None or self.source is None:
            return False
        if value.is_constant():
            return value.as_constant() is None
        if not isinstance(value, TensorValue) or value is self:
            return False
        mine, its = self.fake(tx), value.fake(tx)
        return bool(mine.shape == its.shape and mine.dtype == its.dtype and mine.device == its.device)

    def set_grad(self, tx: Tracer, value: Value) -> None:
        """`self.grad = value`, done after the graph has run."""
        self.grad = value
        tx.effects.touch_grad(self)

    # -- calls
    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if name in registry.TENSOR_METHODS:
            found = registry.tensor_method(tx, self, name, args, kwargs)
            if found is not None:
                return found  # type: ignore[no-any-return]
        if name in torch_names.METADATA_METHODS and not self._is_replaced(tx, name):
            if name in ("storage_offset", "stride"):
                tx.read_layout(self, offset=name == "storage_offset")
            _refuse_unknown_layout(tx, self, name)
            return self._metadata(tx, name, args, kwargs)
        if (number := self._as_number(tx, name, args, kwargs)) is not None:
            return number
        if name in torch_names.METHOD_BREAKS:
            raise GraphBreak(torch_names.METHOD_BREAKS[name], f"Tensor.{name}()")
        if name.startswith("__") and (handled := self._dunder(tx, name, args)) is not None:
            return handled
        if name == "type" and not args and not kwargs:
            return tx.constant(self.type_name(tx))
        if self._own_attribute(tx, name) is not None:
            return tx.call(self.getattr(tx, name), args, kwargs)
        if _is_users_method(self._class_attribute(tx, name)) or not callable(getattr(self._class, name, None)):
            return tx.call(self.getattr(tx, name), args, kwargs)
        return tx.graph_call(name, [self, *args], kwargs)

    def _as_number(
        self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value | None:
        """The result of a method that takes the data out of the tensor; None if this is another, or breaks the graph."""
        if args or kwargs:
            return None
        if name in torch_names.NUMBER_METHODS:
            return tensor_numbers.number_method(tx, self, name)
        if name == "tolist":
            return tensor_numbers.tolist(tx, self)
        return tensor_numbers.index_number(tx, self) if name == "__index__" else None

    def _class_attribute(self, tx: Tracer, name: str) -> Any:
        """What the tensor class has under a name, which a program may replace at any time."""
        raw = class_lookup(self._class, name)
        usual = self.source is None or class_lookup(torch.Tensor, name) is raw
        holder: Any = _A_TENSOR if usual else self.source
        tx.guard(holder, "class_attrs", ((name, _core.ABSENT if raw is ABSENT else raw),))
        return raw

    def _is_replaced(self, tx: Tracer, name: str) -> bool:
        """True if a program has put something of its own in the place of a member of torch's."""
        raw = self._class_attribute(tx, name)
        return _is_users_method(raw) or type(raw) is property and _is_users_method(raw.fget)

    def _users_operator(self, tx: Tracer, kind: str, symbol: str, args: Sequence[Value]) -> Value | None:
        """What the function does that a program has put in the place of an operator of torch's; None if it has not."""
        raw = self._class_attribute(tx, _OPERATOR_NAMES[kind, symbol])
        return tx.call(tx.bind_method(raw, self), args) if _is_users_method(raw) else None

    def _metadata(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        fake = self.fake(tx)
        if any(isinstance(arg, TensorValue) for arg in (*args, *kwargs.values())):
            raise GraphBreak("data-dependent-value", f"Tensor.{name}() of a tensor's value")
        given = [arg.as_constant() for arg in args]
        named = {key: arg.as_constant() for key, arg in kwargs.items()}
        try:
            return tx.constant(getattr(fake, name)(*given, **named))
        except (TypeError, IndexError, RuntimeError) as error:
            tx.raise_real(error)

    def _dunder(self, tx: Tracer, name: str, args: Sequence[Value]) -> Value | None:
        """Special methods called by name do what their operator does; None: an ordinary method."""
        operation = torch_names.DUNDER_OPERATORS.get(name)
        if operation is None:
            return None
        kind, symbol = operation
        if kind == "unary":
            return self.unary(tx, symbol)
        if kind == "compare":
            return self.compare(tx, symbol, args[0]) or tx.constant(NotImplemented)
        if kind == "item":
            return self._item_method(tx, symbol, args)
        if kind == "reflected" and isinstance(args[0], TensorValue):
            return None  # x.__rdiv__(y) is not y / x: it multiplies by a reciprocal, and rounds twice
        found = self.binary(tx, symbol, args[0], reflected=kind == "reflected", inplace=kind == "inplace")
        return found or tx.constant(NotImplemented)

    def _item_method(self, tx: Tracer, name: str, args: Sequence[Value]) -> Value:
        if name == "get":
            return self.getitem(tx, args[0])
        if name == "set":
            self.setitem(tx, args[0], args[1])
            return tx.constant(None)
        if name == "len":
            return self.length(tx)
        return self.iterate(tx)

    # -- items
    def getitem(self, tx: Tracer, key: Value) -> Value:
        if (done := self._users_operator(tx, "item", "get", [key])) is not None:
            return done
        tensor, rest = tensor_numbers.select_numbers(tx, self, tensor_numbers.key_with_numbers(tx, key))
        return tensor if rest is None else tx.graph_call(operator.getitem, [tensor, rest])

    def setitem(self, tx: Tracer, key: Value, value: Value) -> None:
        if self._users_operator(tx, "item", "set", [key, value]) is not None:
            return
        tensor, rest = tensor_numbers.select_numbers(tx, self, tensor_numbers.key_with_numbers(tx, key))
        tx.graph_call(operator.setitem, [tensor, tx.constant(...) if rest is None else rest, value])

    def contains(self, tx: Tracer, item: Value) -> Value:
        raise GraphBreak("data-dependent-value", "`in` on a tensor")

    def unpack(self, tx: Tracer) -> list[Value]:
        if (done := self._users_operator(tx, "item", "iter", [])) is not None:
            return done.unpack(tx)
        if self.fake(tx).ndim == 0:
            tx.raise_(TypeError, "iteration over a 0-d tensor")
        if self.fake(tx).shape[0] == 0:
            return []
        return tx.graph_call("unbind", [self, tx.constant(0)]).unpack(tx)

    def iterate(self, tx: Tracer) -> Value:
        if (done := self._users_operator(tx, "item", "iter", [])) is not None:
            return done
        if self.fake(tx).ndim == 0:
            tx.raise_(TypeError, "iteration over a 0-d tensor")
        return tx.graph_call("unbind", [self, tx.constant(0)]).iterate(tx)

    def length(self, tx: Tracer) -> Value:
        if (done := self._users_operator(tx, "item", "len", [])) is not None:
            return done
        if self.fake(tx).ndim == 0:
            tx.raise_(TypeError, "len() of a 0-d tensor")
        return tx.constant(self.fake(tx).shape[0])

    def truth(self, tx: Tracer) -> bool:
        return tensor_numbers.truth(tx, self)

    # -- operators
    def unary(self, tx: Tracer, op: str) -> Value:
        if (done := self._users_operator(tx, "unary", op, [])) is not None:
            return done
        return tx.graph_call(UNARY[op], [self])

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        kind = "inplace" if inplace else "reflected" if reflected else "binary"
        if (done := self._users_operator(tx, kind, op, [other])) is not None:
            return None if done.is_constant() and done.as_constant() is NotImplemented else done
        if not _is_operand(other):
            return None
        if inplace:
            return tx.graph_call(INPLACE[op], [self, other])
        return tx.graph_call(BINARY[op], [other, self] if reflected else [self, other])

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if (done := self._users_operator(tx, "compare", op, [other])) is not None:
            return None if done.is_constant() and done.as_constant() is NotImplemented else done
        return tx.graph_call(COMPARE[op], [self, other]) if _is_operand(other) else None


def _is_users_method(raw: Any) -> bool:
    """True for Python functions that a program put on the tensor class."""
    return isinstance(raw, types.FunctionType) and not str(raw.__module__).startswith("torch.")


class TensorMethodValue(Value):
    """A method of a tensor that is not called on the spot."""

    def __init__(self, tensor: TensorValue, name: str):
        super().__init__()
        self.tensor, self.name = tensor, name

    def python_type(self) -> type:
        return type(getattr(torch.empty(0), self.name))

    def describe(self) -> str:
        return f"Tensor.{self.name}"

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.tensor.call_method(tx, self.name, args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.tensor
        if name == "__name__":
            return tx.constant(self.name)
        return super().getattr(tx, name)

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, builder: Builder) -> None:
        builder.load(self.tensor)
        builder.load_attr(self.name)


class SubclassTensorValue(Value):
    """A tensor of a class with its own behaviour: it may be passed around, nothing more."""

    def __init__(self, obj: Any, source: Source):
        super().__init__(source)
        self._obj = obj

    def python_type(self) -> type:
        return type(self._obj)

    def real(self) -> Any:
        return self._obj

    def _refuse(self, what: str) -> GraphBreak:
        return GraphBreak("tensor-subclass", f"{what} of a {type(self._obj).__name__}")

    def fx_arg(self, tx: Tracer) -> Any:
        raise self._refuse("a tensor operation")

    def getattr(self, tx: Tracer, name: str) -> Value:
        raise self._refuse(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        raise self._refuse(f"method {name!r}")

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        raise self._refuse(f"operator {op!r}")

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        raise self._refuse(f"operator {op!r}")


def _opened(numbers: Sequence[Any]) -> tuple[int | None, ...]:
    """For a tensor guard: symbolic numbers are checked elsewhere."""
    return tuple([None if is_symbolic(number) else number for number in numbers])


def _is_operand(value: Value) -> bool:
    if isinstance(value, TensorValue | SubclassTensorValue):
        return True
    return issubclass(value.python_type(), _NUMBER) or isinstance(value, NumpyScalarValue)


def _known(tx: Tracer) -> dict[int, TensorValue]:
    """The tensors of this trace by the identity of their fakes: one Python tensor, one value."""
    return tx.state.setdefault(__name__, {})


def tensors_of(tx: Tracer) -> list[TensorValue]:
    return list(_known(tx).values())


@contextlib.contextmanager
def layouts_unknown(tx: Tracer, where: str) -> Iterator[None]:
    """Of the tensors that operations inside give, no question about their layout can be answered: it breaks the graph. Outside
    nothing knows of them. `where` is for the message.
    """
    known = _known(tx)
    before = set(known)
    tx.state[_LAYOUTS] = (before, where)
    try:
        yield
    finally:
        del tx.state[_LAYOUTS]
        for key in [key for key, value in known.items() if key not in before and value.source is None]:
            del known[key]


def _refuse_unknown_layout(tx: Tracer, tensor: TensorValue, name: str) -> None:
    if _LAYOUTS in tx.state and name in torch_names.LAYOUT_METHODS and tensor.source is None:
        before, where = tx.state[_LAYOUTS]
        if id(tensor.fake(tx)) not in before:
            raise GraphBreak("autograd", f"Tensor.{name}() {where}")


@registry.wrap_if(lambda obj: isinstance(obj, torch.Tensor), priority=10)
def wrap_tensor(tx: Tracer, obj: Any, source: Source) -> Value:
    if isinstance(source, Const):  # a part of something fixed, such as a default of a folded function
        source = Weak(weakref.ref(obj))
    tx.guard(source, "type", type(obj))
    if type(obj) not in PLAIN_CLASSES:
        return SubclassTensorValue(obj, source)
    return TensorValue(source=source, obj=obj)


@registry.result_if(lambda result: isinstance(result, FakeTensor))
def tensor_result(tx: Tracer, node: Any, fake: Any) -> Value:
    known = _known(tx)
    value = known.get(id(fake))
    if value is None:
        value = known[id(fake)] = TensorValue(node=node, fake=fake)
        if tx.sizes.env is not None:
            tx.bind_sizes(fake.meta.shape, node)
    else:
        value.renew(node)
    return value
