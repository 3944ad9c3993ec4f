"""Warnings that operations give on tensors without data: kept back, since what the program sees are those of its own calls.

    with kept_back() as given: ...       given: [Given(text, category, place)]
"""

from __future__ import annotations

import dataclasses
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_DISPATCH = tuple(
    os.path.join(_TORCH, *part) for part in (["_ops.py"], ["utils", "_python_dispatch.py"], ["_prims_common", ""])
)
_ALWAYS = ("always", None, Warning, None, 0)


@dataclasses.dataclass(frozen=True)
class Given:
    """A warning that was kept back. `place`: the line of torch's Python that it names, if it names one."""

    text: str
    category: type[Warning]
    place: tuple[str, int] | None


@contextmanager
def kept_back() -> Iterator[list[Given]]:
    """Collects all warnings of this thread, whatever the filters say; the registries of "once a place" stay as they are.

    The module's own `catch_warnings` would empty them, so that the program's warnings came twice.
    """
    given: list[Given] = []
    thread = threading.get_ident()
    module: Any = warnings
    filters, show = module.filters, module._showwarnmsg

    def collect(message: Any) -> None:
        if threading.get_ident() == thread:
            given.append(Given(str(message.message), message.category, _torchs_own(message.filename, message.lineno)))
        elif _action(filters, message) == "error":
            raise message.message
        elif _action(filters, message) != "ignore":
            show(message)

    # In the list itself, not in its place: a `catch_warnings` of another thread puts back the list that it found.
    filters.insert(0, _ALWAYS)
    module._showwarnmsg = collect
    try:
        yield given
    finally:
        module._showwarnmsg = show
        for i, entry in enumerate(filters):
            if entry is _ALWAYS:  # another thread may have taken it out with an equal one
                del filters[i]
                break


def _torchs_own(filename: str, line: int) -> tuple[str, int] | None:
    """Code of torch that eager runs too: not its dispatch to tensors without data."""
    inside = filename.startswith(_TORCH) and not filename.startswith(_DISPATCH)
    return (filename, line) if inside else None


def _action(filters: list[Any], message: Any) -> str:
    """What the program's filters say of a warning of another thread; those that name a module are passed over."""
    for entry in filters:
        action, text, category, module, line = entry
        if (
            entry is not _ALWAYS
            and (text is None or text.match(str(message.message)))
            and issubclass(message.category, category)
            and module is None
            and line in (0, message.lineno)
        ):
            return str(action)
    return "default"
