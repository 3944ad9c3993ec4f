"""Runs a use of a program and records what can be seen of it."""

from __future__ import annotations

import dataclasses
import linecache
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

from tests.fuzz.names import NAMES


@dataclasses.dataclass
class Program:
    """`function` defines `f`; a use is a script that makes inputs, calls `f` and trains with what it returns."""

    seed: int
    function: str
    uses: list[str]

    def file(self, use: int | None = None) -> str:
        return f"<training program {self.seed}{'' if use is None else f', use {use}'}>"

    def compiled(self, use: int | None = None) -> Any:
        """The code of the function or of a use, with its source where tracebacks look for it."""
        source, name = self.function if use is None else self.uses[use], self.file(use)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        return compile(source, name, "exec")


@dataclasses.dataclass
class Seen:
    """A tensor as an observer finds it; `gradient` of leaves and of what retains it."""

    values: torch.Tensor
    facts: dict[str, Any]
    gradient: Seen | None = None


@dataclasses.dataclass
class Record:
    """`events`: what hooks and `autograd.grad` gave, in order; `tensors`: names at the end; `error`: type, text, line, phase."""

    events: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    tensors: dict[str, Seen] = dataclasses.field(default_factory=dict)
    error: tuple[str, str, int] | None = None
    in_backward: bool = False
    raised: BaseException | None = None
    generator: torch.Tensor | None = None


def is_leaf(t: torch.Tensor) -> bool | str:
    """Or why that cannot be told: a view of several whose base was written."""
    try:
        return t.is_leaf
    except RuntimeError as error:
        return str(error)


def seen(t: torch.Tensor, name: str = "", groups: dict[Any, str] | None = None) -> Seen:
    """`groups` names tensors and memory after the first that has them; of a `.grad` there is none, and what it was made of is no matter."""
    facts = {
        "dtype": t.dtype,
        "shape": tuple(t.shape),
        "strides": tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1),
        "requires_grad": t.requires_grad,
    }
    if groups is None:
        return Seen(t.detach().clone(), facts)
    facts["version"] = t._version
    facts["view"] = t._is_view()
    facts["offset"] = t.storage_offset()
    facts["same tensor"] = groups.setdefault(id(t), name)
    facts["memory"] = groups.setdefault(("memory", t.untyped_storage().data_ptr()), name)
    facts["leaf"] = is_leaf(t)
    gradient = t.grad if facts["leaf"] is True or facts["leaf"] is False and t.retains_grad else None
    return Seen(t.detach().clone(), facts, None if gradient is None else seen(gradient))


def seen_all(names: dict[str, Any]) -> dict[str, Seen]:
    groups: dict[Any, str] = {}
    found = {name: value for name, value in names.items() if isinstance(value, torch.Tensor)}
    # Names of gradients begin with a "g": which of them share memory follows from how they were computed.
    return {name: seen(value, name, {} if name.startswith("g") else groups) for name, value in found.items()}


class Teller:
    """What a use calls `tell`."""

    def __init__(self, record: Record, names: dict[str, Any]):
        self.record = record
        self.names = names

    def hook(self, t: torch.Tensor, name: str, scale: float = 1.0) -> None:
        """A hook that records the gradient, and scales it if asked to."""

        def hook(g: torch.Tensor) -> Any:
            self.record.events.append(("hook", name, seen(g)))
            return None if scale == 1.0 else g * scale

        _ = t.grad_fn  # torch crashes where the base of a view was written and nobody has looked at the view since
        t.register_hook(hook)

    def hook_after(self, t: torch.Tensor, name: str) -> None:
        """A hook that records the gradient that a leaf has accumulated."""
        t.register_post_accumulate_grad_hook(lambda t: self.record.events.append(("accumulated", name, seen(t.grad))))

    def seen(self, *tensors: torch.Tensor | None) -> None:
        for position, t in enumerate(tensors):
            self.record.events.append(("gradient", position, None if t is None else seen(t)))

    def look(self) -> None:
        self.record.events += [("look", name, what) for name, what in seen_all(self.names).items()]


def function_of(program: Program) -> Callable[..., Any]:
    names = dict(NAMES)
    exec(program.compiled(), names)
    return names["f"]


def run(program: Program, use: int, function: Callable[..., Any], seed: int) -> Record:
    record = Record()
    names: dict[str, Any] = {**NAMES, "f": function}
    names["tell"] = Teller(record, names)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(program.compiled(use), names)
        except Exception as error:  # noqa: BLE001 - compared
            record.raised = error
            record.error = (type(error).__name__, str(error), _line(program, error))
            record.in_backward = any(frame.name in ("backward", "grad") for frame in traceback.extract_tb(error.__traceback__))
        record.tensors = seen_all(names)
    record.generator = torch.get_rng_state()
    return record


def _line(program: Program, error: BaseException) -> int:
    """The innermost line of the program that an error passed."""
    lines = [
        frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(f"<training program {program.seed}")
    ]
    return lines[-1] if lines else 0
