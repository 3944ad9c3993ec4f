"""What the traced code did to objects that exist outside the trace, for `replay` to do after the graph has
run.

Values carry their own new state; this log only says which of them changed, in the order of their first
change. Nothing can look between two effects, so the final state of each object is all that has to be brought
about:

    ListValue      only_appended: extend with the items after `read_length` (all of `appended` if never read);
                   else `target[:] = items`; a deque is cleared and extended
    DictValue      `writes`, in order: ("set", key, value) or ("del", key, None), by the built-in's own
    methods;
                   with an `owner`, attribute writes of the owner by object.__setattr__ / object.__delattr__
    SetValue       `history`: methods and their arguments, in order
    CellValue      `contents` (None: emptied)
    (InstanceValue, slot name)   its `slots[name]` (None: deleted)
    (ClassValue, attribute name) the value assigned last (None: deleted)
    Call           a function called for its effect at its place in the order
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from dyncomp.values.base import Value
from dyncomp.values.instance import InstanceValue
from dyncomp.values.klass import ClassValue
from dyncomp.values.torch_tensor import TensorValue


@dataclasses.dataclass(frozen=True)
class Contents:
    """A container or cell whose contents changed."""

    target: Value


@dataclasses.dataclass(frozen=True)
class SlotWrite:
    """A `__slots__` member that was assigned or deleted."""

    target: InstanceValue
    name: str


@dataclasses.dataclass(frozen=True)
class ClassWrite:
    """An attribute of a class that was assigned, or deleted (None)."""

    target: ClassValue
    name: str
    value: Value | None


@dataclasses.dataclass(frozen=True)
class Call:
    """`function(*args)`, for state changes that are calls; `function` is a real callable. `result`: the value of what it gives."""

    function: object
    args: tuple[Value, ...]
    result: Value | None = None


@dataclasses.dataclass(frozen=True)
class GradWrite:
    """The `.grad` of an outside tensor was assigned: its value's `grad` (a constant None: taken away)."""

    target: TensorValue


Effect = Contents | SlotWrite | ClassWrite | Call | GradWrite


class Effects:
    def __init__(self) -> None:
        self._log: dict[object, Effect] = {}

    def touch(self, target: Value) -> None:
        """Contents of an outside object change."""
        self._log.setdefault(id(target), Contents(target))

    def touch_slot(self, target: InstanceValue, name: str) -> None:
        self._log.setdefault((id(target), name), SlotWrite(target, name))

    def touch_class(self, target: ClassValue, name: str, value: Value | None) -> None:
        self._log[id(target.cls), name] = ClassWrite(target, name, value)  # keeps its place in the order

    def touch_grad(self, target: TensorValue) -> None:
        self._log.setdefault((id(target), "grad"), GradWrite(target))

    def call(self, function: object, *args: Value) -> None:
        self._log[object()] = Call(function, args)

    def call_for(self, result: Value, function: object, *args: Value) -> None:
        """A call whose result the program may hand on."""
        self._log[id(result), "result"] = Call(function, args, result)

    def take_back(self, result: Value) -> None:
        """The call that gives this is not made."""
        del self._log[id(result), "result"]

    def __iter__(self) -> Iterator[Effect]:
        return iter(self._log.values())

    def __len__(self) -> int:
        return len(self._log)

    def changed(self) -> list[Value]:
        """The outside objects that changed, for identity guards (a backward adds those of its leaves itself, classes are fixed)."""
        return [effect.target for effect in self if not isinstance(effect, Call | GradWrite | ClassWrite)]
