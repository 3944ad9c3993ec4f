"""Writes a pair of loops (tile variable outside, vector variable inside) in square blocks that are
transposed in registers.

    for t: for v: y[t*n + v] = x[t*n + v] + z[v*n + t]

z is contiguous along t alone, so a lane-by-lane read of it would touch one cache line a lane. Instead, for
each block of
L x L iterations (L lanes):

    alignas(64) float tile_0[L * L];
    transpose<L>(z + (v*n + t0), n, tile_0, L);            row i now holds the lanes of t = t0 + i
    for (t = t0; t < t0 + L; t++) { ... load<F32>(tile_0 + (t - t0) * L) ... }

Stores that are contiguous along t alone go the other way round. Blocks at the edges use the lanes that exist.
"""

from __future__ import annotations

import dataclasses

from dyncomp.codegen.emit.cpp.block import Block
from dyncomp.codegen.emit.cpp.facts import all_statements, all_values, is_scratch, stored_in
from dyncomp.codegen.emit.cpp.names import MEMORY, identifier, index_text
from dyncomp.codegen.emit.cpp.values import Stride
from dyncomp.codegen.ir.index import Index, IndexLike, Var, as_index
from dyncomp.codegen.ir.nodes import Buffer, Kernel, Load, Loop, Store


@dataclasses.dataclass(frozen=True)
class Crossed:
    """An access that is contiguous along the tile variable and jumps by `stride` along the vector
    variable."""

    buffer: Buffer
    index: Index
    stride: IndexLike
    array: str
    is_store: bool


def tile_loop(kernel: Kernel, loop: Loop) -> Loop | None:
    """The vector loop inside a loop over the tile variable, if the pair can be written in blocks."""
    if kernel.tile is None or loop.var != kernel.tile or len(loop.body) != 1:
        return None
    inner = loop.body[0]
    if not isinstance(inner, Loop) or inner.var != kernel.vector:
        return None
    if not all(isinstance(s, Store) and not is_scratch(s.buffer) for s in inner.body):
        return None
    return inner


def crossed_accesses(loop: Loop, inner: Loop) -> list[Crossed]:
    """Loads and stores to transpose, each address once."""
    found: dict[tuple[str, Index], Crossed] = {}
    stored = stored_in(inner.body)

    def consider(buffer: Buffer, index: Index, is_store: bool) -> None:
        along = Stride.of(index, inner.var).step
        if along in (None, 0, 1) or Stride.of(index, loop.var).step != 1:
            return
        assert along is not None
        key = (buffer.name, index)
        if key not in found:
            found[key] = Crossed(buffer, index, along, f"tile_{len(found)}", is_store)

    for value in all_values(inner.body, set()):
        plain = isinstance(value, Load) and not value.dynamic and value.guard is None
        if plain and value.buffer.name not in stored:  # type: ignore[union-attr]
            consider(value.buffer, value.index, False)  # type: ignore[union-attr]
    stores = [s for s in all_statements(inner.body) if isinstance(s, Store)]
    for stmt in stores:
        if stmt.guard is None and sum(s.buffer.name == stmt.buffer.name for s in stores) == 1:
            consider(stmt.buffer, stmt.index, True)
    return list(found.values())


class TileWriter:
    """Headers and footers of the blocks; the statements themselves are written by `Statements`."""

    def __init__(self, loop: Loop, inner: Loop, crossed: list[Crossed], lanes: int):
        self.tile, self.vector, self.crossed, self.lanes = loop.var, inner.var, crossed, lanes

    def declare(self, block: Block) -> None:
        size = self.lanes * self.lanes
        for access in self.crossed:
            block.add(f"alignas(64) {MEMORY[access.buffer.dtype]} {access.array}[{size}];")

    def fill(self, block: Block, partial: bool) -> None:
        """Transposes what the block reads."""
        for access in self.crossed:
            if not access.is_store:
                memory = f"{self._address(access)}, {index_text(as_index(access.stride), {})}"
                self._transpose(block, memory, f"{access.array}, {self.lanes}", "m, rows" if partial else "")

    def spill(self, block: Block, partial: bool) -> None:
        """Transposes what the block wrote, back to its place."""
        for access in self.crossed:
            if access.is_store:
                memory = f"{self._address(access)}, {index_text(as_index(access.stride), {})}"
                self._transpose(block, f"{access.array}, {self.lanes}", memory, "rows, m" if partial else "")

    def _transpose(self, block: Block, source: str, target: str, size: str) -> None:
        if size:
            block.add(f"transpose_part({source}, {target}, {size});")
        else:
            block.add(f"transpose<{self.lanes}>({source}, {target});")

    def place(self, name: str, index: Index) -> str | None:
        """Where a transposed access finds its lanes, as an address."""
        for access in self.crossed:
            if access.buffer.name == name and access.index == index:
                tile = identifier(self.tile.name)
                return f"{access.array} + ({tile} - first_{tile}) * {self.lanes}"
        return None

    def _address(self, access: Crossed) -> str:
        names: dict[Var, str] = {self.tile: f"first_{identifier(self.tile.name)}"}
        return f"{identifier(access.buffer.name)} + ({index_text(access.index, names)})"
