"""What a capture relied on: one `GuardRecord` a fact, kept for explain, logs and disk.

    GuardRecord(Local(0, 'x'), 'type', int, ('model.py', 12))

The records of a trace live in a `GuardList`, which drops repeats and rewinds when the interpreter rolls back.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

from dyncomp.guards.source import Source

UserLine = tuple[str, int]

# A source has one type, one identity, one value in a call, so these facts need no payload to be told apart.
SINGLE_KINDS = frozenset({"type", "id", "equals", "len", "dict_keys", "tensor", "empty", "truth"})
MULTI_KINDS = frozenset(
    {"class_attrs", "type_attrs", "no_item", "item_if_any", "same_as", "not_same_as", "distinct", "range", "int_program"}
)
# Their payload is another Source; for `distinct`, (groups, others): tuples of (tuples of) Sources, as in the check; for
# `int_program`, a `shape.int_program.Program` whose inputs are `Number`s (the record's source is that of the first).
RELATIONS = frozenset({"same_as", "not_same_as", "distinct", "int_program"})
_WEAK_KINDS = frozenset({"id", "type"})


@dataclasses.dataclass(frozen=True)
class _Weakly:
    """Tells a payload held weakly from a payload that is a weak reference itself."""

    reference: weakref.ref[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class GuardRecord:
    """A fact about the value behind `source`. For `same_as` and `not_same_as` the payload is the other
    Source.

    What `id` and `type` compare with is kept weakly where it can be, so that records never keep a user's
    model alive; `expected()` gives it back, or raises ReferenceError once it is dead.
    """

    source: Source
    kind: str
    payload: Any
    user_line: UserLine | None = None

    def __post_init__(self) -> None:
        if self.kind not in SINGLE_KINDS and self.kind not in MULTI_KINDS:
            raise ValueError(f"unknown guard kind {self.kind!r}")
        if self.kind in _WEAK_KINDS:
            object.__setattr__(self, "payload", _weakly(self.payload))

    def expected(self) -> Any:
        if not isinstance(self.payload, _Weakly):
            return self.payload
        value = self.payload.reference()
        if value is None:
            raise ReferenceError(f"the object that {self.source} was compared with is dead")
        return value

    def key(self) -> Any:
        """Equal keys: the same fact."""
        if self.kind in SINGLE_KINDS:
            return self.source, self.kind
        if self.kind in ("class_attrs", "type_attrs"):
            return self.source, self.kind, tuple((name, id(value)) for name, value in self.payload)
        return self.source, self.kind, self.payload

    def related(self) -> tuple[Source, ...]:
        """The other sources of a relation."""
        if self.kind not in RELATIONS:
            return ()
        if self.kind == "int_program":
            return tuple(number.source for number in self.payload.inputs)
        if self.kind == "distinct":
            groups, others = self.payload
            return tuple([source for group in (*groups, others) for source in group])
        return (self.payload,)

    def __str__(self) -> str:
        return describe(self)


class GuardList:
    """The facts of one trace in the order they were first needed."""

    def __init__(self) -> None:
        self._records: dict[Any, GuardRecord] = {}

    def add(self, source: Source, kind: str, payload: Any = None, user_line: UserLine | None = None) -> None:
        record = GuardRecord(source, kind, payload, user_line)
        self._records.setdefault(record.key(), record)

    def mark(self) -> int:
        return len(self._records)

    def rewind(self, mark: int) -> None:
        """Forgets every fact that was added after `mark`."""
        while len(self._records) > mark:
            self._records.popitem()

    def records(self) -> list[GuardRecord]:
        return list(self._records.values())

    def __len__(self) -> int:
        return len(self._records)


def describe(record: GuardRecord) -> str:
    """The fact as Python-like text, for explain and logs."""
    source = str(record.source)
    try:
        value = record.expected()
    except ReferenceError:
        return f"{source} is <dead>"
    match record.kind:
        case "type":
            return f"type({source}) is {_name(value)}"
        case "id":
            return f"{source} is {_name(value)}"
        case "equals":
            return f"{source} == {value!r}"
        case "len":
            return f"len({source}) == {value}"
        case "dict_keys":
            return f"list({source}) == {list(value)!r}"
        case "tensor":
            return f"tensor_spec({source}) == {value}"
        case "class_attrs":
            return f"type({source}) has its own {', '.join(name for name, _ in value)}"
        case "type_attrs":
            return f"{source} has its own {', '.join(name for name, _ in value)}"
        case "no_item":
            return " and ".join(f"{key!r} not in {source}" for key in value)
        case "item_if_any":
            return f"{source} has no {value[0]!r}, or {value[1]!r} under it"
        case "empty":
            return f"len({source}) == 0"
        case "truth":
            return source if value else f"not {source}"
        case "same_as":
            return f"{source} is {value}"
        case "not_same_as":
            return f"{source} is not {value}"
        case "distinct":
            groups, others = value
            apart = [" or ".join(map(str, group)) for group in groups]
            text = "" if len(apart) == 1 else f"{', '.join(apart)} are different objects"
            if not others:
                return text
            each = apart[0] if len(apart) == 1 else f"{text}, and each"
            return f"{each} is none of {', '.join(map(str, others))}"
        case "int_program":
            return "; ".join(value.texts)
        case "range":
            low, high = value
            return f"{low} <= {source}" + ("" if high is None else f" <= {high}")
        case kind:
            return f"{kind}({source}, {value!r})"


def _weakly(value: Any) -> Any:
    try:
        return _Weakly(weakref.ref(value))
    except TypeError:
        return value


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    if name is None:
        return f"<{type(value).__name__} at {id(value):#x}>"
    module = getattr(value, "__module__", None)
    return name if module in (None, "builtins") else f"{module}.{name}"
