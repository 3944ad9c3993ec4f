"""Accumulators: how they start, grow, are flushed to their second level, and are read.

Three ways to hold one:
    scalar      the reduced loops are no vector loops          float a = 0;
    split       lanes of a vector loop share it (row sums)     F32 a_0 = 0, a_1 = 0;   combined when read
    lane-wise   one a lane (column sums)                       F32 a_0 = 0, a_1 = 0;   read lane by lane

Long float sums have a second level with compensation (two-sum): every few dozen steps the first level
moves there, so that the error does not grow with the length. Where the call brings the length, a condition says whether
that was needed (`deep`), so that short rows pay, and give, what they do where the length is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from dyncomp.codegen.emit.cpp.block import Block
from dyncomp.codegen.emit.cpp.columns import total_of_row
from dyncomp.codegen.emit.cpp.facts import Facts
from dyncomp.codegen.emit.cpp.names import SCALAR, VECTOR, identifier
from dyncomp.codegen.emit.cpp.values import Values
from dyncomp.codegen.ir.nodes import Acc, Accumulate, Position, Result

_LIMITS = {
    "i8": ("-128", "127"),
    "i16": ("-32768", "32767"),
    "i32": ("(-2147483647 - 1)", "2147483647"),
    "i64": ("(-9223372036854775807L - 1)", "9223372036854775807L"),
    "u8": ("0", "255"),
    "f32": ("-__builtin_inff()", "__builtin_inff()"),
    "f64": ("-__builtin_inf()", "__builtin_inf()"),
}
_STEP = {"sum": "v_add", "prod": "v_mul", "max": "v_maximum", "min": "v_minimum"}
_ACROSS = {"sum": "sum_lanes", "prod": "prod_lanes", "max": "max_lanes", "min": "min_lanes"}


def held_type(acc: Acc) -> str:
    """The type in which an accumulator is held: argmax and argmin compare truth values as numbers."""
    return "u8" if acc.dtype == "bool" and acc.op.startswith("arg") else acc.dtype


def neutral(acc: Acc) -> str:
    """Scalar C++ expression of the start value."""
    dtype = held_type(acc)
    if dtype == "bool":
        return "true" if acc.op in ("all", "min", "prod") else "false"
    if acc.op in ("max", "argmax", "min", "argmin"):
        return _LIMITS[dtype][acc.op in ("min", "argmin")]
    return "1" if acc.op == "prod" else "0"


class AccumulatorWriter:
    """Implements the `Accumulators` protocol of `values`."""

    values: Values  # set by the emitter: values and accumulators need each other

    def __init__(self, facts: Facts):
        self.facts = facts
        self.in_rows: frozenset[str] = (
            frozenset()
        )  # accumulators that are held as rows in memory, see `columns`
        self.deep: dict[str, str] = {}  # of a long sum: C++ condition under which its second level is in use

    def vectors(self, acc: Acc) -> bool:
        return acc.name in self.facts.split or acc.name in self.facts.lane_wise

    def names(self, acc: Acc, block: Block) -> list[str]:
        base = identifier(acc.name)
        if not self.vectors(acc):
            return [base]
        count = self.facts.copies if acc.name in self.facts.split else block.copies
        return [f"{base}_{copy}" for copy in range(count)]

    def start(self, acc: Acc, block: Block) -> None:
        block.forget_acc(acc.name)
        vectors = self.vectors(acc)
        ctype = (VECTOR if vectors else SCALAR)[held_type(acc)]
        value = neutral(acc)
        if vectors:
            value = f"splat_mask<B>({value})" if ctype == "B" else f"splat<{ctype}>({value})"
        for name in self.names(acc, block):
            block.add(f"{ctype} {name} = {value};")
            if acc.op.startswith("arg"):
                place = self._place_type(acc)
                block.add(f"{place} {name}_at = {f'splat<{place}>(-1)' if vectors else '-1'};")
            if acc.name in self.facts.long:
                block.add(f"{ctype} {name}_high = {{}}, {name}_low = {{}};")

    def grow(self, stmt: Accumulate, block: Block, copy: int) -> None:
        acc = stmt.acc
        block.forget_acc(acc.name)
        vectors = self.vectors(acc)
        if vectors and not block.in_vector:
            self._grow_outside(stmt, block)
            return
        name = f"{identifier(acc.name)}_{copy}" if vectors else identifier(acc.name)
        value = self._held(acc, self.values.either(stmt.value, block, copy, vectors))
        masked = block.partial and acc.name in self.facts.split
        if acc.op.startswith("arg"):
            assert stmt.position is not None
            where = self._place(stmt, block, copy, vectors)
            used = "lanes_below<B>(m)" if masked else "splat_mask<B>(true)" if vectors else "true"
            sign = 1 if acc.op == "argmax" else -1
            block.add(f"arg_step<{sign}>({name}, {name}_at, {value}, {where}, {used});")
            return
        new = self._step(acc, name, value)
        if masked:
            new = f"sel(lanes_below<B>(m), {new}, {name})"
        block.add(f"{name} = {new};")

    def _place_type(self, acc: Acc) -> str:
        return "i64" if not self.vectors(acc) else "I32" if acc.name in self.facts.narrow else "I64"

    def _place(self, stmt: Accumulate, block: Block, copy: int, vectors: bool) -> str:
        """Where the element stands by which the accumulator grows."""
        assert stmt.position is not None
        if stmt.acc.name in self.facts.narrow and isinstance(stmt.position, Position):
            return self.values.narrow_position(stmt.position, block, copy)
        return self.values.either(stmt.position, block, copy, vectors)

    def _held(self, acc: Acc, value: str) -> str:
        if held_type(acc) == acc.dtype:
            return value
        return f"from_mask<{(VECTOR if self.vectors(acc) else SCALAR)[held_type(acc)]}>({value})"

    def _step(self, acc: Acc, old: str, value: str) -> str:
        if acc.dtype == "bool":
            mask = "B" if self.vectors(acc) else "bool"
            sign = "&" if acc.op in ("all", "min", "prod") else "|"
            return f"({mask})({old} {sign} {value})"
        return f"{_STEP[acc.op]}({old}, {value})"

    def _grow_outside(self, stmt: Accumulate, block: Block) -> None:
        """One scalar step of an accumulator that lanes share: it goes to the first lane."""
        acc, name = stmt.acc, f"{identifier(stmt.acc.name)}_0"
        value = self._held(acc, self.values.vector(stmt.value, block, 0))
        if stmt.position is not None:
            where = self._place(stmt, block, 0, True)
            sign = 1 if acc.op == "argmax" else -1
            block.add(f"arg_step<{sign}>({name}, {name}_at, {value}, {where}, lanes_below<B>(1));")
        else:
            block.add(f"{name} = sel(lanes_below<B>(1), {self._step(acc, name, value)}, {name});")

    def flush(self, acc: Acc, block: Block) -> None:
        for name in self.names(acc, block):
            block.add(f"two_sum({name}_high, {name}_low, {name});")

    def result(self, value: Result, block: Block, copy: int) -> str:
        acc, base = value.acc, identifier(value.acc.name)
        if acc.name in self.in_rows:
            return total_of_row(acc, self.values.lane_base(block, max(copy, 0)))
        lane_wise = acc.name in self.facts.lane_wise
        if lane_wise or acc.name not in self.facts.split:
            text = f"{base}_{max(copy, 0)}" if lane_wise else base
        elif acc.op.startswith("arg"):
            text = self._arg_result(acc, block)
        else:
            return self._combined(acc)
        if value.part == "position":
            return f"{text}_at"
        text = self._total(acc, text)
        if held_type(acc) != acc.dtype:
            return f"truth<{'B' if lane_wise else 'bool'}>({text})"
        return text

    def _total(self, acc: Acc, *copies: str) -> str:
        """The copies of an accumulator as one."""
        if acc.name not in self.facts.long:
            return self._joined(acc, copies)
        total = self._joined(acc, [f"two_sum_total({name}_high, {name}_low, {name})" for name in copies])
        deep = self.deep.get(acc.name)
        return total if deep is None else f"({deep} ? {total} : {self._joined(acc, copies)})"

    def _joined(self, acc: Acc, parts: Sequence[str]) -> str:
        while len(parts) > 1:
            pairs = [self._step(acc, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = [*pairs, *parts[len(pairs) * 2 :]]
        return parts[0]

    def _combined(self, acc: Acc) -> str:
        """All copies, then all lanes."""
        base = identifier(acc.name)
        total = self._total(acc, *[f"{base}_{copy}" for copy in range(self.facts.copies)])
        if acc.dtype == "bool":
            return f"{'all_lanes' if acc.op in ('all', 'min', 'prod') else 'any_lane'}({total})"
        return f"{_ACROSS[acc.op]}({total})"

    def _arg_result(self, acc: Acc, block: Block) -> str:
        base, sign = identifier(acc.name), 1 if acc.op == "argmax" else -1
        ctype = SCALAR[held_type(acc)]
        best = f"{base}_best"
        done = ("arg", acc.name)
        if done not in block.values:
            block.add(f"{ctype} {best} = {neutral(acc)};")
            block.add(f"i64 {best}_at = -1;")
            copies = [f"{base}_{copy}, {base}_{copy}_at" for copy in range(self.facts.copies)]
            for other in copies[1:]:
                block.add(f"arg_join<{sign}>({copies[0]}, {other});")
            block.add(f"arg_lanes<{sign}>({copies[0]}, {best}, {best}_at);")
            block.values[done] = (best, self.facts.acc_uses(acc))
        return best
