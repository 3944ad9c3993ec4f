"""What the interpreter knows about a Python object: `Value`, and what a value may ask of the trace: `Tracer`.

The lattice of what may be known, top to bottom. A value only moves down, and each step down on an outside
object adds the guard named on the arrow:

        Source only                 passed around, stored, returned: reloaded from its source, no guard
            |  type                 an operation was chosen by its type
        type known
            |  len / dict_keys / class_attrs / no_item / same_as      what was really looked at
        structure known             items and attributes are values themselves, each at its own height
            |  equals / id / tensor
        value known                 a constant, a function, a class; a tensor's metadata

Wrapping an outside object adds no more than the `type` guard (constants: none at all). `ConstantValue.value`
adds `equals` on first use. Values made inside the trace have no source and need no guard.

Values are plain mutable Python objects. Nothing is ever undone: when a graph break rolls the top frame back
to an earlier instruction, the machine traces the frame again from its start up to that instruction.

Conventions: methods take the tracer `tx` first. An operation that the *program* gets an exception from ends
in
`tx.raise_(cls, *args)`; an operation that *we* cannot follow ends in `errors.GraphBreak(reason, detail)`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NoReturn, Protocol

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Source
from dyncomp.values.operator_slots import compares, computes

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "<absent>", "__slots__": ()})()


class NotConstant(Exception):
    """`as_constant` met something whose value is not known while tracing."""


class Unreconstructible(Exception):
    """Generated code cannot build this value; the machine breaks before the instruction that made it."""

    def __init__(self, value: Value, detail: str):
        self.value, self.detail = value, detail
        super().__init__(detail)


class PyRaise(Exception):
    """An exception of the traced program on its way to a handler of the traced program."""

    def __init__(self, value: Value):
        self.value = value  # an ExceptionValue
        super().__init__(str(value))


class Tracer(Protocol):
    """What values and call handlers may use of the trace in progress."""

    graph: Any  # the fx.Graph being built
    fake_mode: Any  # dyncomp.fake.FakeMode of this trace
    effects: Any  # dyncomp.interp.effects.Effects
    early: Any  # dyncomp.interp.early_calls.EarlyCalls
    context: Any  # the owner's options (api.CompileContext), or None
    state: dict[str, Any]  # free per-trace storage for value kinds, by module name
    sizes: Any  # dyncomp.interp.sizes.Sizes: which numbers vary from call to call
    frames: Any  # the frames being traced, innermost last (interp.machine.Frame)
    inputs: Any  # what the graph takes so far: (node, source, real tensor or number, fake)

    def wrap(self, obj: Any, source: Source) -> Value:
        """The value of an outside object: one Value an object however it is reached, with identity guards."""

    def constant(self, obj: Any) -> Value:
        """A value for an object that is fixed while tracing and needs no guard (a result of folding)."""

    def trust(self, obj: Any) -> Value:
        """`constant` of an object that nobody changes, so that what is read of it needs no guard either."""

    def guard(self, source: Source, kind: str, payload: Any = None) -> None:
        """Records one check of the contract's table."""

    def are_same(self, left: Source, right: Source) -> bool | None:
        """Whether two outside values are one object, guarded; None where that is not known."""

    def read_layout(self, value: Value | None = None, offset: bool = True) -> None:
        """What follows depends on the storage offsets of outside tensors, which are not guarded otherwise, or on strides."""
        ...

    def may_be_gone(self, obj: Any) -> bool:
        """True if the frame has dropped what may have been the last reference to an outside object."""
        ...

    def add_checks(self, fn: Any) -> None:
        """What the running graph has to fulfil so far is checked before `fn` goes on."""

    def graph_call(self, fn: Any, args: Sequence[Value], kwargs: dict[str, Value] | None = None) -> Value:
        """A graph node calling `fn` (a str: that method of args[0]); runs it on fakes; errors of the program
        raise."""

    def placeholder(self, obj: Any, source: Source, fake: Any) -> Any:
        """A new graph input holding the outside tensor `obj`; returns the fx node."""

    def number_node(self, number: Any) -> Any:
        """The fx node of a symbolic number."""

    def bind_number(self, number: Any, node: Any) -> None:
        """This node gives a number that the graph computes."""

    def bind_sizes(self, sizes: Sequence[Any], node: Any) -> None:
        """This node is a tensor of these sizes, some of which the graph alone may tell."""

    def inline(self, function: Value, args: Sequence[Value], kwargs: dict[str, Value] | None = None) -> Value:
        """Runs a Python function's bytecode symbolically and returns what it returns."""

    def call(self, fn: Value, args: Sequence[Value], kwargs: dict[str, Value] | None = None) -> Value:
        """`fn(*args, **kwargs)` for any callable value."""

    def raise_(self, cls: type[BaseException], *args: Any) -> NoReturn:
        """Raises `cls(*args)` in the traced program."""

    def raise_real(self, error: BaseException) -> NoReturn:
        """Raises in the traced program what a real operation on constants or fakes raised."""

    def tuple_of(self, items: list[Value]) -> Value:
        """A tuple made while tracing."""

    def list_of(self, items: list[Value]) -> Value:
        """A list made while tracing."""

    def slice_of(self, bounds: list[Value]) -> Value:
        """`slice(*bounds)`; two or three bounds."""

    def dict_of_pairs(self, pairs: Sequence[tuple[Value, Value]]) -> Value:
        """A dict made while tracing."""

    def set_of(self, items: Sequence[Value]) -> Value:
        """A set made while tracing."""

    def globals_source(self, fn: Any, source: Source) -> Source:
        """How to reach the module variables of an outside function."""

    def bind_method(self, raw: Any, receiver: Value) -> Value:
        """A plain function of a class, bound."""

    def catch_stop(self, next_: Any) -> Value | None:
        """`next_()`, or None if the program's StopIteration comes out of it."""

    def has_attribute(self, value: Value, name: str) -> bool:
        """`hasattr(value, name)`"""

    def user_line(self) -> tuple[str, int]:
        """File and line of the user's code being traced."""

    def step(self) -> int:
        """Number of the top frame's instruction being traced."""


class Builder(Protocol):
    """What `reconstruct` may use of the code builder: every call leaves or uses values on the run-time
    stack."""

    def load(self, value: Value) -> None:
        """Pushes any value: a captured source, an already built one, or `value.reconstruct(self)`."""

    def remember(self, value: Value) -> None:
        """The object on top of the stack is `value`; call it before filling a container, so that cycles
        close."""

    def load_const(self, obj: Any) -> None: ...
    def load_source(self, source: Source) -> None: ...
    def load_node(self, node: Any) -> None:
        """Pushes a graph output (an fx node that becomes one)."""

    def build_tuple(self, n: int) -> None: ...
    def build_list(self, n: int) -> None: ...
    def build_set(self, n: int) -> None: ...
    def build_map(self, n: int) -> None: ...
    def list_append(self) -> None:
        """[list, x] -> [list]"""

    def store_item(self) -> None:
        """[container, key, x] -> [container]"""

    def store_attr(self, name: str) -> None:
        """[obj, x] -> [obj], by `object.__setattr__`."""

    def load_attr(self, name: str) -> None: ...
    def call(self, n: int, kw_names: tuple[str, ...] = ()) -> None:
        """[callable, arg...] -> [result]"""

    def pop(self) -> None: ...


class Value:
    """One Python object as the interpreter sees it. The base class answers every question with a graph
    break."""

    source: Source | None = None
    symbolic = False  # a number that varies from call to call: `as_constant` pins it
    birth: int = 0  # top-frame step at which it first came on a stack

    def __init__(self, source: Source | None = None):
        self.source = source

    # -- what it is ---------------------------------------------------------------------------------------
    def python_type(self) -> type:
        """type(obj); guarded when the value was wrapped (constants: call `tx`-free, see ConstantValue)."""
        raise GraphBreak("unsupported-object", f"type of {self.describe()}")

    def describe(self) -> str:
        """For messages: what a user would call it."""
        return f"{type(self).__name__}({self.source})" if self.source else type(self).__name__

    def is_constant(self) -> bool:
        """True if `as_constant` succeeds. Adds no guard."""
        return False

    def as_constant(self) -> Any:
        """The real object (containers of constants: a fresh copy). Adds the guards that this relies on."""
        raise NotConstant(self.describe())

    def real(self) -> Any:
        """The real outside object or fixed object behind this value, or ABSENT for one made while tracing."""
        return ABSENT

    def key(self, tx: Tracer) -> Hashable:
        """A hashable that equals another value's key exactly if Python's == and hash treat them as one dict
        key."""
        raise GraphBreak("unsupported-object", f"{self.describe()} as a dict key or set member")

    # -- graph and code -----------------------------------------------------------------------------------
    def fx_arg(self, tx: Tracer) -> Any:
        """The argument of a graph node: an fx node, a constant, or a list/tuple/dict/slice of these."""
        if self.is_constant():
            return self.as_constant()
        raise GraphBreak("unsupported-object", f"{self.describe()} as an argument of a tensor operation")

    def reconstruct(self, builder: Builder) -> None:
        """Emits code that pushes the object. Called once a value; `builder.load` handles sources and
        sharing."""
        raise Unreconstructible(self, self.describe())

    # -- operations; defaults break the graph ----------------------------------------------------------------
    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        raise GraphBreak("unsupported-call", f"call of {self.describe()}")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """`self.name(*args, **kwargs)`; kinds with built-in methods override this."""
        return tx.call(self.getattr(tx, name), args, kwargs)

    def getattr(self, tx: Tracer, name: str) -> Value:
        raise GraphBreak("unsupported-attribute", f"attribute {name!r} of {self.describe()}")

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        raise GraphBreak("unsupported-mutation", f"setting attribute {name!r} of {self.describe()}")

    def delattr(self, tx: Tracer, name: str) -> None:
        raise GraphBreak("unsupported-mutation", f"deleting attribute {name!r} of {self.describe()}")

    def getitem(self, tx: Tracer, key: Value) -> Value:
        raise GraphBreak("unsupported-object", f"{self.describe()}[...]")

    def setitem(self, tx: Tracer, key: Value, value: Value) -> None:
        raise GraphBreak("unsupported-mutation", f"{self.describe()}[...] = ...")

    def delitem(self, tx: Tracer, key: Value) -> None:
        raise GraphBreak("unsupported-mutation", f"del {self.describe()}[...]")

    def contains(self, tx: Tracer, item: Value) -> Value:
        """`item in self`, as a bool value."""
        raise GraphBreak("unsupported-object", f"... in {self.describe()}")

    def iterate(self, tx: Tracer) -> Value:
        """`iter(self)`: a value with `next`."""
        raise GraphBreak("unsupported-object", f"iteration over {self.describe()}")

    def next(self, tx: Tracer) -> Value | None:
        """`next(self)` for iterators; None when exhausted."""
        if hasattr(self.python_type(), "__next__"):
            raise GraphBreak("unsupported-object", f"next({self.describe()})")
        tx.raise_(TypeError, f"'{self.python_type().__name__}' object is not an iterator")

    def unpack(self, tx: Tracer) -> list[Value]:
        """All items: `list(self)`."""
        iterator = self.iterate(tx)
        out: list[Value] = []
        while (item := iterator.next(tx)) is not None:
            out.append(item)
        return out

    def length(self, tx: Tracer) -> Value:
        raise GraphBreak("unsupported-object", f"len({self.describe()})")

    def truth(self, tx: Tracer) -> bool:
        """`bool(self)`, known while tracing; tensors raise GraphBreak('data-dependent-branch')."""
        raise GraphBreak("unsupported-object", f"bool({self.describe()})")

    def unary(self, tx: Tracer, op: str) -> Value:
        """op: one of `+ - ~` (`not` goes through `truth`)."""
        raise GraphBreak("unsupported-object", f"{op}{self.describe()}")

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        """op: one of `+ - * / // % ** @ & | ^ << >>`; reflected: `other op self`; inplace: `self op= other`.

        None is Python's NotImplemented: the other operand is asked next.
        """
        if computes(self.python_type(), op, reflected, inplace):
            raise GraphBreak("unsupported-object", f"{op} with {self.describe()}")
        return None

    def concatenation_error(self, other: Value) -> str | None:
        """What `self + other` complains of when `self` is a sequence and nobody knew how to add."""
        return None

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        """op: one of `== != < <= > >=` as seen from self (callers swap `<` and `>` when reflecting).

        None is Python's NotImplemented: the other operand is asked next, and in the end `==` is identity.
        """
        if compares(self.python_type(), op):
            raise GraphBreak("unsupported-object", f"{op} with {self.describe()}")
        return None

    def isinstance_of(self, tx: Tracer, cls: type) -> bool:
        """isinstance(self, cls) for one real class without a custom `__instancecheck__`."""
        return issubclass(self.python_type(), cls)

    def __repr__(self) -> str:
        return self.describe()
