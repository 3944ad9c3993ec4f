"""Look-ups by a key of the call that differs from call to call: `table[name]`, `layers[i]`, `getattr(obj, name)`.

The first keys get a version each, as any value that is looked at. From then on the look-up breaks the graph: the rest of the frame
takes what it gives as an argument, and one version serves all keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values.base import Tracer, Value
from dyncomp.values.constant import ConstantValue
from dyncomp.values.sym_number import SymNumberValue


def is_open(key: Value) -> bool:
    """True for a string or number of the call that nothing has looked at yet, or that varies."""
    if isinstance(key, SymNumberValue):
        return key.is_constant()
    return isinstance(key, ConstantValue) and key.unread and type(key.peek()) in (str, int)


def _parts(key: Value) -> Iterator[Value]:
    """The key, or the items of a tuple that is one."""
    items = getattr(key, "items", None)
    if isinstance(items, list) and key.python_type() is tuple:
        for item in items:
            yield from _parts(item)
    else:
        yield key


def note_key(tx: Tracer, key: Value, target: Value) -> None:
    """Before `target` is asked for what is under `key`, which fixes the key."""
    known = [part for part in _parts(key) if is_open(part)]
    if known and tx.sizes.too_many_keys(" ".join(map(_origin, known)), tuple(map(_at_hand, known))):
        raise GraphBreak("varying-key", f"a look-up in {target.describe()} by {key.describe()}, which differs from call to call")


def _origin(key: Value) -> str:
    """Where the call has it: one trace may look up many things on one line, such as what each layer of a model calls its own."""
    if isinstance(key, SymNumberValue):
        return str(key.number.node.shape_env.named(str(key.number.node.expr)))
    if key.source is not None:
        return str(key.source)
    return " ".join(map(_origin, key.operands)) if isinstance(key, ConstantValue) and key.unread else ""


def _at_hand(key: Value) -> Any:
    return key.number.node.hint if isinstance(key, SymNumberValue) else key.peek()  # type: ignore[attr-defined]
