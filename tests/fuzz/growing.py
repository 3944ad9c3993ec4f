"""Source that grows line by line: a line is kept if eager runs it, so that most of what is compared is results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

_LARGEST = 64  # elements of any tensor
_WIDEST = 1e3  # no number is larger, so that rounding does not tell


class Growing:
    """Lines of source, and the names that they have bound so far in `names` (what eager computed)."""

    def __init__(self, rng: random.Random, names: dict[str, Any], prefix: str):
        self.rng = rng
        self.names = names
        self.prefix = prefix
        self.lines: list[str] = []
        self.refused: str | None = None  # the last line that eager did not run
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def tensors(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> list[str]:
        return [
            name for name, value in self.names.items()
            if isinstance(value, torch.Tensor) and value.is_floating_point() and not name.startswith("_") and wanted(value)
        ]

    def pick(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> str:
        """A tensor, rather one of the last. Raises LookupError where there is none."""
        found = self.tensors(wanted)
        if not found:
            raise LookupError
        return self.rng.choice(found[-4:] if self.rng.random() < 0.5 else found)

    def like(self, name: str) -> str:
        """A tensor that goes with `name`, mostly of its shape."""
        shape = self.names[name].shape
        same = self.tensors(lambda t: t.shape == shape)
        return self.rng.choice(same) if same and self.rng.random() < 0.7 else self.pick()

    def attempt(self, line: str) -> bool:
        """Runs a line, maybe of several rows; keeps it if it ran and what it bound is of moderate size."""
        before = dict(self.names)
        if not self.runs(line):
            return False
        made = [value for name, value in self.names.items() if isinstance(value, torch.Tensor) and value is not before.get(name)]
        if not all(_moderate(value) for value in made):
            self.names.clear()
            self.names.update(before)
            return False
        self.lines.append(line)
        return True

    def runs(self, line: str) -> bool:
        try:
            exec(line, self.names)
        except Exception:  # noqa: BLE001 - what eager refuses is not a program, or is the end of one
            self.refused = line
            return False
        return True

    def grow(self, count: int, make: Callable[[Growing], str]) -> None:
        """Up to `count` more lines of those that `make` proposes."""
        kept = 0
        for _ in range(10 * count):
            if kept == count:
                return
            try:
                line = make(self)
            except LookupError:
                continue
            kept += self.attempt(line)

    def block(self, head: str, count: int, make: Callable[[Growing], str]) -> str:
        """A block of some lines, each of which has run; empty where none did."""
        inner = Growing(self.rng, self.names, self.prefix)
        inner.count = self.count
        found: list[str] = []
        for _ in range(6 * count):
            if len(found) == count:
                break
            try:
                line = make(inner)
            except LookupError:
                continue
            if "\n" not in line and inner.runs(f"{head}\n    {line}"):
                found.append(line)
        self.count = inner.count
        return "\n    ".join([head, *found]) if found else ""


def _moderate(value: torch.Tensor) -> bool:
    if value.numel() > _LARGEST or value.dim() > 4:
        return False
    return not value.numel() or bool((value.detach().abs() < _WIDEST).all())


def choose(rng: random.Random, weighted: list[tuple[int, Any]]) -> Any:
    return rng.choices([what for _, what in weighted], [weight for weight, _ in weighted])[0]
