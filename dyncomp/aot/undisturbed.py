"""Tracing beside what the program has switched on for its own autograd.

Hooks on saved tensors would be handed our fakes (a checkpoint counts them), and anomaly mode looks into every gradient for NaN.
Both are of the program's tensors alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_autograd = torch._C._autograd


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """No hooks on saved tensors and no anomaly mode inside, in this thread; afterwards as before."""
    anomaly, check_nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    hooks = []
    while (top := _autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        _autograd._pop_saved_tensors_default_hooks()
    torch.set_anomaly_enabled(False)
    try:
        yield
    finally:
        torch.set_anomaly_enabled(anomaly, check_nan)
        for pack, unpack in reversed(hooks):
            _autograd._push_saved_tensors_default_hooks(pack, unpack)
