"""`contextvars.ContextVar`: reading and setting them.

    mode.get()              what the calling context holds, read by the guard tree in each call
    token = mode.set(x)     the new value from here on; set for good after the graph has run, unless
    mode.reset(token)       takes it back before

Sets that are still in force are made again in order, so each token that is handed on is a real one.
"""

from __future__ import annotations

import contextvars
import operator
from collections.abc import Hashable, Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, Source
from dyncomp.values.base import ABSENT, Builder, Tracer, Unreconstructible, Value
from dyncomp.values.builtin_kind import BuiltinKind, builtin_method
from dyncomp.values.identity_key import IdentityKey
from dyncomp.values.registry import wrap_type

_HELD = operator.methodcaller("get", ABSENT)  # ABSENT where only a default would be found
_FOUND = operator.methodcaller("get")


class ContextVarValue(BuiltinKind):
    """`tokens`: of the sets in force that were traced, the last one last."""

    cls = contextvars.ContextVar

    def __init__(self, obj: Any, source: Source):
        super().__init__(source)
        self.obj = obj
        self.tokens: list[TokenValue] = []

    def describe(self) -> str:
        return f"context variable {self.obj.name!r}"

    def real(self) -> Any:
        return self.obj

    def key(self, tx: Tracer) -> Hashable:
        return IdentityKey(self)

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> Value:
        return tx.constant(self.obj.name) if name == "name" else super().getattr(tx, name)

    @builtin_method("get")
    def _get(self, tx: Tracer, default: Value | None = None) -> Value:
        if self.tokens:
            return self.tokens[-1].value
        assert self.source is not None
        held = self.obj.get(ABSENT)
        if held is not ABSENT:
            return tx.wrap(held, Call(self.source, _HELD))
        tx.guard(Call(self.source, _HELD), "id", ABSENT)
        if default is not None:
            return default
        try:
            found = self.obj.get()
        except LookupError:
            tx.raise_(LookupError, self)
        return tx.wrap(found, Call(self.source, _FOUND))

    @builtin_method("set")
    def _set(self, tx: Tracer, value: Value) -> Value:
        token = TokenValue(self, value)
        self.tokens.append(token)
        tx.effects.call_for(token, contextvars.ContextVar.set, self, value)
        return token

    @builtin_method("reset")
    def _reset(self, tx: Tracer, token: Value) -> Value:
        if not self.tokens or token is not self.tokens[-1]:
            raise GraphBreak("unsupported-call", f"reset of the {self.describe()} to before another set than the last one in the same code")
        self.tokens.pop()
        tx.effects.take_back(token)
        return tx.constant(None)


class TokenValue(Value):
    """What `set` gave."""

    def __init__(self, variable: ContextVarValue, value: Value):
        super().__init__()
        self.variable, self.value = variable, value

    def python_type(self) -> type:
        return contextvars.Token

    def describe(self) -> str:
        return f"a token of the {self.variable.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> Value:
        return self.variable if name == "var" else super().getattr(tx, name)

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        tx.raise_(TypeError, "'Token' object is not callable")

    def reconstruct(self, builder: Builder) -> None:
        raise Unreconstructible(self, f"{self.describe()} that was used")  # else the set that is made again gives it


@wrap_type(contextvars.ContextVar)
def wrap_context_var(tx: Tracer, obj: Any, source: Source) -> Value:
    return ContextVarValue(obj, source)
