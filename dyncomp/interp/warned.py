"""Warnings of operations: they come from the user's line, once a call, as in eager; never from the tensors that tracing runs them on.

In:  an operation that is about to run on tensors without data
Out: the warnings that it gave there, which nobody has seen; what the trace does about them

    torch warns again each time      the call is replayed as an effect (backends whose graphs run no Python), else the graph breaks
    it warns once in a process       nobody would see it any more, so that it is given now, for the user's line
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.fake.kept_warnings import Given, kept_back

_NAMES_A_SYMBOL = re.compile(r"\b[su]\d+\b")  # as shapes print sizes that vary
_TORCHS_REGISTRY: dict[Any, Any] = {}


def run_quietly(trace: Any, name: str, writes: bool, run: Callable[[], Any]) -> Any:
    """`run()`, and what its warnings mean for the trace. `writes`: it cannot be run twice."""
    failed: Exception | None = None
    with kept_back() as given:
        try:
            result = run()
        except Exception as error:  # noqa: BLE001  raised again below
            failed = error
    if not given:
        if failed is not None:
            raise failed
        return result
    again = given if writes else _given_again(run)
    _give_lost(trace, given, again)
    if failed is not None:
        raise failed  # where the graph breaks the operation itself warns, once more
    if again:
        _settle(trace, name, again)
    return result


def _given_again(run: Callable[[], Any]) -> list[Given]:
    with kept_back() as again, contextlib.suppress(Exception):  # as it did the first time
        run()
    return again


def _place(trace: Any) -> tuple[dict[str, Any], str, int]:
    frame = trace.frames[-1]
    return (frame.function.globals, *frame.where()[:2])


def _give_lost(trace: Any, given: list[Given], again: list[Given]) -> None:
    for warning in given:
        if warning not in again:
            give(warning, *_place(trace))


def _settle(trace: Any, name: str, again: list[Given]) -> None:
    caught = any(frame.op.handler is not None for frame in trace.frames)
    native = getattr(getattr(trace.context, "backend", None), "native", False)
    varies = trace.fake_mode.env is not None and any(_NAMES_A_SYMBOL.search(warning.text) for warning in again)
    if caught or varies or not native and not getattr(trace.context, "fullgraph", False):
        raise GraphBreak("side-effect", f"{name} warns: {again[0].text}")
    for warning in again if native else ():
        trace.effects.call(functools.partial(give, warning, *_place(trace)))


def give(warning: Given, names: dict[str, Any], filename: str, line: int) -> None:
    """Warns as code at this place of the module with these names would."""
    registry: dict[Any, Any] = names.setdefault("__warningregistry__", {})
    module = names.get("__name__") or "<unknown>"
    if warning.place is not None:
        filename, line = warning.place
        registry, module = _TORCHS_REGISTRY, filename
    warnings.warn_explicit(warning.text, warning.category, filename, line, module, registry)
