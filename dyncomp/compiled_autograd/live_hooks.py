"""Hooks as they are when their turn comes: a hook that ran before may have taken some away, or added some.

    present(hooks, table, place)     Python    what is in the table now
                                     traced    `hooks`, which were in it when the backward began, as long as nothing in this graph
                                               changed the table; how many it holds is guarded where the frame begins
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyncomp.compiled_autograd.running import STACK
from dyncomp.errors import GraphBreak
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value


def present(hooks: tuple[Any, ...], table: dict[int, Any], place: int) -> tuple[Any, ...]:
    """`place`: where these two are among the hooks of the backward that runs."""
    return tuple(table.values())


@registry.on_call(present)
def _present(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    hooks, table, place = args
    given, real = STACK.running[-1].hooks[place.as_constant() :][:2]
    now = list(real.values())
    same = len(now) == len(given) and all(a is b for a, b in zip(now, given, strict=True))
    if not same or any(changed is table for changed in tx.effects.changed()):
        raise GraphBreak("compiled-autograd", "hooks that were added or taken away while the backward ran")
    assert table.source is not None
    tx.guard(table.source, "len", len(now))
    return hooks
