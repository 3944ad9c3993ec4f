"""Writes the statements of a kernel: stores, accumulation, loops.

A loop over the vector variable becomes

    i64 v = 0;
    for (; v + 2 * L <= n; v += 2 * L) { ... two vectors ... }
    for (; v < n; v += L) { const int m = min(n - v, L); ... one vector, m lanes in use ... }

The second loop is left out, or handles whole vectors alone, where the extent is known to be a multiple.
"""

from __future__ import annotations

from collections.abc import Callable

from dyncomp.codegen.emit.cpp.accumulators import AccumulatorWriter
from dyncomp.codegen.emit.cpp.block import Block
from dyncomp.codegen.emit.cpp.columns import (
    ROWS_A_FLUSH,
    ROWS_AT_ONCE,
    ColumnSums,
    add_to_row,
    column_sums,
    declare_rows,
    flush_row,
)
from dyncomp.codegen.emit.cpp.facts import Facts, Uses, index_variables, initialised_in, is_scratch, stored_in
from dyncomp.codegen.emit.cpp.names import SCALAR, VECTOR, identifier, index_text
from dyncomp.codegen.emit.cpp.tiles import TileWriter, crossed_accesses, tile_loop
from dyncomp.codegen.emit.cpp.values import CannotVectorise, Stride, Values
from dyncomp.codegen.ir.index import IndexLike, Var
from dyncomp.codegen.ir.nodes import Acc, Accumulate, Init, Loop, Stmt, Store

UNROLLED_COST = 12  # operations up to which two rows of a transposed block are written side by side


class Statements:
    def __init__(self, facts: Facts, values: Values, accumulators: AccumulatorWriter):
        self.facts, self.values, self.accumulators = facts, values, accumulators

    def body(self, body: tuple[Stmt, ...], block: Block) -> None:
        for stmt in body:
            if isinstance(stmt, Init):
                self.accumulators.start(stmt.acc, block)
            elif isinstance(stmt, Accumulate):
                self._accumulate(stmt, block)
            elif isinstance(stmt, Store):
                self._store(stmt, block)
            elif stmt.var == self.facts.vector:
                self._vector_loop(stmt, block)
            elif self._tiled(stmt, block):
                pass
            else:
                self._scalar_loop(stmt, block)

    # -- accumulators and stores

    def _copies(self, block: Block, vectors: bool) -> range:
        return range(block.copies if vectors and block.in_vector else 1)

    def _accumulate(self, stmt: Accumulate, block: Block) -> None:
        if stmt.note:
            block.add(f"// {stmt.note}")
        for copy in self._copies(block, self.accumulators.vectors(stmt.acc)):
            self.accumulators.grow(stmt, block, copy)

    def _store(self, stmt: Store, block: Block) -> None:
        if stmt.note:
            block.add(f"// {stmt.note}")
        facts = self.facts
        lane_scratch = facts.vector_is_axis and is_scratch(stmt.buffer) and block.in_vector
        step = Stride.of(stmt.index, facts.vector).step if block.in_vector else 0
        guard_varies = stmt.guard is not None and facts.varies(stmt.guard, block.in_vector)
        if lane_scratch:
            lines = [self._lane_scratch_store(stmt, block, c) for c in range(block.copies)]
        elif step == 0 and not guard_varies:
            if facts.varies(stmt.value, block.in_vector):
                raise CannotVectorise("lanes that differ are stored to one place")
            lines = [self._scalar_store(stmt, block)]
        elif step == 0:
            raise CannotVectorise("store to one place under a guard that varies")
        else:
            lines = [self._vector_store(stmt, block, c, step) for c in range(block.copies)]
        for line in lines:
            block.add(line)
        block.forget_buffer(stmt.buffer.name)

    def _scalar_store(self, stmt: Store, block: Block) -> str:
        value = self.values.scalar(stmt.value, block)
        at = index_text(stmt.index, {})
        line = f"store({identifier(stmt.buffer.name)} + ({at}), ({SCALAR[stmt.value.dtype]}){value});"
        return line if stmt.guard is None else f"if ({self.values.scalar(stmt.guard, block)}) {line}"

    def _vector_store(self, stmt: Store, block: Block, copy: int, step: IndexLike | None) -> str:
        value = self.values.vector(stmt.value, block, copy)
        pointer, lanes = identifier(stmt.buffer.name), self.values.in_use(block, copy)
        guard, mask = stmt.guard, ""
        if guard is not None and self.facts.varies(guard, True):
            mask = self.values.vector(guard, block, copy)
        place = self.values.tiles.place(stmt.buffer.name, stmt.index) if self.values.tiles else None
        if place is not None:
            return f"store({place}, {value});"
        if step == 1:
            address = f"{pointer} + ({index_text(stmt.index, self.values.names(block, copy))})"
            if mask:
                line = f"store_where({address}, {value}, {mask}, {lanes});"
            elif block.partial:
                line = f"store_part({address}, {value}, {lanes});"
            else:
                line = f"store({address}, {value});"
        else:
            lane = index_text(stmt.index, self.values.names(block, copy, "l"))
            at = f"[&](int l) -> i64 {{ return {lane}; }}"
            if mask:
                line = f"scatter_where({pointer}, {value}, {mask}, {lanes}, {at});"
            else:
                line = f"scatter({pointer}, {value}, {lanes}, {at});"
        if guard is not None and not mask:
            return f"if ({self.values.scalar(guard, block)}) {line}"
        return line

    def _lane_scratch_store(self, stmt: Store, block: Block, copy: int) -> str:
        value = self.values.vector(stmt.value, block, copy)
        at = self.values.lane_scratch_offset(stmt.index, block, copy)
        if stmt.guard is not None:
            raise CannotVectorise("guarded store to a scratch array of a lane")
        return f"store({identifier(stmt.buffer.name)} + {at}, {value});"

    # -- loops

    def _inner(self, parent: Block, loop: Loop, in_vector: bool, copies: int, partial: bool) -> Block:
        return Block(
            parent,
            frozenset({loop.var}),
            initialised_in(loop.body),
            stored_in(loop.body),
            in_vector,
            copies,
            partial,
        )

    def _scalar_loop(self, loop: Loop, block: Block) -> None:
        if block.in_vector and self.facts.vector in index_variables(loop.var.extent):
            raise CannotVectorise("a loop whose length differs by lane")
        name, extent = identifier(loop.var.name), self.extent(loop.var, block)
        flushes = self.facts.flushes(loop)
        if not flushes:
            inner = self._inner(block, loop, block.in_vector, block.copies, block.partial)
            self.body(loop.body, inner)
            block.nest(f"for (i64 {name} = 0; {name} < {extent}; {name}++)", inner)
            return
        steps = self._block_length(loop, min(count for _, count in flushes), extent, block)
        outer = self._inner(block, loop, block.in_vector, block.copies, block.partial)
        outer.add(f"const i64 stop_{name} = smaller({name} + {steps}, {extent});")
        inner = self._inner(outer, loop, block.in_vector, block.copies, block.partial)
        self.body(loop.body, inner)
        outer.nest(f"for (; {name} < stop_{name}; {name}++)", inner)
        self._flush(loop, name, extent, outer)
        block.nest(f"for (i64 {name} = 0; {name} < {extent};)", outer)

    def _flush(self, loop: Loop, name: str, extent: str, chunk: Block) -> None:
        """After a block of a loop that holds long sums; short rows, which are one block, need none."""
        block = Block(chunk, copies=chunk.copies)
        for acc, _ in self.facts.flushes(loop):
            self.accumulators.flush(acc, block)
        if self.facts.flushes_between(loop):
            chunk.nest(f"if ({name} < {extent})", block)
        else:
            chunk.lines.extend(block.lines)

    def _block_length(self, loop: Loop, steps: int, extent: str, block: Block) -> str:
        """After how many iterations long sums are flushed: where the call tells that they are not long, after all."""
        plain = self.facts.plain_iterations(loop)
        if plain is None:
            return str(steps)
        uses = Uses(index_variables(loop.var.extent), frozenset(), frozenset())
        home, key, name = block.home(uses), ("block", loop.var, steps), f"block_{identifier(loop.var.name)}_{steps}"
        if key not in home.values:
            home.add(f"const i64 {name} = {extent} <= {plain} ? {extent} : {steps};")
            home.values[key] = (name, Uses(frozenset(), frozenset(), frozenset()))
        for acc, _ in self.facts.flushes(loop):
            self.accumulators.deep[acc.name] = f"{name} < {extent}"
        return name

    def extent(self, var: Var, block: Block) -> str:
        """The number of iterations: a literal, or a constant of the block."""
        text = index_text(var.extent, {})
        if var.extent.is_const:
            return text
        home = block.home(Uses(index_variables(var.extent), frozenset(), frozenset()))
        known = home.values.get(("extent", var))
        if known is None:
            name = f"n_{identifier(var.name)}"
            home.add(f"const i64 {name} = {text};")
            known = home.values[("extent", var)] = (name, Uses(frozenset(), frozenset(), frozenset()))
        return known[0]

    def _tiled(self, loop: Loop, block: Block) -> bool:
        """Writes a pair of loops in transposed blocks, if that is what it wants."""
        inner = tile_loop(self.facts.kernel, loop) if self.facts.vector is not None else None
        crossed = crossed_accesses(loop, inner) if inner else []
        if inner is None or not crossed:
            return False
        lanes = self.facts.lanes
        writer = TileWriter(loop, inner, crossed, lanes)
        tile, vector = identifier(loop.var.name), identifier(inner.var.name)
        ends = [self.extent(v, block) for v in (loop.var, inner.var)]
        scope = self._transparent(loop, block)
        writer.declare(scope)
        column = self._transparent(loop, scope)
        whole = all(v.extent.is_const and v.extent.const % lanes == 0 for v in (loop.var, inner.var))
        self.values.tiles = writer
        full = self._tile_block(inner, loop, writer, column, partial=False)
        if whole:
            column.lines.extend(full.lines)
        else:
            rest = self._tile_block(inner, loop, writer, column, partial=True)
            column.add(f"const int m = (int)smaller({ends[1]} - {vector}, {lanes});")
            column.add(f"const int rows = (int)smaller({ends[0]} - first_{tile}, {lanes});")
            column.nest(f"if (m == {lanes} && rows == {lanes})", full)
            column.nest("else", rest)
        self.values.tiles = None
        # Blocks follow each other along the tile variable: what is read across is used up in runs of neighbours, and
        # few pages are in use at a time.
        row = self._transparent(loop, scope)
        row.nest(f"for (i64 first_{tile} = 0; first_{tile} < {ends[0]}; first_{tile} += {lanes})", column)
        scope.nest(f"for (i64 {vector} = 0; {vector} < {ends[1]}; {vector} += {lanes})", row)
        block.nest("", scope)
        return True

    def _tile_block(self, inner: Loop, loop: Loop, writer: TileWriter, parent: Block, partial: bool) -> Block:
        block = self._inner(parent, inner, True, 1, partial)
        writer.fill(block, partial)
        tile = identifier(loop.var.name)
        lines = Block(
            block, frozenset({loop.var}), in_vector=True, partial=partial, stores=stored_in(inner.body)
        )
        self.body(inner.body, lines)
        count = "rows" if partial else self.facts.lanes
        if not partial and self.facts.body_cost(inner.body) <= UNROLLED_COST:
            block.add("#pragma GCC unroll 2")
        block.nest(f"for (i64 {tile} = first_{tile}; {tile} < first_{tile} + {count}; {tile}++)", lines)
        writer.spill(block, partial)
        return block

    def _vector_loop(self, loop: Loop, block: Block) -> None:
        columns = column_sums(loop) if loop.var == self.facts.vector else None
        if columns is not None:
            self._column_sums(loop, columns, block)
            return
        name, extent = identifier(loop.var.name), self.extent(loop.var, block)
        known = loop.var.extent.const if loop.var.extent.is_const else None
        # Braces for the counter. The block binds nothing: invariants go out to where they belong.
        scope = self._transparent(loop, block)
        scope.add(f"i64 {name} = 0;")
        flushes = self.facts.flushes(loop)
        if not flushes:
            self.vector_passes(loop, scope, extent, known)
        else:
            step = self.facts.lanes * self.facts.copies
            steps = max(1, min(count for _, count in flushes) // self.facts.copies) * step
            length = self._block_length(loop, steps, extent, block)
            chunk = self._transparent(loop, scope)
            chunk.add(f"const i64 stop_{name} = smaller({name} + {length}, {extent});")
            self.vector_passes(loop, chunk, f"stop_{name}", known)
            self._flush(loop, name, extent, chunk)
            scope.nest(f"for (; {name} < {extent};)", chunk)
        block.nest("", scope)

    def _transparent(self, loop: Loop, block: Block) -> Block:
        return Block(block, frozenset(), initialised_in(loop.body), stored_in(loop.body), copies=block.copies)

    def _column_sums(self, loop: Loop, columns: ColumnSums, block: Block) -> None:
        """Rows outside, columns inside; see `columns`."""
        facts = self.facts
        name, extent = identifier(loop.var.name), self.extent(loop.var, block)
        row, length = identifier(columns.rows.var.name), self.extent(columns.rows.var, block)
        known = loop.var.extent.const if loop.var.extent.is_const else None
        scope = self._transparent(loop, block)
        declare_rows(columns, scope, facts.lanes * facts.copies)

        def across(parent: Block, write: Callable[[Block], None]) -> None:
            inner = self._transparent(loop, parent)
            inner.add(f"i64 {name} = 0;")
            self.vector_passes(loop, inner, extent, known, write)
            parent.nest("", inner)

        def rows(count: int) -> Callable[[Block], None]:
            return lambda inner: self._add_rows(columns, inner, count)

        chunk = self._transparent(loop, scope)
        chunk.add(f"const i64 stop_{row} = smaller(at_{row} + {ROWS_A_FLUSH}, {length});")
        for count in ROWS_AT_ONCE:
            some = self._transparent(loop, chunk)
            across(some, rows(count))
            chunk.nest(f"for (; at_{row} + {count} <= stop_{row}; at_{row} += {count})", some)
        across(chunk, lambda inner: self._each_row(columns, inner, flush_row))
        scope.nest(f"for (i64 at_{row} = 0; at_{row} < {length};)", chunk)
        self.accumulators.in_rows |= columns.names
        across(scope, lambda inner: self.body(columns.after, inner))
        self.accumulators.in_rows -= columns.names
        block.nest("", scope)

    def _each_row(self, columns: ColumnSums, block: Block, write: Callable[[Acc, str], str]) -> None:
        for acc in columns.accs:
            for copy in range(block.copies):
                block.add(write(acc, self.values.lane_base(block, copy)))

    def _add_rows(self, columns: ColumnSums, block: Block, count: int) -> None:
        """Adds `count` rows of values to the rows of accumulators; each row has its own block that binds
        its number."""
        row = columns.rows.var
        parts: dict[tuple[int, int], list[str]] = {}
        for number in range(count):
            inner = self._inner(block, columns.rows, True, block.copies, block.partial)
            inner.add(f"const i64 {identifier(row.name)} = at_{identifier(row.name)} + {number};")
            for which, stmt in enumerate(columns.sums):
                if stmt.note and number == 0:
                    block.add(f"// {stmt.note}")
                for copy in range(block.copies):
                    part = self.values.fresh()
                    block.add(f"{VECTOR[stmt.acc.dtype]} {part};")
                    inner.add(f"{part} = {self.values.vector(stmt.value, inner, copy)};")
                    parts.setdefault((which, copy), []).append(part)
            block.nest("", inner)
        for (which, copy), vectors in parts.items():
            block.add(add_to_row(columns.sums[which].acc, self.values.lane_base(block, copy), vectors))

    def vector_passes(
        self,
        loop: Loop,
        block: Block,
        end: str,
        multiple: int | None,
        custom: Callable[[Block], None] | None = None,
    ) -> None:
        """The loops over whole vectors and over the rest, up to `end`; `custom` fills their bodies in place of the loop's own.

        `multiple` is the extent where it is a number and a range never starts or ends elsewhere; None
        otherwise.
        """
        write = custom or (lambda inner: self.body(loop.body, inner))
        name, lanes, copies = identifier(loop.var.name), self.facts.lanes, self.facts.copies
        step = lanes * copies
        extent = loop.var.extent
        if not extent.is_const or extent.const >= step:
            inner = self._inner(block, loop, True, copies, False)
            write(inner)
            block.nest(f"for (; {name} + {step} <= {end}; {name} += {step})", inner)
        if multiple is not None and multiple % step == 0:
            return
        whole = multiple is not None and multiple % lanes == 0
        at_once = copies if custom is None and self.facts.rest_at_once(loop) else 1
        whole = whole and at_once == 1
        rest = self._inner(block, loop, True, at_once, not whole)
        if at_once > 1:
            for copy in range(copies):
                left = f"larger({end} - {name} - {copy * lanes}, 0)"
                rest.add(f"const int m_{copy} = (int)smaller({left}, {lanes});")
        elif not whole:
            rest.add(f"const int m = (int)smaller({end} - {name}, {lanes});")
        write(rest)
        block.nest(f"for (; {name} < {end}; {name} += {lanes * at_once})", rest)
