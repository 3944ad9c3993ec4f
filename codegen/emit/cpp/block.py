"""A lexical block of generated code: its lines, what it binds, and the values already computed in it.

A value is written in the outermost block where its variables, accumulators and memory are settled, just
before the
statement of that block which is being written; so loop invariants leave their loops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable

from dyncomp.codegen.emit.cpp.facts import Uses
from dyncomp.codegen.ir.index import Var


@dataclasses.dataclass
class Block:
    parent: Block | None
    binds: frozenset[Var] = frozenset()
    # what changes while the block runs again and again
    accs: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    in_vector: bool = False
    copies: int = 1
    partial: bool = False
    lines: list[str] = dataclasses.field(default_factory=list)
    values: dict[Hashable, tuple[str, Uses]] = dataclasses.field(default_factory=dict)

    def home(self, uses: Uses) -> Block:
        """The outermost block where something that uses this may be computed."""
        block = self
        while block.parent is not None:
            if block.binds & uses.variables or block.accs & uses.accs or block.stores & uses.buffers:
                break
            block = block.parent
        return block

    def find(self, key: Hashable) -> str | None:
        block: Block | None = self
        while block is not None:
            known = block.values.get(key)
            if known is not None:
                return known[0]
            block = block.parent
        return None

    def forget_buffer(self, name: str) -> None:
        """After a store: what was read from the buffer is stale, here and in all outer blocks."""
        self._forget(lambda uses: name in uses.buffers)

    def forget_acc(self, name: str) -> None:
        self._forget(lambda uses: name in uses.accs)

    def _forget(self, stale: Callable[[Uses], bool]) -> None:
        block: Block | None = self
        while block is not None:
            for key in [k for k, (_, uses) in block.values.items() if stale(uses)]:
                del block.values[key]
            block = block.parent

    def add(self, line: str) -> None:
        self.lines.append(line)

    def nest(self, header: str, inner: Block) -> None:
        """Appends a finished inner block as `header { ... }`."""
        self.lines.append(f"{header} {{".lstrip())
        self.lines.extend("  " + line for line in inner.lines)
        self.lines.append("}")
