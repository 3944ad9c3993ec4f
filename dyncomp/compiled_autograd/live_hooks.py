"""Hooks as they are when their turn comes: a hook that ran before may have taken some away, or added some.

    present(hooks, table, place)     Python    what is in the table now
                                     traced    `hooks`, which were in it when the backward began, as long as nothing in this graph
                                               changed the table; that it holds these very hooks is guarded where the frame begins
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyncomp._frame import _exec
from dyncomp.compiled_autograd.running import STACK
from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call, TupleItem
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value


def present(hooks: tuple[Any, ...], table: dict[int, Any], place: int) -> tuple[Any, ...]:
    """`place`: where these two are among the hooks of the backward that runs."""
    return tuple(table.values())


def retained(node: int, place: int, gradient: Any) -> None:
    """`retain_grad()` of result number `place` of a node: eager's own hook, which knows the tensor."""
    _exec.backward_retain(STACK.running[-1].steps, node, place, gradient)


@registry.on_call(retained)
def _retained(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    raise GraphBreak("compiled-autograd", "retain_grad() of a result")


@registry.on_call(present)
def _present(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    hooks, table, place = args
    given, real = STACK.running[-1].hooks[place.as_constant() :][:2]
    now = list(real.values())
    same = len(now) == len(given) and all(a is b for a, b in zip(now, given, strict=True))
    if not same or any(changed is table for changed in tx.effects.changed()):
        raise GraphBreak("compiled-autograd", "hooks that were added or taken away while the backward ran")
    assert table.source is not None and hooks.source is not None
    tx.guard(table.source, "len", len(now))
    values = Call(Call(table.source, type(real).values), tuple)
    for place_in_table in range(len(now)):  # one may have come in the place of another
        tx.guard(TupleItem(values, place_in_table), "same_as", TupleItem(hooks.source, place_in_table))
    return hooks
