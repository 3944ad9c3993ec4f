"""The options of one `optimize` or `enable` call. Entries in the native caches belong to exactly one context."""

from __future__ import annotations

import dataclasses
import difflib
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from dyncomp import config
from dyncomp.errors import OptionError

# Tracing patches process-wide state (torch modes, fakes): one compile at a time, of forwards and of backwards.
COMPILE_LOCK = threading.RLock()
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


# Keys of `options={...}`: knobs of `dyncomp.config` that one `optimize` call may set for itself.
OPTIONS = (
    "capture_backward", "capture_dynamic_output_shape_ops", "capture_scalar_outputs", "compiled_autograd", "debug_dir",
    "fusion", "kernel_grain", "recompute", "round_low_precision", "vector_isa", "verify_passes",
)


@dataclasses.dataclass(eq=False)
class CompileContext:
    """Identity is what counts: the native caches compare contexts by pointer.

    `observers` are told of every compile (explain, tests); `backend` is a resolved `backends.Backend`.
    """

    backend: Any
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str = "default"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    recompile_limit: int = 8
    name: str | None = None
    observers: list[Callable[[Any], None]] = dataclasses.field(default_factory=list)
    sizes: weakref.WeakKeyDictionary[types.CodeType, Any] = dataclasses.field(
        default_factory=weakref.WeakKeyDictionary
    )  # what varied (interp.sizes)
    optimizer_floats: weakref.WeakKeyDictionary[types.CodeType, Any] = dataclasses.field(
        default_factory=weakref.WeakKeyDictionary
    )  # what varied of an optimiser's settings (values.optimizer)
    gradients: weakref.WeakKeyDictionary[types.CodeType, Any] = dataclasses.field(
        default_factory=weakref.WeakKeyDictionary
    )  # of which outputs gradients were asked for that a version with symbolic sizes could not give (backends.training)
    waiting: weakref.WeakKeyDictionary[types.CodeType, Any] = dataclasses.field(
        default_factory=weakref.WeakKeyDictionary
    )  # had nothing to compile so far (patience)
    warned: set[str] = dataclasses.field(default_factory=set)
    lock: Any = dataclasses.field(default_factory=threading.Lock)

    def once(self, key: str) -> bool:
        """True the first time it is asked about `key`: for warnings that must not repeat."""
        with self.lock:
            if key in self.warned:
                return False
            self.warned.add(key)
            return True


def _near(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_mode(mode: str | None) -> str:
    """The mode's name; raises OptionError with the nearest match."""
    mode = "default" if mode is None else mode
    if mode not in MODES:
        raise OptionError(f"unknown mode {mode!r}.{_near(str(mode), MODES)} Known: {', '.join(MODES)}")
    return mode


def check_options(options: dict[str, Any] | None) -> dict[str, Any]:
    """A checked copy; raises OptionError for an unknown key or a wrong type."""
    checked = dict(options or {})
    for name, value in checked.items():
        if name not in OPTIONS:
            raise OptionError(
                f"unknown option {name!r}.{_near(str(name), OPTIONS)} Known: {', '.join(OPTIONS)} (see dyncomp.config)"
            )
        config.check(name, value)
    return checked


def check_flag(name: str, value: Any, allow_none: bool = False) -> Any:
    if isinstance(value, bool) or (allow_none and value is None):
        return value
    raise OptionError(f"{name} takes {'True, False or None' if allow_none else 'True or False'}, got {value!r}")


def check_limit(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"recompile_limit takes a positive integer, got {value!r}")
    return value
