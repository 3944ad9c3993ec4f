"""Guard records as plain data and back, so that a compiled frame can be written to disk.

    type(L['self']) is Net      ->  {"sources": [["local", -1, ["i", 0], "self"]],
                                     "records": [[0, "type", ["object", "model", "Net"], null]]}

Only what another process can find again is plain: constants, dtypes and the like, and classes, functions and
modules that an import gives back as the same object. Anything else raises `NotPlain`, and the frame is
simply not stored.
"""

from __future__ import annotations

import dataclasses
import importlib
import struct
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch

from dyncomp._frame import _core
from dyncomp.guards.number import Number
from dyncomp.guards.record import RELATIONS, GuardRecord
from dyncomp.guards.source import ROWS, Const, Local, Source, Weak
from dyncomp.shape.int_program import Program

Plain = Any
T = TypeVar("T")
_KNOWN: dict[str, Any] = {}
_TORCH_NAMED = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


class NotPlain(Exception):
    """The value exists in this process alone."""


def export(records: Iterable[GuardRecord], captures: Sequence[Source]) -> Plain:
    """Lists, strings and numbers that `load` turns back into equal records and captures."""
    table: dict[Source, int] = {}
    rows: list[Plain] = []

    def place(source: Source) -> int:
        if source not in table:
            base = -1 if source.base is None else place(source.base)
            rows.append(_source_row(source, base))
            table[source] = len(rows) - 1
        return table[source]

    facts = []
    for record in records:
        related = [place(other) for other in record.related()]
        if record.kind == "int_program":
            payload: Plain = _encode_program(record.payload, related)
        elif record.kind == "distinct":
            groups, others = record.payload
            payload = [[[place(source) for source in group] for group in groups], [place(source) for source in others]]
        else:
            payload = related if record.kind in RELATIONS else encode(record.expected())
        facts.append([place(record.source), record.kind, payload, list(record.user_line or ()) or None])
    taken = [place(source) for source in captures]
    return {"sources": rows, "records": facts, "captures": taken}


def load(data: Plain) -> tuple[list[GuardRecord], list[Source]]:
    sources: list[Source] = []
    for row in data["sources"]:
        sources.append(_load_source(row, sources))
    records = []
    for place, kind, payload, line in data["records"]:
        if kind == "int_program":
            value: Any = _load_program(payload, sources)
        elif kind == "distinct":
            groups, others = payload
            value = tuple([tuple([sources[i] for i in g]) for g in groups]), tuple([sources[i] for i in others])
        elif kind in RELATIONS:
            value = sources[payload[0]]
        else:
            value = decode(payload)
        records.append(GuardRecord(sources[place], kind, value, tuple(line) if line else None))
    return records, [sources[i] for i in data["captures"]]


def _encode_program(program: Program, places: list[int]) -> Plain:
    inputs = [[place, n.what, n.dim] for place, n in zip(places, program.inputs, strict=True)]
    return [inputs, encode(program.code), list(program.texts)]


def _load_program(data: Plain, sources: list[Source]) -> Program:
    inputs, code, texts = data
    numbers = tuple([Number(sources[place], what, dim) for place, what, dim in inputs])
    return Program(numbers, decode(code), (), tuple(texts))


def _source_row(source: Source, base: int) -> Plain:
    if isinstance(source, Weak):
        raise NotPlain(f"{source} is an object of this process")
    name = source.name if isinstance(source, Local | Const) else ""
    return [source.access, base, encode(source.arg), name]


def _load_source(row: Plain, sources: list[Source]) -> Source:
    access, base, arg, name = row
    row_class: Any = ROWS[access]
    value = decode(arg)
    if row_class in (Local, Const):
        return row_class(value, name)  # type: ignore[no-any-return]
    given: list[Any] = [] if base < 0 else [sources[base]]
    if {"index", "function"} & {field.name for field in dataclasses.fields(row_class)}:
        given.append(value)
    return row_class(*given)  # type: ignore[no-any-return]


def encode(value: Any) -> Plain:
    """A tagged list for a value that another process can rebuild."""
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return ["i", value] if abs(value) < 2**53 else ["I", str(value)]
    if kind is float:
        return ["f", struct.pack("<d", value).hex()]
    if kind is complex:
        return ["c", struct.pack("<dd", value.real, value.imag).hex()]
    if kind is bytes:
        return ["b", value.hex()]
    if kind in (tuple, list, frozenset, torch.Size):
        return [kind.__name__, [encode(item) for item in value]]
    if value is Ellipsis:
        return ["..."]
    if value is _core.ABSENT:
        return ["absent"]
    if isinstance(value, _TORCH_NAMED):
        return ["torch", str(value).removeprefix("torch.")]
    if kind is torch.device:
        return ["device", str(value)]
    return _encode_named(value)


def know(name: str, value: T) -> T:
    """Makes an object that every process has for itself known by a name of ours; returns it."""
    _KNOWN[name] = value
    return value


def _encode_named(value: Any) -> Plain:
    for known, own in _KNOWN.items():
        if own is value:
            return ["known", known]
    if isinstance(value, types.ModuleType):
        if sys.modules.get(value.__name__) is value:
            return ["module", value.__name__]
    elif type(value) is dict:
        name = value.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is not None and module.__dict__ is value:
            return ["module_dict", name]
    else:
        owner = getattr(value, "__objclass__", value)  # of a method written in C
        module_name, qualname = getattr(owner, "__module__", None), getattr(value, "__qualname__", None)
        if isinstance(module_name, str) and isinstance(qualname, str) and module_name in sys.modules:
            if _find(module_name, qualname) is value:
                return ["object", module_name, qualname]
    raise NotPlain(f"{type(value).__name__} object cannot be found by another process")


def _find(module_name: str, qualname: str) -> Any:
    """The object, or None: raw class entries count, so that functions of a class come back as they stand
    there.
    """
    value: Any = importlib.import_module(module_name)
    for name in qualname.split("."):
        value = vars(value).get(name) if isinstance(value, type | types.ModuleType) else None
    return value


def decode(data: Plain) -> Any:
    if not isinstance(data, list):
        return data
    match data:
        case ["i", value]:
            return value
        case ["I", text]:
            return int(text)
        case ["f", text]:
            return struct.unpack("<d", bytes.fromhex(text))[0]
        case ["c", text]:
            return complex(*struct.unpack("<dd", bytes.fromhex(text)))
        case ["b", text]:
            return bytes.fromhex(text)
        case [("tuple" | "list" | "frozenset" | "Size") as name, items]:
            kinds: dict[str, Any] = {"tuple": tuple, "list": list, "frozenset": frozenset, "Size": torch.Size}
            return kinds[name](decode(item) for item in items)
        case ["..."]:
            return Ellipsis
        case ["absent"]:
            return _core.ABSENT
        case ["torch", name]:
            return getattr(torch, name)
        case ["device", text]:
            return torch.device(text)
        case ["module", name]:
            return importlib.import_module(name)
        case ["module_dict", name]:
            return importlib.import_module(name).__dict__
        case ["known", name]:
            return _KNOWN[name]
        case ["object", module_name, qualname]:
            return _find(module_name, qualname)
        case _:
            raise NotPlain(f"unknown tag in {data!r}")
