"""The loop IR: what one kernel computes, as immutable data. Validated by `verify`, printed by `printer`,
run by `interpret`.

Grammar (`*` repeats, `?` optional; Index, Var: see `index`; types: see `types`):

    Kernel  = Kernel(params: Param*, scratch: Scratch*, sizes: Size name*, axes: Var*, vector: Var?, tile:
            Var?, body: Stmt*, note)
    Param   = Param(name, dtype, role)                 role: "in" | "out" | "inout" | "flag"
    Scratch = Scratch(name, dtype, extent)             array local to one unit, first written, then read

    Stmt    = Loop(var, body: Stmt*)                   var from 0 to var.extent - 1; extents may name outer
                                                       variables
            | Init(acc)                                accumulator := the neutral element of its operation
            | Accumulate(acc, value, position?)        acc := acc (op) value; `position` for argmax/argmin
                                                       alone
            | Store(buffer, index, value, guard?)      converts to the buffer's type; skipped where guard
                                                       is false

    Value   = Const(value, dtype)                      Python bool, int or float (inf, nan too)
            | Position(index)                          an index as an i64 number
            | Load(buffer, index, dynamic, guard?)     element at index + sum(number * stride for number,
                                                       stride in dynamic)
            | Op(name, args, dtype)                    table in `ops`
            | Cast(value, dtype)                       conversion as ATen does it
            | Checked(value, extent)                   i64 in [-extent, extent) made >= 0; outside: sets
                                                       the flag, gives 0
            | Result(acc, part)                        an accumulator after its loops; part: "value" |
                                                       "position"

    Acc     = Acc(name, op, dtype)                     op: see `ACC_OPS`

Meaning
- The kernel runs `body` once for each unit; unit number u is the row-major position in `axes` (the last
one fastest). Units are
  independent, and may be cut into ranges at any place. No axes: one unit.
- `vector` names the variable along which lanes lie: the last axis, or the variable of one or more loops in
the body. The iterations of a
  loop over it are independent but for accumulators. It is a hint in the sense that running it as a plain
  loop gives the same result (but for the order of floating-point sums).
- `tile` names a second variable, the one next outside `vector`, along which some loads or stores are
contiguous while they are strided along
  `vector`: worth a transposition in registers. Iterations over it are independent as well.
- An accumulator belongs to the iteration in which `Init` stands. `Init` before a loop over `vector` that
accumulates: a row reduction
  (lanes are combined after the loop). `Init` inside the `vector` loop, with the reduced loops inside
  again: a column reduction (one accumulator a lane; the emitter may interchange the loops and keep a row
  of accumulators, since the iterations are independent).
- Sums of floats are taken with blocks or lanes, so that the error grows like that of ATen's cascade, in
the accumulator's type.
- Values form a DAG: nodes are interned by their `Builder`, so the same object is the same value, computed
once where its variables allow.
  A value has no place of its own: it is evaluated where a statement uses it. A `Load` of a buffer that the
  kernel also stores to sees the stores that come earlier in the program order of the same iteration.
- Loads give the compute type of the buffer's type (`types.compute_type`); lanes with a false guard read
nothing and give 0.
- Role "flag": one i64, stays 0 unless a `Checked` value was out of range in a lane in use; then it becomes
1 (any thread may write).
- Float arithmetic is not contracted or reordered, except for sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from dyncomp.codegen.ir.index import Index, IndexLike, Var, as_index
from dyncomp.codegen.ir.ops import OPS
from dyncomp.codegen.ir.types import COMPUTE, STORAGE, compute_type

ROLES = ("in", "out", "inout", "flag")

# Operation of an accumulator -> neutral element (argmax and argmin start without a candidate; max and min
# let NaN win).
ACC_OPS: dict[str, Any] = {
    "sum": 0,
    "prod": 1,
    "max": "lowest",
    "min": "highest",
    "any": False,
    "all": True,
    "argmax": "lowest",
    "argmin": "highest",
}


@dataclasses.dataclass(frozen=True)
class Param:
    """A buffer handed in, in the order of the kernel's pointer array."""

    name: str
    dtype: str
    role: str

    def __post_init__(self) -> None:
        if self.dtype not in STORAGE or self.role not in ROLES:
            raise ValueError(f"bad parameter {self}")


@dataclasses.dataclass(frozen=True)
class Scratch:
    """An array that lives for one unit; `extent` elements, a number or made of sizes alone."""

    name: str
    dtype: str
    extent: IndexLike

    def __post_init__(self) -> None:
        if self.dtype not in STORAGE or (isinstance(self.extent, int) and self.extent < 1):
            raise ValueError(f"bad scratch array {self}")


Buffer = Param | Scratch


@dataclasses.dataclass(frozen=True)
class Acc:
    """An accumulator. For argmax/argmin `dtype` is that of the compared values; the position is i64."""

    name: str
    op: str
    dtype: str

    def __post_init__(self) -> None:
        if self.op not in ACC_OPS or self.dtype not in COMPUTE:
            raise ValueError(f"bad accumulator {self}")


# Values compare by identity: the Builder interns them.
@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Const:
    value: bool | int | float
    dtype: str


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Position:
    index: Index
    dtype: str = "i64"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Load:
    buffer: Buffer
    index: Index
    dynamic: tuple[tuple[Value, Index], ...]
    guard: Value | None
    dtype: str


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Op:
    name: str
    args: tuple[Value, ...]
    dtype: str


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Cast:
    value: Value
    dtype: str


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Checked:
    value: Value
    extent: Index
    flag: Param
    dtype: str = "i64"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Result:
    acc: Acc
    part: str
    dtype: str


Value = Const | Position | Load | Op | Cast | Checked | Result
VALUE_TYPES = (Const, Position, Load, Op, Cast, Checked, Result)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Loop:
    var: Var
    body: tuple[Stmt, ...]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Init:
    acc: Acc


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Accumulate:
    acc: Acc
    value: Value
    position: Value | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Store:
    buffer: Buffer
    index: Index
    value: Value
    guard: Value | None = None
    note: str = ""


Stmt = Loop | Init | Accumulate | Store


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """One kernel. It has no name: its text (see `printer`) is its identity, so that equal kernels are
    compiled once."""

    params: tuple[Param, ...]
    scratch: tuple[Scratch, ...]
    sizes: tuple[str, ...]
    axes: tuple[Var, ...]
    vector: Var | None
    tile: Var | None
    body: tuple[Stmt, ...]
    note: str = ""


def value_children(value: Value) -> tuple[Value, ...]:
    """The values that a value is computed from, guards and dynamic indices included."""
    if isinstance(value, Op):
        return value.args
    if isinstance(value, (Cast, Checked)):
        return (value.value,)
    if isinstance(value, Load):
        inner = tuple(v for v, _ in value.dynamic)
        return inner if value.guard is None else (*inner, value.guard)
    return ()


def stmt_values(stmt: Stmt) -> tuple[Value, ...]:
    """The values that a statement uses directly (not those of the statements inside a loop)."""
    if isinstance(stmt, Store):
        return (stmt.value,) if stmt.guard is None else (stmt.value, stmt.guard)
    if isinstance(stmt, Accumulate):
        return (stmt.value,) if stmt.position is None else (stmt.value, stmt.position)
    return ()


class Builder:
    """Makes interned values: asking twice for the same value gives the same object."""

    def __init__(self) -> None:
        self._values: dict[tuple[Any, ...], Value] = {}

    def _keep(self, key: tuple[Any, ...], make: Any, *fields: Any) -> Any:
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = make(*fields)
        return found

    def values(self) -> Iterable[Value]:
        """All values made so far."""
        return self._values.values()

    def integer(self, number: IndexLike) -> Value:
        """A number as an i64: a constant where it is one."""
        number = as_index(number)
        return self.position(number) if number.terms else self.const(number.const, "i64")

    def const(self, value: bool | int | float, dtype: str) -> Value:
        if isinstance(value, Index):
            value = int(value)
        # repr keeps -0.0 from 0.0, and makes nan equal itself
        return self._keep((Const, repr(value), dtype), Const, value, dtype)

    def position(self, index: IndexLike) -> Value:
        index = as_index(index)
        return self._keep((Position, index), Position, index)

    def load(
        self,
        buffer: Buffer,
        index: IndexLike,
        dynamic: tuple[tuple[Value, Index], ...] = (),
        guard: Value | None = None,
    ) -> Value:
        index = as_index(index)
        key = (Load, buffer.name, index, dynamic, guard)
        return self._keep(key, Load, buffer, index, dynamic, guard, compute_type(buffer.dtype))

    def op(self, name: str, *args: Value) -> Value:
        key = (Op, name, args)
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = Op(name, args, OPS[name].result(tuple(a.dtype for a in args)))
        return found

    def cast(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        return self._keep((Cast, value, dtype), Cast, value, dtype)

    def checked(self, value: Value, extent: IndexLike, flag: Param) -> Value:
        extent = as_index(extent)
        return self._keep((Checked, value, extent, flag), Checked, value, extent, flag)

    def result(self, acc: Acc, part: str = "value") -> Value:
        return self._keep((Result, acc, part), Result, acc, part, "i64" if part == "position" else acc.dtype)
