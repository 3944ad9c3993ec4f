"""Turns a group into a kernel: its program, laid out over loops, with the split into parallel units.

group (rows | columns)  ->  Kernel(axes=(rows,), vector=columns, Init; Loop(columns, Accumulate); ...)
"""

from __future__ import annotations

import dataclasses
import math

import torch

from dyncomp.codegen.ir.index import Index, IndexLike, Var, as_index, coefficient_of, const, hint, minimum, substitute
from dyncomp.codegen.ir.nodes import Accumulate, Init, Kernel, Loop, Scratch, Stmt, Store
from dyncomp.codegen.ir.proofs import as_number, nonnegative, quotient
from dyncomp.codegen.ir.sizes import sizes_of
from dyncomp.codegen.lower.tensor import Tensor
from dyncomp.codegen.schedule.group import Group
from dyncomp.codegen.schedule.layout import Mapping, Space, accesses_of, lay_out
from dyncomp.codegen.schedule.loops import Program, write_program
from dyncomp.codegen.schedule.naming import named_by_place
from dyncomp.codegen.schedule.rewrite import Rewriter
from dyncomp.codegen.schedule.rowcache import Statements, cache_rows

TILE = 64  # rows and columns of a block that is read across
COLUMNS = 2048  # longest block of columns that one unit reduces
FEW_UNITS = 16
LONG_ROW = 4096


@dataclasses.dataclass
class ScheduledKernel:
    """`buffers`: the tensor behind each kernel parameter; None: the index flag. `members`: what it
    computes."""

    kernel: Kernel
    buffers: list[Tensor | None]
    units: IndexLike
    grain: IndexLike
    sizes: tuple[Index, ...] = ()  # what the kernel's sizes are, in its order


def build_kernel(group: Group, inlined: set[Tensor], stored: set[Tensor], grain: int) -> ScheduledKernel:
    """`grain`: fewest elements of work for one thread."""
    program = write_program(group, inlined, stored)
    space = lay_out(group.kept, group.reduced, accesses_of(program))
    nest = _Nest(program, space)
    kernel = nest.kernel()
    units = math.prod([v.extent for v in kernel.axes], start=const(1))
    elements = math.prod([v.extent for v in (*group.kept, *group.reduced)], start=const(1))
    cost = max(group.cost // 8, 1)
    if units.is_const and elements.is_const:
        per_unit = max(elements.const * cost // max(units.const, 1), 1)
        # Loops of plain sizes may still compute with numbers that vary.
        kernel, sizes = named_by_place(kernel) if sizes_of(kernel) else (kernel, ())
        return ScheduledKernel(kernel, program.buffers, units.const, max(grain // per_unit, 1), sizes)
    each = quotient(elements, units)
    if each is None or not nonnegative(
        as_index(each) - 1
    ):  # blocks, the last of them shorter; or rows that may be empty
        each = max(hint(elements) // max(hint(units), 1), 1)
    kernel, sizes = named_by_place(kernel)
    share = as_number(const(grain) // (each * cost))
    share = max(share, 1) if isinstance(share, int) else share
    return ScheduledKernel(kernel, program.buffers, as_number(units), share, sizes)


class _Nest:
    def __init__(self, program: Program, space: Space):
        self.program, self.space = program, space
        self.vector: Var | None = None
        self.tile: Var | None = None
        self.scratch: list[Scratch] = []
        self.change: Mapping = {}  # of the space's variables, by blocks

    def kernel(self) -> Kernel:
        kept, reduced = list(self.space.kept), list(self.space.reduced)
        if reduced:
            column = self._column(kept, reduced)
            axes, body = self._by_columns(kept, reduced, column) if column else self._by_rows(kept, reduced)
        else:
            axes, body = self._pointwise(kept)
        p = self.program
        return Kernel(
            tuple(p.params), tuple(self.scratch), (), tuple(axes), self.vector, self.tile, tuple(body), p.note
        )

    # ---- choices

    def _weight(self, var: Var, stride: int) -> int:
        return sum(a.weight for a in self.space.accesses if coefficient_of(a.index, var) == stride)

    def _column(self, kept: list[Var], reduced: list[Var]) -> Var | None:
        """The kept variable to put lanes along, if more memory is contiguous along it than along the
        reduced ones."""
        if not kept:
            return None
        best = max(kept, key=lambda v: self._weight(v, 1))
        along_kept = self._weight(best, 1)
        return best if along_kept > self._weight(reduced[-1], 1) else None

    def _across(self, vector: Var, others: list[Var]) -> Var | None:
        """A variable along which some access is contiguous while it jumps along `vector`."""
        if hint(vector.extent) < 16:
            return None
        for var in reversed(others):
            if hint(var.extent) < 16:
                continue
            for access in self.space.accesses:
                jumps = coefficient_of(access.index, vector) not in (0, 1, None)
                if access.weight and jumps and coefficient_of(access.index, var) == 1:
                    return var
        return None

    # ---- nests

    def _pointwise(self, kept: list[Var]) -> tuple[list[Var], list[Stmt]]:
        if not kept:
            return [], self._outer(range(len(self.program.stages)))
        self.vector = kept[-1]
        self.tile = self._across(kept[-1], kept[:-1])
        if self.tile is not None:
            return self._tiled(kept)
        if len(kept) == 1:
            return kept, self._outer(range(len(self.program.stages)))
        axes, inner = kept[:-1], kept[-1]
        units = math.prod(hint(v.extent) for v in axes)
        if units < FEW_UNITS and hint(inner.extent) >= LONG_ROW:
            block, inner = self._block(inner, COLUMNS)
            axes = [*axes, block]
            self.vector = inner
        return axes, [Loop(inner, tuple(self._outer(range(len(self.program.stages)))))]

    def _tiled(self, kept: list[Var]) -> tuple[list[Var], list[Stmt]]:
        vector, tile = self.vector, self.tile
        assert vector is not None and tile is not None
        axes = [v for v in kept if v not in (vector, tile)]
        for var in (tile, vector):
            if not var.extent.is_const or var.extent.const > TILE:
                block, inner = self._block(var, TILE)
                axes.append(block)
                if var is vector:
                    self.vector = inner
                else:
                    self.tile = inner
        body = tuple(self._outer(range(len(self.program.stages))))
        assert self.vector is not None and self.tile is not None
        return axes, [Loop(self.tile, (Loop(self.vector, body),))]

    def _by_rows(self, kept: list[Var], reduced: list[Var]) -> tuple[list[Var], list[Stmt]]:
        self.vector = reduced[-1]
        return kept, self._stages(reduced, rows=True)

    def _by_columns(self, kept: list[Var], reduced: list[Var], column: Var) -> tuple[list[Var], list[Stmt]]:
        axes = [v for v in kept if v is not column]
        width = hint(column.extent)
        others = math.prod(hint(v.extent) for v in axes)
        wanted = COLUMNS if others >= FEW_UNITS else max(width // (2 * torch.get_num_threads()), TILE)
        size = min(-(-min(wanted, COLUMNS) // TILE) * TILE, COLUMNS)
        self.vector = column
        if not column.extent.is_const or width > size:
            block, self.vector = self._block(column, size)
            axes.append(block)
        return axes, [Loop(self.vector, tuple(self._stages(reduced, rows=False)))]

    def _block(self, var: Var, size: int) -> tuple[Var, Var]:
        """Cuts a variable into (number of the block, place in the block)."""
        extent = var.extent
        block = Var(f"{var.name}b", (extent + (size - 1)) // size)
        rest: Index = const(size) if extent % size == 0 else minimum(const(size), extent - block * size)
        inner = Var(f"{var.name}i", rest)
        self.change[var] = block * size + inner
        return block, inner

    # ---- statements

    def _mapped(self, index: Index) -> Index:
        return substitute(substitute(index, self.space.mapping), self.change)

    def _rewriter(self) -> Rewriter:
        return Rewriter(self.program.builder, self._mapped)

    def _outer(self, stages: range) -> list[Stmt]:
        """All statements of a kernel without reduced variables."""
        rewriter = self._rewriter()
        return [
            _rebuilt(s, rewriter)
            for n in stages
            for s in (*self.program.stages[n].inner, *self.program.stages[n].outer)
        ]

    def _stages(self, reduced: list[Var], rows: bool) -> list[Stmt]:
        rewriter = self._rewriter()
        inner: list[Statements] = [[_rebuilt(s, rewriter) for s in stage.inner] for stage in self.program.stages]
        if rows:
            inner, self.scratch = cache_rows(self.program.builder, inner, reduced)
        out: list[Stmt] = []
        for stage, statements in zip(self.program.stages, inner, strict=True):
            out.extend(Init(acc) for acc in stage.accs)
            if statements:
                nest: tuple[Stmt, ...] = tuple(statements)
                for var in reversed(reduced):
                    nest = (Loop(var, nest),)
                out.extend(nest)
            out.extend(_rebuilt(s, rewriter) for s in stage.outer)
        return out


def _rebuilt(stmt: Accumulate | Store, rewriter: Rewriter) -> Accumulate | Store:
    value = rewriter.value(stmt.value)
    if isinstance(stmt, Store):
        return Store(stmt.buffer, rewriter.index_of(stmt.index), value, None, stmt.note)
    position = None if stmt.position is None else rewriter.value(stmt.position)
    return Accumulate(stmt.acc, value, position, stmt.note)
