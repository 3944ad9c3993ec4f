"""Names the sizes of a kernel by the order in which they occur, so that kernels of the same form are the same text.

graph A: x[s3, s0] summed over s0       graph B: y[s1, s2] summed over s2       ->  both over n0 and n1
"""

from __future__ import annotations

from typing import Any

from dyncomp.codegen.ir.index import Index, Size, Var, as_index, substitute, variables
from dyncomp.codegen.ir.nodes import Accumulate, Builder, Init, Kernel, Loop, Scratch, Stmt, Store
from dyncomp.codegen.ir.proofs import as_number
from dyncomp.codegen.ir.sizes import sizes_of
from dyncomp.codegen.schedule.rewrite import Rewriter


def named_by_place(kernel: Kernel) -> tuple[Kernel, tuple[Index, ...]]:
    """The kernel with sizes called n0, n1...; what each of them is."""
    found = sizes_of(kernel)
    names = {old: Size(f"n{number}", old.low, old.hint) for number, old in enumerate(found)}
    return _Renamer(kernel, names).run(), tuple([as_index(size) for size in found])


class _Renamer:
    def __init__(self, kernel: Kernel, names: dict[Size, Size]):
        self.kernel = kernel
        self.change: dict[Var | Size, Index] = {old: as_index(new) for old, new in names.items()}
        self.sizes = tuple([new.name for new in names.values()])
        self.scratch: dict[str, Scratch] = {}
        self.rewriter = Rewriter(Builder(), self._index, buffer=self._buffer)

    def run(self) -> Kernel:
        kernel = self.kernel
        for scratch in kernel.scratch:
            extent = as_number(self._index(as_index(scratch.extent)))
            self.scratch[scratch.name] = Scratch(scratch.name, scratch.dtype, extent)
        axes = tuple([self._var(v) for v in kernel.axes])
        body = self._body(kernel.body)
        vector, tile = (None if v is None else self._var(v) for v in (kernel.vector, kernel.tile))
        scratches = tuple(self.scratch.values())
        return Kernel(kernel.params, scratches, self.sizes, axes, vector, tile, body, kernel.note)

    def _var(self, var: Var) -> Var:
        known = self.change.get(var)
        if known is None:
            new = Var(var.name, self._index(var.extent))
            self.change[var] = as_index(new)
            return new
        atom = known.terms[0][0]
        assert isinstance(atom, Var)
        return atom

    def _index(self, index: Index) -> Index:
        for var in variables(index):
            self._var(var)
        return substitute(index, self.change)

    def _buffer(self, buffer: Any) -> Any:
        return self.scratch.get(buffer.name, buffer)

    def _body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple([self._stmt(stmt) for stmt in body])

    def _stmt(self, stmt: Stmt) -> Stmt:
        value = self.rewriter.value
        if isinstance(stmt, Loop):
            return Loop(self._var(stmt.var), self._body(stmt.body))
        if isinstance(stmt, Init):
            return stmt
        if isinstance(stmt, Accumulate):
            position = None if stmt.position is None else value(stmt.position)
            return Accumulate(stmt.acc, value(stmt.value), position, stmt.note)
        guard = None if stmt.guard is None else value(stmt.guard)
        buffer, index = self._buffer(stmt.buffer), self.rewriter.index_of(stmt.index)
        return Store(buffer, index, value(stmt.value), guard, stmt.note)
