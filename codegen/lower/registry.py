"""Which function lowers which ATen op. Imports nothing of the lowerings: the package's `__init__` imports
them.

    @lowering("aten.relu.default")
    def relu(lx, node, x): ...

A lowering gets the graph builder `lx` (`builder.Lowering`), the fx node (for `meta["val"]`) and the node's
arguments with tensors lowered. It returns a lowered tensor, a tuple of them, or None: this case is left to
ATen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Lower = Callable[..., Any]
LOWERINGS: dict[str, Lower] = {}


def register(name: str, function: Lower) -> None:
    if name in LOWERINGS:
        raise ValueError(f"{name} has two lowerings: {LOWERINGS[name].__name__} and {function.__name__}")
    LOWERINGS[name] = function


def lowering(*names: str) -> Callable[[Lower], Lower]:
    """Registers a function for these overloads, written `aten.add.Tensor`."""

    def keep(function: Lower) -> Lower:
        for name in names:
            register(name, function)
        return function

    return keep
