"""Loop IR -> C++: one function a kernel, vectors written out.

    Kernel(axes=(i, j), vector=j, body=(Store(y, 1024*i + j, exp(load(x, 1024*i + j))),))

becomes

    typedef vec<float, 16> F32; ...
    void KERNEL(void *const *p, const i64 *s, i64 begin, i64 end) {
      const float *x = (const float *)p[0]; float *y = (float *)p[1];
      for (i64 u = begin; u < end;) {
        ... i and the range of j that the units [u, end) cover
        for (; j + 16 <= last; j += 16) { const F32 t1 = load<F32>(x + ...); ... store(y + ..., t2); }
        for (; j < last; j += 16) { const int m = ...; ... }
      }
    }

The function does the units [begin, end); units are independent, so the caller may split them over threads.
"""

from __future__ import annotations

import re

from dyncomp.codegen.emit.cpp.accumulators import AccumulatorWriter
from dyncomp.codegen.emit.cpp.block import Block
from dyncomp.codegen.emit.cpp.facts import Facts, initialised_in, stored_in
from dyncomp.codegen.emit.cpp.names import MEMORY, SCALAR, VECTOR, identifier, index_text
from dyncomp.codegen.emit.cpp.statements import Statements
from dyncomp.codegen.emit.cpp.values import CannotVectorise, Values
from dyncomp.codegen.ir.index import Var
from dyncomp.codegen.ir.nodes import Kernel, Loop, Param
from dyncomp.codegen.ir.types import SIZE
from dyncomp.codegen.toolchain.isa import Isa, current_isa
from dyncomp.codegen.toolchain.source import PLACEHOLDER, KernelSource
from dyncomp.errors import InternalError

ROW_ON_STACK = 16 * 1024  # bytes; `row_memory` takes longer rows from the heap
SCRATCH_LIMIT = 512 * 1024  # bytes of stack that one kernel may take


def emit(kernel: Kernel, isa: Isa | None = None) -> KernelSource:
    """The C++ source of a kernel; equal kernels give equal sources, whatever they are called in their
    plans."""
    vector_bytes = (isa or current_isa()).vector_bytes
    try:
        text = _Emitter(kernel, vector_bytes, kernel.vector is not None).write()
    except CannotVectorise as e:
        text = f"// not vectorised: {e}\n" + _Emitter(kernel, vector_bytes, False).write()
    return KernelSource.from_text(text)


class _Emitter:
    def __init__(self, kernel: Kernel, vector_bytes: int, vectorise: bool):
        self.kernel = kernel
        self.facts = Facts(kernel, vector_bytes, vectorise)
        self.accumulators = AccumulatorWriter(self.facts)
        self.values = Values(self.facts, self.accumulators)
        self.accumulators.values = self.values
        self.statements = Statements(self.facts, self.values, self.accumulators)

    def write(self) -> str:
        root = Block(None)
        self._parameters(root)
        if self.facts.vector_is_axis:
            self._vector_units(root)
        else:
            self._units(root)
        note = [f"// {line}" for line in self.kernel.note.splitlines()]
        signature = f'extern "C" __attribute__((visibility("default"))) void {PLACEHOLDER}'
        head = f"{signature}(void *const *p, const i64 *s, i64 begin, i64 end) {{"
        types = self._types("\n".join(root.lines))
        lines = [*note, head, *(f"  {line}" for line in (*types, *root.lines)), "}"]
        return "\n".join(lines) + "\n"

    # -- head

    def _types(self, text: str) -> list[str]:
        """Typedefs of the vectors that the text uses."""
        lanes, width = self.facts.lanes, self.facts.lane_bytes
        used = set(re.findall(r"\b[FIUB]\d*\b", text))
        types = {VECTOR[d]: f"vec<{SCALAR[d]}, {lanes}>" for d in VECTOR}
        types["B"] = "bool" if lanes == 1 else f"vec<i{8 * width}, {lanes}>"
        return [f"typedef {ctype} {name};" for name, ctype in types.items() if name in used]

    def _parameters(self, block: Block) -> None:
        for number, param in enumerate(self.kernel.params):
            block.add(f"{self._pointer(param)} = ({self._pointer_type(param)})p[{number}];")
        for number, size in enumerate(self.kernel.sizes):
            block.add(f"const i64 {identifier(size)} = s[{number}];")
        self._scratch(block)

    def _pointer_type(self, param: Param) -> str:
        const = "const " if param.role == "in" else ""
        return f"{const}{MEMORY[param.dtype]} *"

    def _pointer(self, param: Param) -> str:
        return f"{self._pointer_type(param)}const {identifier(param.name)}"

    def _scratch(self, block: Block) -> None:
        rows = self.facts.lanes * self.facts.copies if self.facts.vector_is_axis else 1
        total = 0
        for scratch in self.kernel.scratch:
            ctype, name = MEMORY[scratch.dtype], identifier(scratch.name)
            if not isinstance(scratch.extent, int):  # as long as the rows of this call
                block.add(f"row_memory<{ctype}> {name}_memory(({index_text(scratch.extent, {})}) * {rows});")
                block.add(f"{ctype} *const {name} = {name}_memory.start;")
                total += ROW_ON_STACK
                continue
            total += scratch.extent * SIZE[scratch.dtype] * rows
            block.add(f"alignas(64) {ctype} {name}[{scratch.extent * rows}];")
        if total > SCRATCH_LIMIT:
            raise InternalError(
                f"a kernel asks for {total} bytes of scratch memory; the limit is {SCRATCH_LIMIT}"
            )

    # -- units

    def _decode(self, block: Block, axes: tuple[Var, ...], source: str) -> None:
        """Splits a row-major position into the variables of axes."""
        if not axes:
            return
        if len(axes) == 1:
            block.add(f"const i64 {identifier(axes[0].name)} = {source};")
            return
        block.add(f"i64 rest = {source};")
        for axis in reversed(axes[1:]):
            extent = f"({index_text(axis.extent, {})})"
            block.add(f"const i64 {identifier(axis.name)} = rest % {extent}; rest /= {extent};")
        block.add(f"const i64 {identifier(axes[0].name)} = rest;")

    def _units(self, root: Block) -> None:
        body = self.kernel.body
        unit = Block(root, frozenset(self.kernel.axes), initialised_in(body), stored_in(body))
        axes = self.kernel.axes
        counts = len(axes) > 1 and not all(axis.extent.is_const for axis in axes[1:])
        if counts:
            self._count_from(root, axes)
            for axis in axes:
                unit.add(f"const i64 {identifier(axis.name)} = at_{identifier(axis.name)};")
        else:
            self._decode(unit, axes, "u")
        self.statements.body(body, unit)
        if counts:
            self._count_on(unit, axes)
        root.nest("for (i64 u = begin; u < end; u++)", unit)

    def _count_from(self, root: Block, axes: tuple[Var, ...]) -> None:
        """Variables that stand at the unit `begin`. Divisions by sizes of the call are slow, so there is one a range and
        not one a unit."""
        root.add("i64 from = begin;")
        for axis in reversed(axes[1:]):
            name, extent = identifier(axis.name), f"({index_text(axis.extent, {})})"
            root.add(f"i64 at_{name} = from % larger({extent}, 1); from /= larger({extent}, 1);")
        root.add(f"i64 at_{identifier(axes[0].name)} = from;")

    def _count_on(self, unit: Block, axes: tuple[Var, ...]) -> None:
        """To the next unit, last axis fastest."""
        line = f"at_{identifier(axes[0].name)}++;"
        for axis in axes[1:]:
            name, extent = identifier(axis.name), index_text(axis.extent, {})
            line = f"if (++at_{name} == ({extent})) {{ at_{name} = 0; {line} }}"
        unit.add(line)

    def _vector_units(self, root: Block) -> None:
        """Units are lanes: a row of units at a time. Ranges of units start and end anywhere."""
        axis, outer = self.kernel.axes[-1], self.kernel.axes[:-1]
        body, name = self.kernel.body, identifier(axis.name)
        loop = Loop(axis, body)
        if not outer:
            root.add(f"i64 {name} = begin;")
            self.statements.vector_passes(loop, root, "end", None)
            return
        row = Block(root, frozenset(outer), initialised_in(body), stored_in(body))
        extent = index_text(axis.extent, {})
        row.add(f"const i64 first = u % ({extent}), last = smaller({extent}, first + (end - u));")
        self._decode(row, outer, f"u / ({extent})")
        row.add("u += last - first;")
        row.add(f"i64 {name} = first;")
        self.statements.vector_passes(loop, row, "last", None)
        root.nest("for (i64 u = begin; u < end;)", row)
