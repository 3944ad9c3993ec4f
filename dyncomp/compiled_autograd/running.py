"""The backwards that run in a thread, innermost last."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any


@dataclasses.dataclass
class Running:
    """The backward that runs in this thread: the walk, and by node what it is (see `_exec.backward_walk`) and its tensors; its hooks."""

    steps: Any
    objects: list[Any]
    tensors: list[list[Any]]
    hooks: list[Any]


class _Stack(threading.local):
    def __init__(self) -> None:
        self.running: list[Running] = []


STACK = _Stack()
