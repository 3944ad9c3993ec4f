"""Autocast inside of a mode: on its way to one, an operation leaves autocast behind, also one that is no operation of autocast.

    with autocast: einsum(f32, f32)      ->  the mode sees einsum; torch makes it a bmm, which autocast takes to bf16

`autocast_as_called` brings autocast back for what a composed operation is made of, unless it is an operation of autocast itself:
that has been through it, and its parts run as they are. Autocast is on for a device where its dispatch key is not excluded.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

_KEYS = ("AutocastCPU", "AutocastCUDA")
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_set_excluded = torch._C._dispatch_tls_set_dispatch_key_excluded
_when_called: Any = torch._C._RestorePythonTLSSnapshot  # type: ignore[attr-defined]


@functools.lru_cache(None)
def _untouched(op: Any) -> tuple[str, ...]:
    """The kinds of autocast that have no rule for this operation."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return tuple(key for key in _KEYS if not has_kernel(op.name(), key))


@contextlib.contextmanager
def autocast_as_called(op: Any) -> Iterator[None]:
    """For the body of a mode's `__torch_dispatch__` of `op`."""
    with _when_called():  # the state of the thread when the operation was called
        on = [key for key in _untouched(op) if not _is_excluded(key)]
    for key in on:
        _set_excluded(key, False)
    try:
        yield
    finally:
        for key in on:
            _set_excluded(key, True)
