"""Native runtime: frame hook, code caches, guards, direct dispatch (`_core`); plan executor (`_exec`).

Imports nothing of dyncomp. `_exec` is imported by those who need it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

REBUILD = (
    "Rebuild dyncomp beside the torch you use: "
    "python -m pip install --no-build-isolation --force-reinstall dyncomp"
)


def _load_core() -> Any:
    """Imports `_core`, with torch's libraries loaded first, and checks that both belong together."""
    found = importlib.util.find_spec("torch") is not None
    version = importlib.import_module("torch").__version__ if found else None
    beside = f"torch {version}" if found else "no torch"
    try:
        core = importlib.import_module("._core", __name__)
    except ImportError as error:
        tag = sys.implementation.cache_tag
        raise ImportError(
            f"dyncomp's native runtime does not load in {tag} beside {beside}: {error}\n{REBUILD}"
        ) from error
    if core.WITH_TORCH and version != core.TORCH_VERSION:
        raise ImportError(
            f"dyncomp's native runtime was built for torch {core.TORCH_VERSION}, found {beside}.\n{REBUILD}"
        )
    return core


_core = _load_core()
WITH_TORCH: bool = _core.WITH_TORCH

ABSENT = _core.ABSENT
EAGER_ONCE = _core.EAGER_ONCE
FREEZE = _core.FREEZE
Cache = _core.Cache
Dispatcher = _core.Dispatcher
Entry = _core.Entry
GuardTree = _core.GuardTree
Region = _core.Region
TensorSpec = _core.TensorSpec
global_state = _core.global_state
hook_installed = _core.hook_installed
reset = _core.reset
set_callback = _core.set_callback
set_disabled = _core.set_disabled
set_report = _core.set_report
skip = _core.skip
tensor_spec = _core.tensor_spec
without_hook = _core.without_hook
