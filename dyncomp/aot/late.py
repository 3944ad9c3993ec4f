"""Numbers that only the running graph gives, and the checks that the graph makes on them.

    n = _local_scalar_dense(x)       late number: the node's value
    y = nonzero(mask)                late number: y.size(0)
    _assert_scalar(Fact(n <= 8))     a check: raises RuntimeError where it fails

In operator arguments a late number is the SymInt of its symbol, as every other number is. `Fact`s keep a relation as it was
before it was learned: by now it simplifies to true.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.shape.symbolic import late_symbol

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

CHECK = torch.ops.aten._assert_scalar.default


@dataclasses.dataclass(frozen=True)
class Fact:
    """An argument of `_assert_scalar`: `truth` is an expression of the env."""

    truth: Any

    def __str__(self) -> str:
        return str(self.truth)


@dataclasses.dataclass(frozen=True)
class LateRead:
    """`node` (of the tape, later of the graph) gives the number: its value, or the size of its tensor at `dim`."""

    node: Any
    what: str
    dim: int


class LateNumbers:
    """What a trace finds out as it goes. `emit(op, args)` appends a node to the tape."""

    def __init__(self, env: ShapeEnv | None, emit: Callable[..., Any]):
        self.env, self._emit = env, emit
        self.reads: dict[Any, LateRead] = {}  # by symbol
        self._checked = 0 if env is None else len(env.asserts)  # those of the front end have nodes in its graph

    def bind_value(self, number: Any, node: Any) -> None:
        self._bind(number, LateRead(node, "value", 0))

    def bind_sizes(self, shape: tuple[Any, ...], node: Any) -> None:
        for dim, size in enumerate(shape):
            self._bind(size, LateRead(node, "size", dim))

    def _bind(self, number: Any, read: LateRead) -> None:
        symbol = late_symbol(number)
        if symbol is not None:
            self.reads.setdefault(symbol, read)

    def check(self) -> None:
        """Appends the checks asked for since the last time, as far as their numbers are on the tape."""
        env = self.env
        while env is not None and self._checked < len(env.asserts):
            asked = env.asserts[self._checked]
            if not all(self._is_there(symbol) for symbol in asked.truth.free_symbols):
                return
            self._checked += 1
            self._emit(CHECK, (Fact(asked.truth), asked.message))

    def _is_there(self, symbol: Any) -> bool:
        assert self.env is not None
        part = self.env.facts.parts.get(symbol)
        return symbol in self.reads or not self.env.is_late(symbol) or part is not None and self._is_there(part[0])

    def finish(self) -> None:
        """No check can be added after this. Raises Unsupported if one speaks of a number that nothing gives."""
        self.check()
        if self.env is not None:
            if self._checked < len(self.env.asserts):
                raise Unsupported(f"a run-time check that {self.env.asserts[self._checked].message}")
            self.env.closed = True
