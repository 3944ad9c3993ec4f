"""Checks a kernel against the grammar and the rules in `nodes`; the error shows the printed kernel with
the place.

Checked: names are unique; every variable is bound where it is used; accumulators are initialised before
they are added to and read after that; stores go to buffers that may be written; guards are bool; types
fit; `vector` and `tile` exist and loops do not nest in themselves; scratch arrays are indexed within their
extent where the ranges tell.
"""

from __future__ import annotations

from dyncomp.codegen.ir import index as ix
from dyncomp.codegen.ir.nodes import (
    Accumulate,
    Checked,
    Init,
    Kernel,
    Load,
    Loop,
    Op,
    Param,
    Position,
    Result,
    Scratch,
    Stmt,
    Store,
    Value,
    stmt_values,
    value_children,
)
from dyncomp.codegen.ir.ops import OPS
from dyncomp.codegen.ir.printer import print_kernel
from dyncomp.codegen.ir.types import compute_type
from dyncomp.errors import InternalError


def verify(kernel: Kernel) -> None:
    """Raises InternalError that names the rule broken and shows the kernel."""
    try:
        _Verifier(kernel).run()
    except (_Broken, TypeError) as e:
        raise InternalError(f"loop IR is not well formed: {e}\n{print_kernel(kernel)}") from e


class _Broken(Exception):
    pass


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise _Broken(text)


class _Verifier:
    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.buffers = {b.name: b for b in (*kernel.params, *kernel.scratch)}
        self.loops: set[ix.Var] = set(kernel.axes)

    def run(self) -> None:
        kernel = self.kernel
        names = [b.name for b in (*kernel.params, *kernel.scratch)] + [v.name for v in kernel.axes] + list(kernel.sizes)
        _require(len(set(names)) == len(names), f"names are not unique: {names}")
        for axis in kernel.axes:
            _require(not ix.variables(axis.extent), f"extent of axis {axis} depends on a variable")
        self._block(kernel.body, frozenset(kernel.axes), set())
        if kernel.vector is not None:
            _require(kernel.vector in self.loops, f"no loop over the vector variable {kernel.vector}")
            inner_axes = kernel.axes[:-1]
            _require(kernel.vector not in inner_axes, "the vector variable is an axis, but not the last one")
        _require(kernel.tile is None or kernel.tile in self.loops, f"no loop over the tile variable {kernel.tile}")

    def _block(self, body: tuple[Stmt, ...], bound: frozenset[ix.Var], live: set[str]) -> None:
        for stmt in body:
            if isinstance(stmt, Loop):
                _require(stmt.var not in bound, f"loop over {stmt.var} inside itself")
                self._index(stmt.var.extent, bound, f"extent of {stmt.var}")
                self.loops.add(stmt.var)
                self._block(stmt.body, bound | {stmt.var}, set(live))
                continue
            seen: set[int] = set()
            for value in stmt_values(stmt):
                self._value(value, bound, live, seen)
            if isinstance(stmt, Init):
                live.add(stmt.acc.name)
            elif isinstance(stmt, Accumulate):
                self._accumulate(stmt, live)
            elif isinstance(stmt, Store):
                self._store(stmt, bound)

    def _accumulate(self, stmt: Accumulate, live: set[str]) -> None:
        acc = stmt.acc
        _require(acc.name in live, f"{acc.name} is added to before Init")
        _require(stmt.value.dtype == acc.dtype, f"{acc.name} takes {acc.dtype}, got {stmt.value.dtype}")
        _require(
            (stmt.position is not None) == acc.op.startswith("arg"),
            f"{acc.name}: position is for argmax/argmin",
        )
        _require(stmt.position is None or stmt.position.dtype == "i64", f"{acc.name}: position is not i64")

    def _store(self, stmt: Store, bound: frozenset[ix.Var]) -> None:
        self._buffer(stmt.buffer)
        writable = isinstance(stmt.buffer, Scratch) or stmt.buffer.role in ("out", "inout")
        _require(writable, f"store to {stmt.buffer.name}, which is only read")
        self._index(stmt.index, bound, f"store to {stmt.buffer.name}")
        expected = compute_type(stmt.buffer.dtype)
        _require(stmt.value.dtype == expected, f"store of {stmt.value.dtype} to {stmt.buffer}")
        _require(stmt.guard is None or stmt.guard.dtype == "bool", "guard is not bool")
        self._range(stmt.buffer, stmt.index)

    def _value(self, root: Value, bound: frozenset[ix.Var], live: set[str], seen: set[int]) -> None:
        stack = [root]
        while stack:
            value = stack.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            stack.extend(value_children(value))
            if isinstance(value, Op):
                result = OPS[value.name].result(tuple(a.dtype for a in value.args))
                _require(result == value.dtype, f"{value.name} gives {result}, not {value.dtype}")
            elif isinstance(value, Load):
                self._load(value, bound)
            elif isinstance(value, Position):
                self._index(value.index, bound, "position")
            elif isinstance(value, Result):
                _require(value.acc.name in live, f"{value.acc.name} is read before Init, or out of its iteration")
            elif isinstance(value, Checked):
                _require(value.flag in self.kernel.params and value.flag.role == "flag", "no flag parameter")

    def _load(self, value: Load, bound: frozenset[ix.Var]) -> None:
        self._buffer(value.buffer)
        self._index(value.index, bound, f"load of {value.buffer.name}")
        for number, stride in value.dynamic:
            _require(number.dtype == "i64", "dynamic index is not i64")
            self._index(stride, bound, f"stride in {value.buffer.name}")
        _require(value.guard is None or value.guard.dtype == "bool", "guard is not bool")
        if not value.dynamic and value.guard is None:
            self._range(value.buffer, value.index)

    def _buffer(self, buffer: Param | Scratch) -> None:
        _require(self.buffers.get(buffer.name) == buffer, f"unknown buffer {buffer}")

    def _index(self, index: ix.Index, bound: frozenset[ix.Var], where: str) -> None:
        for atom in ix.atoms(index):
            if isinstance(atom, ix.Var):
                _require(atom in bound, f"{where}: variable {atom} is not bound here")
            elif isinstance(atom, ix.Size):
                _require(atom.name in self.kernel.sizes, f"{where}: unknown size {atom}")

    def _range(self, buffer: Param | Scratch, index: ix.Index) -> None:
        span = ix.bounds(index)
        if span is not None and isinstance(buffer, Scratch) and isinstance(buffer.extent, int):
            _require(0 <= span[0] and span[1] < buffer.extent, f"{index} leaves {buffer}")
