"""Shape rules by operation.

A rule takes the operation's arguments with every tensor replaced by its `TensorMeta` and returns the metadata
of the results (one `TensorMeta`, or a tuple/list of them), or None to leave this call to the meta kernel,
which also raises eager's error where the arguments are wrong. Where that kernel lays its results out otherwise
than eager does, a layout corrects it: it takes the kernel's result and the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Rule = Callable[..., Any]
RULES: dict[torch._ops.OpOverload, Rule] = {}
# Operations of eager's elementwise iterator, whose in-place forms refuse memory that overlaps itself.
ELEMENTWISE: set[torch._ops.OpOverload] = set()
LAYOUTS: dict[torch._ops.OpOverload, Rule] = {}


def find_op(name: str) -> torch._ops.OpOverload | None:
    """`"add.Tensor"` or `"relu"` (default overload) in aten, or None where this torch does not have it."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def register(names: str, function: Rule, elementwise: bool = False) -> None:
    """Enters one rule for the space-separated operations; a second rule for an operation is refused."""
    for name in names.split():
        op = find_op(name)
        if op is None:
            continue
        if op in RULES:
            raise ValueError(f"two shape rules for {op}")
        RULES[op] = function
        if elementwise:
            ELEMENTWISE.add(op)


def rule(names: str) -> Callable[[Rule], Rule]:
    """Decorator form of `register`."""

    def enter(function: Rule) -> Rule:
        register(names, function)
        return function

    return enter


def register_layout(names: str, function: Rule, elementwise: bool = False) -> None:
    """Enters one layout for the space-separated operations; a second one for an operation is refused."""
    for op in filter(None, map(find_op, names.split())):
        if op in LAYOUTS:
            raise ValueError(f"two layouts for {op}")
        LAYOUTS[op] = function
        if elementwise:
            ELEMENTWISE.add(op)


def layout(names: str) -> Callable[[Rule], Rule]:
    """Decorator form of `register_layout`."""

    def enter(function: Rule) -> Rule:
        register_layout(names, function)
        return function

    return enter
