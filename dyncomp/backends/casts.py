"""Calls of graphs that take casts of weights: they get those that autocast's cache has.

    taking_casts(call, casts, original)      call(*inputs, *casts of inputs)      ->      a callable of the inputs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dyncomp import counters
from dyncomp._frame import _core, _exec
from dyncomp.aot import Casts


def taking_casts(call: Callable[..., Any], casts: Casts, original: Callable[..., Any]) -> Callable[..., Any]:
    """`original` runs where the cache has a cast of another dtype, from another block: eager would compute with that, or raise."""
    if not casts:
        return call

    def other(*inputs: Any) -> Any:
        results = original(*inputs)
        counters.add_fallback("autocast-cached-otherwise")
        return tuple(results) if isinstance(results, tuple | list) else (results,)

    call_with_casts: Callable[..., Any] = _exec.CastingCall(call, casts, _core.without_hook(other))
    return call_with_casts
