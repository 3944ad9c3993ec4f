"""Numbers that only the run itself can tell: `id(obj)`, the thread's identifier.

They can be compared with each other, be dictionary keys, and be handed on as code; nothing can look at their
digits.
"""

from __future__ import annotations

import _thread
import builtins
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.identity_key import ComposedKey, IdentityKey, tell_apart
from dyncomp.values.registry import on_call


class LateNumber(Value):
    """`function(*args)`: equal for the same arguments, different for others."""

    def __init__(self, function: Callable[..., int], args: Sequence[Value]):
        super().__init__()
        self.function, self.args = function, list(args)

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"{self.function.__name__}()"

    def key(self, tx: Tracer) -> Hashable:
        return ComposedKey((self.function, *map(IdentityKey, self.args)))

    def truth(self, tx: Tracer) -> bool:
        return True

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        if op in ("==", "!=") and isinstance(other, LateNumber) and other.function is self.function:
            mine, theirs = self.key(tx), other.key(tx)
            tell_apart(tx, mine, [theirs])
            return tx.constant((mine == theirs) is (op == "=="))
        raise GraphBreak("unsupported-builtin", f"comparing {self.describe()} with {other.describe()}")

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(self.function)
        for arg in self.args:
            builder.load(arg)
        builder.call(len(self.args))


@on_call(builtins.id)
def _id(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return LateNumber(id, args)


@on_call(_thread.get_ident)
def _get_ident(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Any]) -> Value:
    return LateNumber(_thread.get_ident, [])
