"""Every knob in one typed table. `dyncomp.config.<knob>` reads and writes; `patch` restores.

A knob with `affects_code=True` changes generated code, so it is part of every cache key.
Each knob can be set in the environment as `DYNCOMP_<NAME>` before the import.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dyncomp.errors import OptionError


@dataclasses.dataclass(frozen=True)
class Knob:
    name: str
    type: type
    default: Any
    doc: str
    choices: tuple[Any, ...] = ()
    affects_code: bool = False


KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("disable", bool, False, "Run everything as plain Python."),
        Knob("strict", bool, False, "Raise InternalError instead of falling back when dyncomp itself fails."),
        Knob("recompile_limit", int, 8, "Versions kept an entry point before it falls back to plain Python."),
        Knob("inline_depth", int, 64, "Deepest chain of inlined calls."),
        Knob("graph_limit", int, 100_000, "Largest number of nodes captured in one graph."),
        Knob("unroll_limit", int, 20_000, "Most instructions run in one captured loop before the frame is left alone."),
        Knob("debug_dir", str, "", "Folder for one sub-folder a compile, files numbered by stage."),
        Knob("cache_dir", str, "", "Kernel cache; empty: ~/.cache/dyncomp."),
        Knob("cache_size_mb", int, 1024, "The kernel cache drops least recently used files above this size."),
        Knob("disk_cache", bool, True, "Keep compiled kernels on disk."),
        Knob("cxx", str, "", "C++ compiler; empty: $CXX, g++, clang++ in this order."),
        Knob("compile_threads", int, 0, "Compiler processes at once; 0: one a core."),
        Knob(
            "vector_isa",
            str,
            "auto",
            "Vector extension of generated CPU code.",
            ("auto", "avx512", "avx2", "scalar"),
            True,
        ),
        Knob(
            "backward",
            str,
            "lazy",
            "When a backward is compiled: at the first backward (lazy) or with its forward (ahead).",
            ("lazy", "ahead"),
        ),
        Knob(
            "capture_backward", bool, False,
            "Take loss.backward() into the graph: forward, backward and optimiser step of a training step become one graph.",
        ),
        Knob(
            "compiled_autograd", bool, False,
            "Run backward() called in compiled regions as one compiled graph, also where the forward had graph breaks; hooks included.",
        ),
        Knob(
            "recompute",
            str,
            "fused",
            "What a backward computes again instead of keeping it: nothing (off), pointwise values that no operation needs in "
            "memory (fused), all pointwise values (more: least memory).",
            ("off", "fused", "more"),
            True,
        ),
        Knob(
            "automatic_dynamic", bool, True,
            "With dynamic=None: sizes and ints that changed since the last compile become symbolic.",
        ),
        Knob(
            "capture_scalar_outputs", bool, False,
            "Take .item(), .tolist(), int() and float() of tensors into the graph, as numbers without a value; off breaks the graph there.",
        ),
        Knob(
            "capture_dynamic_output_shape_ops", bool, False,
            "Take operations whose result's size depends on data (nonzero, boolean index, unique) into the graph; off breaks it there.",
        ),
        Knob(
            "remember_sizes", bool, True,
            "Keep in the cache folder which sizes and numbers varied, so that the next process compiles them as symbolic at once.",
        ),
        Knob(
            "duck_sizes", bool, False,
            "With dynamic=True: sizes of different tensors that are equal in the first call are taken to be one number. Off: "
            "where an operation needs them equal.",
        ),
        Knob("fusion", bool, True, "Fuse loops; off gives one kernel an operation, for debugging.", (), True),
        Knob(
            "round_low_precision",
            bool,
            True,
            "Round bfloat16 and float16 values after every operation, as eager does; off keeps fused values in float32.",
            (),
            True,
        ),
        Knob("verify_passes", bool, False, "Check every intermediate form after every pass."),
        Knob("kernel_grain", int, 16384, "Fewest elements of work given to one thread.", (), True),
    )
}


def _from_environment(knob: Knob) -> Any:
    text = os.environ.get(f"DYNCOMP_{knob.name.upper()}")
    if text is None:
        return knob.default
    if knob.type is bool:
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off", ""):
            return False
        raise OptionError(f"DYNCOMP_{knob.name.upper()}={text!r}: expected 0 or 1")
    try:
        return _checked(knob, knob.type(text))
    except ValueError as e:
        raise OptionError(f"DYNCOMP_{knob.name.upper()}={text!r}: expected {knob.type.__name__}") from e


def _checked(knob: Knob, value: Any) -> Any:
    if knob.type is not bool and isinstance(value, bool) or not isinstance(value, knob.type):
        raise OptionError(f"config.{knob.name} takes {knob.type.__name__}, got {value!r}")
    if knob.choices and value not in knob.choices:
        raise OptionError(f"config.{knob.name} takes one of {', '.join(map(repr, knob.choices))}, got {value!r}")
    return value


def _knob(name: str) -> Knob:
    knob = KNOBS.get(name)
    if knob is None:
        near = difflib.get_close_matches(name, KNOBS, n=1)
        did = f" Did you mean {near[0]!r}?" if near else ""
        raise OptionError(f"no knob {name!r}.{did} Known: {', '.join(sorted(KNOBS))}")
    return knob


class _Config(types.ModuleType):
    """The module itself, with checked attribute writes."""

    _values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        if name.startswith("__"):
            raise AttributeError(name)
        _knob(name)
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self._values[name] = _checked(_knob(name), value)

    def __dir__(self) -> list[str]:
        return [*KNOBS, "patch", "snapshot", "code_key"]


_values: dict[str, Any] = {name: _from_environment(knob) for name, knob in KNOBS.items()}


def check(name: str, value: Any) -> Any:
    """The value, if the knob exists and takes it; else OptionError with the cure."""
    return _checked(_knob(name), value)


@contextlib.contextmanager
def patch(**knobs: Any) -> Iterator[None]:
    """Sets knobs inside the block and restores them after, on exceptions too."""
    new = {name: _checked(_knob(name), value) for name, value in knobs.items()}
    old = {name: _values[name] for name in new}
    _values.update(new)
    try:
        yield
    finally:
        _values.update(old)


def snapshot() -> dict[str, Any]:
    """All knobs and their values now."""
    return dict(_values)


def code_key() -> tuple[tuple[str, Any], ...]:
    """The knobs that change generated code, for cache keys."""
    return tuple((name, _values[name]) for name, knob in KNOBS.items() if knob.affects_code)


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Knobs, for type checkers: at run time `_Config` answers."""


sys.modules[__name__].__class__ = _Config
