"""Where a value of the traced frame comes from: one frozen dataclass for each access of the guard tree.

A chain of sources is a path from a root (an argument slot, the function, a held object) to a value:

    L['self'].layers[0].weight
      = DictItem(DictItem(InstanceDict(DictItem(DictItem(InstanceDict(DictItem(DictItem(InstanceDict(
            Local(0, 'self')), '_modules'), 'layers')), '_modules'), '0')), '_parameters'), 'weight')

The guard tree walks the path on every call; generated code never does: what it needs is a capture of the
tree.
"""

from __future__ import annotations

import dataclasses
import typing
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
_MODULE_TABLES = ("_modules", "_parameters", "_buffers")


class Source:
    """Base of all rows. Equal sources reach the same value in every call; held objects count by identity."""

    access: ClassVar[str]
    base: Source | None
    _hash: int
    root: Source
    depth: int  # 1 for a root

    @property
    def arg(self) -> Any:
        """What the access needs besides the parent value."""
        return None

    def _arg_key(self) -> Any:
        return self.arg

    def __repr__(self) -> str:
        return str(self)

    def __post_init__(self) -> None:
        base = self.base
        object.__setattr__(self, "_hash", hash((self.access, base, self._arg_key())))
        object.__setattr__(self, "root", self if base is None else base.root)
        object.__setattr__(self, "depth", 1 if base is None else base.depth + 1)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or not isinstance(other, Source) or self._hash != other._hash:
            return False
        return bool(self._arg_key() == other._arg_key()) and self.base == other.base

    def chain(self) -> Iterator[Source]:
        """This source and its parents, root last."""
        source: Source | None = self
        while source is not None:
            yield source
            source = source.base


@typing.dataclass_transform(eq_default=False, frozen_default=True)
def _row(cls: type[T]) -> type[T]:
    return dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)


class _Root(Source):
    base = None


class _Held(_Root):
    """Roots that count by the identity of what they hold."""

    def _arg_key(self) -> Any:
        return id(self.arg)


@_row
class Local(_Root):
    """An argument slot of the frame, in `co_varnames` order."""

    access: ClassVar[str] = "local"
    slot: int
    name: str

    @property
    def arg(self) -> int:
        return self.slot

    def __str__(self) -> str:
        return f"L[{self.name!r}]"


@_row
class Func(_Root):
    """The function object whose frame is traced."""

    access: ClassVar[str] = "func"

    def __str__(self) -> str:
        return "F"


@_row
class Const(_Held):
    """An object held for the life of the entry: modules, module dictionaries, builtins."""

    access: ClassVar[str] = "const"
    value: Any
    name: str = ""

    @property
    def arg(self) -> Any:
        return self.value

    def __str__(self) -> str:
        return self.name or f"<{getattr(self.value, '__name__', type(self.value).__name__)}>"


@_row
class Weak(_Held):
    """An object held weakly; when it dies the guard fails."""

    access: ClassVar[str] = "weak"
    reference: weakref.ref[Any]
    name: str = ""

    @property
    def arg(self) -> Any:
        return self.reference()

    def _arg_key(self) -> Any:
        return id(self.reference)

    def __str__(self) -> str:
        return self.name or f"<weak {type(self.arg).__name__}>"


@_row
class Early(_Root):
    """What a call before the graph gave (`interp/early_calls.py`): a variable of the generated code, never part of a guard.

    `example`: an object of the same kind, for who compiles the graph.
    """

    access: ClassVar[str] = "early"
    number: int
    example: Any = None

    @property
    def arg(self) -> int:
        return self.number

    @property
    def variable(self) -> str:
        return f".e{self.number}"

    def __str__(self) -> str:
        return f"early[{self.number}]"


@_row
class _Plain(Source):
    """An access that needs nothing but the parent value."""

    base: Source
    suffix: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"{self.base}{self.suffix}"


@_row
class CellContents(_Plain):
    access: ClassVar[str] = "cell_contents"
    suffix: ClassVar[str] = ".cell_contents"


@_row
class FuncGlobals(_Plain):
    access: ClassVar[str] = "func_globals"
    suffix: ClassVar[str] = ".__globals__"

    def __str__(self) -> str:
        return "G" if isinstance(self.base, Func) else super().__str__()


@_row
class FuncCode(_Plain):
    access: ClassVar[str] = "func_code"
    suffix: ClassVar[str] = ".__code__"


@_row
class MethodSelf(_Plain):
    access: ClassVar[str] = "method_self"
    suffix: ClassVar[str] = ".__self__"


@_row
class MethodFunc(_Plain):
    access: ClassVar[str] = "method_func"
    suffix: ClassVar[str] = ".__func__"


@_row
class InstanceDict(_Plain):
    access: ClassVar[str] = "instance_dict"
    suffix: ClassVar[str] = ".__dict__"


@_row
class Type(_Plain):
    access: ClassVar[str] = "type"

    def __str__(self) -> str:
        return f"type({self.base})"


@_row
class _Indexed(Source):
    """An access by position or name."""

    base: Source
    index: Any

    @property
    def arg(self) -> Any:
        return self.index

    def __str__(self) -> str:
        return f"{self.base}[{self.index!r}]"


@_row
class Cell(_Indexed):
    access: ClassVar[str] = "cell"

    def __str__(self) -> str:
        return f"{self.base}.__closure__[{self.index}]"


@_row
class FuncDefault(_Indexed):
    access: ClassVar[str] = "func_default"

    def __str__(self) -> str:
        return f"{self.base}.__defaults__[{self.index}]"


@_row
class FuncKwDefault(_Indexed):
    access: ClassVar[str] = "func_kwdefault"

    def __str__(self) -> str:
        return f"{self.base}.__kwdefaults__[{self.index!r}]"


@_row
class DictItem(_Indexed):
    access: ClassVar[str] = "dict_item"

    def __str__(self) -> str:
        table = self.base
        if (
            isinstance(table, DictItem)
            and table.index in _MODULE_TABLES
            and isinstance(table.base, InstanceDict)
        ):
            return _member(str(table.base.base), self.index)
        if isinstance(table, InstanceDict):
            return _member(str(table.base), self.index)
        return super().__str__()

    def _arg_key(self) -> Any:
        # Keys with a user's own __eq__ count by identity: comparing them would run the user's code.
        return self.index if type(self.index).__module__ == "builtins" else id(self.index)


@_row
class DictKeyAt(_Indexed):
    access: ClassVar[str] = "dict_key_at"

    def __str__(self) -> str:
        return f"list({self.base})[{self.index}]"


@_row
class ListItem(_Indexed):
    access: ClassVar[str] = "list_item"


@_row
class TupleItem(_Indexed):
    access: ClassVar[str] = "tuple_item"


@_row
class ClassAttr(_Indexed):
    """The raw attribute that the MRO of a type gives, no descriptor call."""

    access: ClassVar[str] = "class_attr"

    def __str__(self) -> str:
        return f"{self.base}.{self.index}"


@_row
class SlotAttr(_Indexed):
    """A member of `__slots__`, or a C-level attribute known to be free of effects."""

    access: ClassVar[str] = "slot_attr"

    def __str__(self) -> str:
        return f"{self.base}.{self.index}"


@_row
class Call(Source):
    """`function(value)`, for C functions known to be free of effects."""

    access: ClassVar[str] = "call"
    base: Source
    function: Callable[[Any], Any]

    @property
    def arg(self) -> Callable[[Any], Any]:
        return self.function

    def _arg_key(self) -> int:
        return id(self.function)

    def __str__(self) -> str:
        return f"{getattr(self.function, '__name__', self.function)}({self.base})"


ROWS: dict[str, type[Source]] = {
    row.access: row
    for row in (
        Local, Func, Const, Weak, Cell, CellContents, FuncGlobals, FuncCode, FuncDefault, FuncKwDefault,
        MethodSelf,
        MethodFunc, InstanceDict, DictItem, DictKeyAt, ListItem, TupleItem, Type, ClassAttr, SlotAttr, Call,
    )
}  # fmt: skip


def _member(owner: str, name: Any) -> str:
    """`owner.name`, or `owner[0]` for the numbered children of a container module."""
    text = str(name)
    return f"{owner}.{text}" if text.isidentifier() else f"{owner}[{text if text.isdigit() else repr(name)}]"


def attribute(base: Source, name: str) -> Source:
    """The entry `name` of an object's own `__dict__`."""
    return DictItem(InstanceDict(base), name)


def module_member(base: Source, table: str, name: str) -> Source:
    """A parameter, buffer or child of an nn.Module; `table` is `_parameters`, `_buffers` or `_modules`."""
    return DictItem(attribute(base, table), name)
