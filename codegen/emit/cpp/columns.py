"""Writes wide column sums row by row, with a row of accumulators in the first-level cache.

    for c in 0..2048: total = 0; for r in 0..4096: total += x[r*n + c]; y[c] = total

read column by column touches a few lanes of every row: each a new page. Interchanged, memory is read in
long runs:

    for 64 rows, 8 at a time (then 4, then one): for c: total[c] += (x[r][c] + x[r+1][c]) + ... + (x[r+6][c] + x[r+7][c])
                                                 for c: (high, low)[c] += total[c]; total[c] = 0
    for c: y[c] = high[c] + low[c]

The rows in between are a cascade, so the sum is as accurate as a pairwise one.
"""

from __future__ import annotations

import dataclasses

from dyncomp.codegen.emit.cpp.block import Block
from dyncomp.codegen.emit.cpp.names import SCALAR, VECTOR, identifier
from dyncomp.codegen.ir.nodes import Acc, Accumulate, Init, Loop, Stmt, Store
from dyncomp.codegen.ir.proofs import upper_bound
from dyncomp.codegen.ir.types import SIZE

ROWS_AT_ONCE = (8, 4, 1)
FEWEST_ROWS = 8
ROWS_A_FLUSH = 64
NARROW = 256  # columns; below, a row is short enough for accumulators in registers
CACHE_BYTES = 96 * 1024  # for all rows of accumulators of one loop


@dataclasses.dataclass(frozen=True)
class ColumnSums:
    """The parts of a vector loop that sums columns: `accs` over `rows`, then `after`."""

    accs: tuple[Acc, ...]
    rows: Loop
    sums: tuple[Accumulate, ...]
    after: tuple[Stmt, ...]
    width: int

    @property
    def names(self) -> frozenset[str]:
        return frozenset(acc.name for acc in self.accs)


def column_sums(loop: Loop) -> ColumnSums | None:
    """Recognises a vector loop whose body is: Init*, one loop of float sums, Store*."""
    body = list(loop.body)
    accs = []
    while body and isinstance(body[0], Init):
        accs.append(body.pop(0).acc)  # type: ignore[union-attr]
    if not accs or not body or not isinstance(body[0], Loop):
        return None
    rows, after = body[0], tuple(body[1:])
    sums = tuple(s for s in rows.body if isinstance(s, Accumulate))
    if len(sums) != len(rows.body) or not all(isinstance(s, Store) for s in after):
        return None
    if any(s.acc.op != "sum" or s.acc.dtype not in ("f32", "f64") or s.acc not in accs for s in sums):
        return None
    width, length = upper_bound(loop.var.extent), upper_bound(rows.var.extent)
    if width is None or width < NARROW or (length is not None and length < FEWEST_ROWS):
        return None
    if sum(3 * SIZE[acc.dtype] for acc in accs) * width > CACHE_BYTES:
        return None
    return ColumnSums(tuple(accs), rows, sums, after, width)


def declare_rows(columns: ColumnSums, block: Block, step: int) -> None:
    """Rows of accumulators, zero; padded so that whole vectors may be used to their end."""
    padded = -(-columns.width // step) * step
    for acc in columns.accs:
        name = identifier(acc.name)
        for part in ("row", "high", "low"):
            block.add(f"alignas(64) {SCALAR[acc.dtype]} {name}_{part}[{padded}];")
            block.add(f"__builtin_memset({name}_{part}, 0, sizeof({name}_{part}));")


def add_to_row(acc: Acc, at: str, parts: list[str]) -> str:
    """Statement: the row of sums grows by some vectors, added in pairs."""
    while len(parts) > 1:
        pairs = [f"v_add({a}, {b})" for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    row = f"{identifier(acc.name)}_row + {at}"
    return f"store({row}, v_add(load<{VECTOR[acc.dtype]}>({row}), {parts[0]}));"


def flush_row(acc: Acc, at: str) -> str:
    name, vector = identifier(acc.name), VECTOR[acc.dtype]
    return f"two_sum_row<{vector}>({name}_high + {at}, {name}_low + {at}, {name}_row + {at});"


def total_of_row(acc: Acc, at: str) -> str:
    name, vector = identifier(acc.name), VECTOR[acc.dtype]
    high, low = f"load<{vector}>({name}_high + {at})", f"load<{vector}>({name}_low + {at})"
    return f"two_sum_total({high}, {low}, {vector}{{}})"
