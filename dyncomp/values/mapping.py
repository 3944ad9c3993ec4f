"""Dictionaries: dict, OrderedDict, defaultdict, mappingproxy, the `__dict__` of objects, module namespaces.

An outside dictionary is read key by key: looking up one key guards that key alone (`dict_item` or
`no_item`); only iteration, length and comparison read all of it (`dict_keys`). Writes never read: they go to
a log that the effects replay, and a key whose value is not known yet stays unread until a later look-up
needs it.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import DictItem, DictKeyAt, SlotAttr, Source
from dyncomp.values.base import ABSENT, Builder, Tracer, Value
from dyncomp.values.builtin_kind import BuiltinKind, builtin_method
from dyncomp.values.constant import ConstantValue
from dyncomp.values.identity_key import pin, real_key, tell_apart
from dyncomp.values.mapping_views import DictIterator, DictView
from dyncomp.values.operators import equal
from dyncomp.values.registry import wrap_type
from dyncomp.values.varying_key import is_open, note_key

Entry = tuple[Value, Value | None]  # key, value; None: not wrapped yet
Write = tuple[str, Value, Value | None]  # "set" | "del", key, new value


class DictValue(BuiltinKind):
    """`owner`: the object whose `__dict__` this is, so that writes become attribute writes."""

    _asked = False  # it is being asked whether it is constant

    def __init__(
        self,
        items: dict[Hashable, Entry] | None = None,
        cls: type = dict,
        source: Source | None = None,
        tx: Tracer | None = None,
        outside: Any = None,
        owner: Value | None = None,
    ):
        super().__init__(source)
        self.cls, self.owner, self._tx, self._outside = cls, owner, tx, outside
        self._items: dict[Hashable, Entry] | None = (
            ({} if items is None else items) if outside is None else None
        )
        self._overlay: dict[
            Hashable, tuple[Value, Any]
        ] = {}  # written keys of an outside dict not read in full
        self._pending: list[tuple[Value, Value]] = []  # writes under keys whose value is not read yet
        self.writes: list[Write] = []  # what the effects replay
        self.factory: Value | None = None  # defaultdict
        self.read_only = False

    # -- reading --------------------------------------------------------------------------------------------
    def find(self, tx: Tracer, key: Value) -> Value | None:
        """The value under a key, or None."""
        if self._pending and self._pending[-1][0] is key:
            return self._pending[-1][1]
        note_key(tx, key, self)
        self._settle(tx)
        k = key.key(tx)
        if self._items is not None:
            tell_apart(tx, k, self._items)
        elif k not in self._overlay:
            tell_apart(tx, k, self._overlay)
            pin(tx, k)
        return self.find_key(tx, k)

    def find_key(self, tx: Tracer, k: Hashable) -> Value | None:
        if self._items is not None:
            return self.wrapped_at(k)
        if k in self._overlay:
            value = self._overlay[k][1]
            return None if value is ABSENT else value
        assert self.source is not None
        try:
            obj = (
                dict.get(self._outside, real_key(k), ABSENT)
                if isinstance(self._outside, dict)
                else self._outside.get(real_key(k), ABSENT)
            )
        except TypeError as error:
            tx.raise_real(error)
        if obj is ABSENT:
            tx.guard(self.source, "no_item", (real_key(k),))
            return None
        return tx.wrap(obj, DictItem(self.source, real_key(k)))

    def find_name(self, tx: Tracer, name: str) -> Value | None:
        """`find` for attribute and variable names."""
        if self._pending:
            self._settle(tx)
        return self.find_key(tx, name)

    def has_outside(self, name: str) -> bool:
        return self._outside is not None and name in self._outside

    def wrapped_at(self, k: Hashable) -> Value | None:
        """The value under a key of a dictionary that was read in full, wrapped when it is first asked for."""
        assert self._items is not None
        entry = self._items.get(k)
        if entry is None:
            return None
        if entry[1] is None:
            assert self._tx is not None and self.source is not None
            real = real_key(k)
            pin(self._tx, k)
            stored = (
                dict.__getitem__(self._outside, real)
                if isinstance(self._outside, dict)
                else self._outside[real]
            )
            entry = (entry[0], self._tx.wrap(stored, DictItem(self.source, real)))
            self._items[k] = entry
        return entry[1]

    def read_all(self, tx: Tracer) -> dict[Hashable, Entry]:
        """Every entry in order; pins the key set of an outside dictionary."""
        self._settle(tx)
        if self._items is None:
            self._read()
        assert self._items is not None
        return self._items

    def _read(self) -> None:
        tx, source = self._tx, self.source
        assert tx is not None and source is not None
        keys = list(dict.keys(self._outside) if isinstance(self._outside, dict) else self._outside)
        if all(_plain_key(key) for key in keys):
            tx.guard(source, "dict_keys", tuple(keys))
            values: list[Value] = [tx.constant(key) for key in keys]
        else:
            tx.guard(source, "len", len(keys))
            values = [tx.wrap(key, DictKeyAt(source, i)) for i, key in enumerate(keys)]
            for value in values:
                if isinstance(value, ConstantValue):
                    _ = value.value
        self._items = {value.key(tx): (value, None) for value in values}
        overlay, self._overlay = self._overlay, {}
        for k, (key, value) in overlay.items():
            tell_apart(tx, k, self._items)
            self._apply(k, key, value)

    def _settle(self, tx: Tracer) -> None:
        """Applies writes whose key had not been read."""
        pending, self._pending = self._pending, []
        for key, value in pending:
            self._apply(key.key(tx), key, value)

    # -- writing --------------------------------------------------------------------------------------------
    def store(self, tx: Tracer, key: Value, value: Value) -> None:
        self._refuse_read_only(tx)
        if self.source is not None:
            self._log(tx, "set", key, value)
            if is_open(key):
                key.python_type()
                self._pending.append((key, value))
                return
        self._settle(tx)
        k = key.key(tx)
        tell_apart(tx, k, self._overlay if self._items is None else self._items)
        self._apply(k, key, value)

    def remove(self, tx: Tracer, key: Value) -> None:
        """The key is there."""
        self._refuse_read_only(tx)
        if self.source is not None:
            self._log(tx, "del", key, None)
        self._settle(tx)
        self._apply(key.key(tx), key, ABSENT)

    def _refuse_read_only(self, tx: Tracer) -> None:
        if self.read_only:
            tx.raise_(TypeError, "'mappingproxy' object does not support item assignment")

    def _apply(self, k: Hashable, key: Value, value: Any) -> None:
        if self._items is None and value is ABSENT and self.owner is None:
            self._read()  # the place of the key in the order is lost, which an overlay cannot tell
        if self._items is None:
            self._overlay[k] = (key, value)
        elif value is ABSENT:
            self._items.pop(k, None)
        else:
            first = self._items.get(k)
            self._items[k] = (first[0] if first else key, value)

    def _log(self, tx: Tracer, kind: str, key: Value, value: Value | None) -> None:
        tx.effects.touch(self)
        if kind == "set" and not is_open(key):
            for i in range(len(self.writes) - 1, -1, -1):
                written = self.writes[i]
                if is_open(written[1]):
                    break
                if written[1].key(tx) == key.key(tx):
                    if written[0] == "set":
                        self.writes[i] = ("set", written[1], value)
                        return
                    break
        self.writes.append((kind, key, value))

    # -- operations -----------------------------------------------------------------------------------------
    def describe(self) -> str:
        return str(self.source) if self.source else f"a {self.cls.__name__}"

    def is_constant(self) -> bool:
        if self._tx is None and self.source is not None:
            return False
        if self._items is None:
            return False
        if self._asked:
            return False  # it contains itself
        self._asked = True
        try:
            return all(
                key.is_constant() and value is not None and value.is_constant()
                for key, value in self._items.values()
            )
        finally:
            self._asked = False

    def as_constant(self) -> Any:
        if not self.is_constant():
            return super().as_constant()
        items = {k.as_constant(): v.as_constant() for k, v in (self._items or {}).values() if v is not None}
        if self.cls is collections.defaultdict:
            return super().as_constant()
        return self.cls(items)

    def fx_arg(self, tx: Tracer) -> Any:
        return {key.as_constant(): value.fx_arg(tx) for key, value in self.entries(tx)}

    def entries(self, tx: Tracer) -> list[tuple[Value, Value]]:
        items = self.read_all(tx)
        return [(key, self.wrapped_at(k)) for k, (key, _) in list(items.items())]  # type: ignore[misc]

    def length(self, tx: Tracer) -> Value:
        return tx.constant(len(self.read_all(tx)))

    def contains(self, tx: Tracer, item: Value) -> Value:
        return tx.constant(self.find(tx, item) is not None)

    def getitem(self, tx: Tracer, key: Value) -> Value:
        value = self.find(tx, key)
        if value is None:
            return self.missing(tx, key)
        return value

    def missing(self, tx: Tracer, key: Value) -> Value:
        if self.cls is collections.defaultdict and self.factory is not None:
            value = tx.call(self.factory, [])
            self.store(tx, key, value)
            return value
        tx.raise_(KeyError, key)

    def setitem(self, tx: Tracer, key: Value, value: Value) -> None:
        self.store(tx, key, value)

    def delitem(self, tx: Tracer, key: Value) -> None:
        if self.find(tx, key) is None:
            tx.raise_(KeyError, key)
        self.remove(tx, key)

    def iterate(self, tx: Tracer) -> Value:
        return DictIterator(tx, self, "keys")

    def unpack(self, tx: Tracer) -> list[Value]:
        return [key for key, _ in self.read_all(tx).values()]

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        sibling = dict_of(other)
        if sibling is None or op not in ("==", "!="):
            return None
        mine, theirs = self.entries(tx), sibling.entries(tx)
        if self.cls is collections.OrderedDict and sibling.cls is collections.OrderedDict:
            same = len(mine) == len(theirs) and all(
                equal(tx, a[0], b[0]) and equal(tx, a[1], b[1]) for a, b in zip(mine, theirs, strict=True)
            )
        else:
            found = [sibling.find(tx, key) for key, _ in mine]
            same = len(mine) == len(theirs) and all(
                other_value is not None and equal(tx, value, other_value)
                for (_, value), other_value in zip(mine, found, strict=True)
            )
        return tx.constant(same is (op == "=="))

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        right = dict_of(other)
        if op != "|" or reflected or right is None:
            return None
        target = self if inplace else self._copy(tx)
        if not inplace and self.cls is dict and right is other:  # of two kinds, the more special one
            target.cls, target.factory = right.cls, right.factory
        target.call_method(tx, "update", [other], {})
        return target

    # -- methods --------------------------------------------------------------------------------------------
    @builtin_method("get")
    def _get(self, tx: Tracer, key: Value, default: Value | None = None) -> Value:
        value = self.find(tx, key)
        return value if value is not None else default if default is not None else tx.constant(None)

    @builtin_method("setdefault")
    def _setdefault(self, tx: Tracer, key: Value, default: Value | None = None) -> Value:
        value = self.find(tx, key)
        if value is None:
            value = default if default is not None else tx.constant(None)
            self.store(tx, key, value)
        return value

    @builtin_method("pop")
    def _pop(self, tx: Tracer, key: Value, default: Value | None = None) -> Value:
        value = self.find(tx, key)
        if value is None:
            return default if default is not None else tx.raise_(KeyError, key)
        self.remove(tx, key)
        return value

    @property
    def positional_only(self) -> bool:  # type: ignore[override]
        return not issubclass(self.cls, collections.OrderedDict)

    @builtin_method("popitem")
    def _popitem(self, tx: Tracer, last: Value | None = None) -> Value:
        if last is not None and not issubclass(self.cls, collections.OrderedDict):
            raise GraphBreak("eager-error", "popitem() of a dict takes no arguments")
        entries = self.entries(tx)
        if not entries:
            tx.raise_(KeyError, "popitem(): dictionary is empty")
        key, value = entries[-1 if last is None or last.truth(tx) else 0]
        self.remove(tx, key)
        return tx.tuple_of([key, value])

    @builtin_method("__ior__")
    def _ior(self, tx: Tracer, other: Value) -> Value:
        self._update(tx, other)
        return self

    @builtin_method("update")
    def _update(self, tx: Tracer, other: Value | None = None, **kwargs: Value) -> Value:
        if other is not None:
            for key, value in pairs_of(tx, other):
                self.store(tx, key, value)
        for name, value in kwargs.items():
            self.store(tx, tx.constant(name), value)
        return tx.constant(None)

    @builtin_method("clear")
    def _clear(self, tx: Tracer) -> Value:
        self._refuse_read_only(tx)
        for key, _ in self.entries(tx):
            self.remove(tx, key)
        return tx.constant(None)

    @builtin_method("copy", "__copy__")
    def _copy(self, tx: Tracer) -> DictValue:
        made = DictValue({key.key(tx): (key, value) for key, value in self.entries(tx)}, self.cls)
        made.factory = self.factory
        return made

    @builtin_method("move_to_end")
    def _move_to_end(self, tx: Tracer, key: Value, last: Value | None = None) -> Value:
        value = self.getitem(tx, key)
        if last is not None and not last.truth(tx):
            moved = key.key(tx)
            others = [entry for entry in self.entries(tx) if entry[0].key(tx) != moved]
            self._clear(tx)
            for other_key, other_value in [(key, value), *others]:
                self.store(tx, other_key, other_value)
        else:
            self.remove(tx, key)
            self.store(tx, key, value)
        return tx.constant(None)

    @builtin_method("keys")
    def _keys(self, tx: Tracer) -> Value:
        return DictView(self, "keys")

    @builtin_method("values")
    def _values(self, tx: Tracer) -> Value:
        return DictView(self, "values")

    @builtin_method("items")
    def _items_view(self, tx: Tracer) -> Value:
        return DictView(self, "items")

    @builtin_method("__reversed__")
    def _reversed(self, tx: Tracer) -> Value:
        return tx.tuple_of([key for key, _ in self.entries(tx)][::-1]).iterate(tx)

    @builtin_method("__or__")
    def _or(self, tx: Tracer, other: Value) -> Value:
        result = self.binary(tx, "|", other)
        return tx.constant(NotImplemented) if result is None else result

    def getattr(self, tx: Tracer, name: str) -> Value:
        self._refuse_foreign(tx, name)
        if name == "default_factory":
            return self.factory if self.factory is not None else tx.constant(None)
        return super().getattr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Any, kwargs: dict[str, Value]) -> Value:
        self._refuse_foreign(tx, name)
        if name == "update" and kwargs and len(args) <= 1:
            return self._update(tx, *args, **kwargs)
        return super().call_method(tx, name, args, kwargs)

    def _refuse_foreign(self, tx: Tracer, name: str) -> None:
        if not hasattr(self.cls, name):
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    # -- code -----------------------------------------------------------------------------------------------
    def reconstruct(self, builder: Builder) -> None:
        if self.owner is not None:
            builder.load(self.owner)
            builder.load_attr("__dict__")
            return
        if self.read_only:
            super().reconstruct(builder)
        if self.cls is dict:
            builder.build_map(0)
        else:
            builder.load_const(self.cls)
            if self.cls is collections.defaultdict and self.factory is not None:
                builder.load(self.factory)
                builder.call(1)
            else:
                builder.call(0)
        builder.remember(self)
        self.fill(builder)

    def fill(self, builder: Builder) -> None:
        """[dict] -> [dict], with the entries of a dictionary made while tracing."""
        for key, value in self.made_entries():
            builder.load(key)
            builder.load(value)
            builder.store_item()

    def made_entries(self) -> list[tuple[Value, Value]]:
        """The entries of a dictionary made while tracing, for the code that builds it."""
        return [(key, value) for key, value in (self._items or {}).values() if value is not None]


def _plain_key(key: Any) -> bool:
    if isinstance(key, tuple):
        return all(_plain_key(part) for part in key)
    return (
        isinstance(key, (str, int, float, bool, bytes, type(None), type)) or type(key).__module__ == "torch"
    )


def dict_of(value: Value) -> DictValue | None:
    """The dictionary behind a value: itself, or the contents of an instance of a dict subclass."""
    if isinstance(value, DictValue):
        return value
    storage = getattr(value, "storage", None)
    return storage if isinstance(storage, DictValue) else None


def pairs_of(tx: Tracer, value: Value) -> list[tuple[Value, Value]]:
    """What `dict(value)` would take from a mapping or from an iterable of pairs."""
    if isinstance(value, DictValue):
        return value.entries(tx)
    if tx.has_attribute(value, "keys"):
        keys = value.call_method(tx, "keys", [], {}).unpack(tx)
        return [(key, value.getitem(tx, key)) for key in keys]
    pairs: list[tuple[Value, Value]] = []
    for row in value.unpack(tx):
        parts = row.unpack(tx)
        if len(parts) != 2:
            raise GraphBreak("eager-error", "dictionary update sequence element of a length other than 2")
        pairs.append((parts[0], parts[1]))
    return pairs


@wrap_type(dict, collections.OrderedDict)
def wrap_dict(tx: Tracer, obj: dict[Any, Any], source: Source) -> Value:
    return DictValue(None, type(obj), source, tx, obj)


@wrap_type(collections.defaultdict)
def wrap_defaultdict(tx: Tracer, obj: Any, source: Source) -> Value:
    value = DictValue(None, type(obj), source, tx, obj)
    value.factory = tx.wrap(obj.default_factory, SlotAttr(source, "default_factory"))
    return value
