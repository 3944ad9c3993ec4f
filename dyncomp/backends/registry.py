"""Backends by name: ours, those of third parties (entry points), and any callable `(gm, example_inputs)`."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dyncomp.context import CompileContext
from dyncomp.errors import OptionError, UnknownBackendError

ENTRY_POINTS = ("dyncomp_backends", "torch_dynamo_backends")


@dataclasses.dataclass
class CompileRequest:
    """What a backend compiles.

    `gm` is the torch-level graph; `fake_inputs` and `real_inputs` stand for its placeholders in order (the real ones must not
    be kept); `needs_grad` is True when autograd must be able to go through the result; `dump(stage, text)` writes
    one numbered file of the debug folder when that is on. `gradients`: what was asked of earlier versions of the same code and could
    not be given; `retire()` takes the version that is made of this out of use, so that the next call is compiled anew.
    """

    gm: torch.fx.GraphModule
    fake_inputs: Sequence[Any]
    real_inputs: Sequence[Any]
    context: CompileContext
    name: str
    needs_grad: bool = False
    dump: Callable[[str, str], None] = lambda stage, text: None
    gradients: set[Any] = dataclasses.field(default_factory=set)
    retire: Callable[[], None] = lambda: None


@dataclasses.dataclass(frozen=True)
class Backend:
    """`compile(request)` returns a callable of the graph's inputs; `native` says that calling it runs no Python frame of a user,
    `writes_last` that it writes to inputs after all that can raise (where it falls back, `values.node_by_node` tells)."""

    name: str
    compile: Callable[[CompileRequest], Callable[..., Any]]
    native: bool = False
    writes_last: bool = False


_backends: dict[str, Backend] = {}
_default = "codegen"


def _from_callable(name: str, fn: Callable[..., Any]) -> Backend:
    def compile_with_callable(request: CompileRequest) -> Callable[..., Any]:
        compiled = fn(request.gm, list(request.real_inputs))
        if not callable(compiled):
            raise OptionError(f"backend {name!r} must return a callable, it returned {type(compiled).__name__}")
        return compiled

    return Backend(name, compile_with_callable)


def register_backend(compiler_fn: Any = None, name: str | None = None, *, replace: bool = False) -> Any:
    """Registers `(gm, example_inputs) -> callable` (or a `Backend`) under a name; also a decorator.

    Raises OptionError if the name is taken and `replace` is False.
    """
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name, replace=replace)
    if isinstance(compiler_fn, str):
        raise OptionError("register_backend takes the backend first: register_backend(fn, name='...')")
    key = name or getattr(compiler_fn, "name", None) or getattr(compiler_fn, "__name__", None)
    if not isinstance(key, str) or not key:
        raise OptionError("register_backend needs a name for this callable: register_backend(fn, name='...')")
    if key in _backends and not replace:
        raise OptionError(f"backend {key!r} is already registered; pass replace=True to replace it")
    _backends[key] = compiler_fn if isinstance(compiler_fn, Backend) else _from_callable(key, compiler_fn)
    return compiler_fn


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {e.name: e for group in reversed(ENTRY_POINTS) for e in importlib.metadata.entry_points(group=group)}


def _load(entry: importlib.metadata.EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise OptionError(
            f"backend {entry.name!r} cannot be loaded from {entry.value}: {type(error).__name__}: {error}"
        ) from error


def list_backends() -> list[str]:
    """Names of all backends, third parties' included (those are loaded at first use)."""
    return sorted({*_backends, *_entry_points()})


def lookup_backend(backend: Any) -> Backend:
    """The `Backend` for a name, a callable or a `Backend`. Raises UnknownBackendError with the nearest name."""
    if isinstance(backend, Backend):
        return backend
    if callable(backend) and not isinstance(backend, str):
        return _from_callable(getattr(backend, "__name__", type(backend).__name__), backend)
    if not isinstance(backend, str):
        raise OptionError(f"backend takes a name or a callable (gm, example_inputs), got {backend!r}")
    if backend in _backends:
        return _backends[backend]
    if (entry := _entry_points().get(backend)) is not None:
        register_backend(_load(entry), name=backend)
        return _backends[backend]
    known = list_backends()
    near = difflib.get_close_matches(backend, known, n=1)
    did = f" Did you mean {near[0]!r}?" if near else ""
    raise UnknownBackendError(f"unknown backend {backend!r}.{did} Known: {', '.join(known)}")


def set_default_backend(backend: Any) -> None:
    """What `optimize` uses when no backend is given. Takes a name or a callable, checked at once."""
    global _default
    found = lookup_backend(backend)
    if found.name not in _backends:
        _backends[found.name] = found
    _default = found.name


def default_backend() -> Backend:
    return _backends[_default]
