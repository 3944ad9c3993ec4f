"""Writes values of the loop IR as C++ definitions in the block where they belong.

    t4 = add(t2, t3), varying along the vector variable  ->  const F32 t4 = v_add(t2, t3);
    the same, equal for all lanes                        ->  const float t4 = v_add(t2, t3);   further out

`scalar(value)` and `vector(value, copy)` return the C++ expression of a value that stands in the current
block.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from dyncomp.codegen.emit.cpp.block import Block
from dyncomp.codegen.emit.cpp.facts import Facts, children_first, is_scratch
from dyncomp.codegen.emit.cpp.names import MEMORY, SCALAR, VECTOR, constant, identifier, index_text
from dyncomp.codegen.emit.cpp.positions import compared_position, mask_text
from dyncomp.codegen.ir.index import Index, IndexLike, Var, as_index, coefficient_of, runs_by_one, variables
from dyncomp.codegen.ir.nodes import Buffer, Cast, Checked, Const, Load, Op, Position, Result, Value
from dyncomp.codegen.ir.proofs import as_number

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Truth values: comparisons and extrema as logic.
LOGIC = {
    "eq": "mask_not({0} ^ {1})",
    "ne": "{0} ^ {1}",
    "lt": "mask_not({0}) & {1}",
    "le": "mask_not({0}) | {1}",
    "gt": "{0} & mask_not({1})",
    "ge": "{0} | mask_not({1})",
    "maximum": "{0} | {1}",
    "minimum": "{0} & {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "mask_not({0})",
}
LONG = 50  # operations that are followed down at once: each takes some frames of Python's stack
TRUTHS = {"isnan", "isinf", "signbit"}


class CannotVectorise(Exception):
    """The kernel has a form that has no vector code; it is emitted as scalar code."""


class Accumulators(Protocol):
    """What values need of the accumulators: the expression of a finished one."""

    def result(self, value: Result, block: Block, copy: int) -> str: ...


class TilePlaces(Protocol):
    """What values need of transposed blocks: where an access finds its lanes."""

    def place(self, name: str, index: Index) -> str | None: ...


@dataclasses.dataclass(frozen=True)
class Stride:
    """How an index moves along the lanes: by the same step everywhere (a number, or one made of sizes and outer
    variables), or in no simple way."""

    step: IndexLike | None

    @staticmethod
    def of(index: Index, vector: Var | None) -> Stride:
        if vector is None or vector not in variables(index):
            return Stride(0)
        step = coefficient_of(index, vector)
        return Stride(None if step is None else as_number(step))


class Values:
    def __init__(self, facts: Facts, accumulators: Accumulators):
        self.facts = facts
        self.accumulators = accumulators
        self.tiles: TilePlaces | None = None  # set while blocks of a tiled loop are written
        self._count = 0
        self._defines_parts = False

    def fresh(self) -> str:
        self._count += 1
        return f"t{self._count}"

    # -- entry points

    def scalar(self, value: Value, block: Block) -> str:
        """A value that is equal for all lanes."""
        if isinstance(value, Const):
            return constant(value.value, value.dtype)
        return self._defined(value, block, copy=-1, varying=False)

    def vector(self, value: Value, block: Block, copy: int) -> str:
        """Lanes of a value; equal ones are spread."""
        if self.facts.varies(value, block.in_vector):
            return self._defined(value, block, copy, varying=True)
        name = VECTOR[value.dtype]
        if isinstance(value, Const):
            return self._spread(name, value.dtype, constant(value.value, value.dtype))
        uses = self.facts.uses(value)
        key = (id(value), -1, True)
        known = block.find(key)
        if known is None:
            scalar = self.scalar(value, block)
            home = block.home(uses)
            known = self.fresh()
            home.add(f"const {name} {known} = {self._spread(name, value.dtype, scalar)};")
            home.values[key] = (known, uses)
        return known

    def either(self, value: Value, block: Block, copy: int, varying: bool) -> str:
        return self.vector(value, block, copy) if varying else self.scalar(value, block)

    # -- definitions

    def _spread(self, name: str, dtype: str, scalar: str) -> str:
        return f"splat_mask<B>({scalar})" if dtype == "bool" else f"splat<{name}>({scalar})"

    def _defined(self, value: Value, block: Block, copy: int, varying: bool) -> str:
        key = (id(value), copy, varying)
        known = block.find(key)
        if known is not None:
            return known
        uses = self.facts.uses(value)
        if uses.depth > LONG and not self._defines_parts:
            self._define_parts(value, block, copy)
        home = block.home(uses)
        text = self._text(value, home, copy, varying)
        name = self.fresh()
        ctype = VECTOR[value.dtype] if varying else SCALAR[value.dtype]
        home.add(f"const {ctype} {name} = {text};")
        home.values[key] = (name, uses)
        return name

    def _define_parts(self, value: Value, block: Block, copy: int) -> None:
        """Defines what stands at some depths of a long chain, innermost first, so that none is followed down all the way at once."""
        self._defines_parts = True
        try:
            for part in children_first(value, ()):
                if self.facts.uses(part).depth % LONG == 0:
                    self.either(part, block, max(copy, 0), self.facts.varies(part, block.in_vector))
        finally:
            self._defines_parts = False

    def _text(self, value: Value, block: Block, copy: int, varying: bool) -> str:
        if isinstance(value, Op):
            return self._op(value, block, copy, varying)
        if isinstance(value, Cast):
            return self._cast(value, block, copy, varying)
        if isinstance(value, Load):
            return self._load(value, block, copy, varying)
        if isinstance(value, Position):
            return self._position(value.index, block, copy, varying)
        if isinstance(value, Checked):
            lanes = self.in_use(block, copy) if varying else "1"
            inner = self.either(value.value, block, copy, varying)
            extent = index_text(value.extent, {})
            return f"checked({inner}, {extent}, {lanes}, {identifier(value.flag.name)})"
        if isinstance(value, Result):
            return self.accumulators.result(value, block, copy)
        raise TypeError(f"not a value: {value!r}")

    def _op(self, value: Op, block: Block, copy: int, varying: bool) -> str:
        found = compared_position(value, self.facts) if varying else None
        if found is not None:
            base = index_text(found[1].index, self.names(block, copy))
            return mask_text(*found, base, self.scalar(found[2], block))
        args = [self.either(a, block, copy, varying) for a in value.args]
        mask = "B" if varying else "bool"
        if value.name == "where":
            return f"sel({', '.join(args)})"
        if value.name == "fma":
            return f"fma_({', '.join(args)})"
        if value.args[0].dtype == "bool":
            return f"({mask})({LOGIC[value.name].format(*args)})"
        if value.name in COMPARISONS:
            return f"as_mask<{mask}>({args[0]} {COMPARISONS[value.name]} {args[1]})"
        call = f"v_{value.name}({', '.join(args)})"
        return f"as_mask<{mask}>({call})" if value.name in TRUTHS else call

    def _cast(self, value: Cast, block: Block, copy: int, varying: bool) -> str:
        inner = self.either(value.value, block, copy, varying)
        target = VECTOR[value.dtype] if varying else SCALAR[value.dtype]
        if value.value.dtype == "bool":
            return f"from_mask<{target}>({inner})"
        if value.dtype == "bool":
            return f"truth<{target}>({inner})"
        return f"convert<{target}>({inner})"

    # -- addresses

    def names(self, block: Block, copy: int, lane: str = "") -> dict[Var, str]:
        """How the vector variable is written at a copy (and a lane)."""
        vector = self.facts.vector
        if vector is None or not block.in_vector:
            return {}
        base = identifier(vector.name)
        offset = copy * self.facts.lanes
        text = f"{base} + {offset}" if offset > 0 else base
        if lane:
            return {vector: f"({text} + {lane})"}
        return {vector: f"({text})" if offset > 0 else base}

    def lane_base(self, block: Block, copy: int) -> str:
        """The vector variable's value in the first lane of a copy."""
        vector = self.facts.vector
        assert vector is not None
        return self.names(block, copy)[vector]

    def in_use(self, block: Block, copy: int) -> str:
        """Number of lanes in use."""
        return str(self.facts.lanes) if not block.partial else "m" if block.copies == 1 else f"m_{copy}"

    def narrow_position(self, position: Position, block: Block, copy: int) -> str:
        """A position below 2^31 in lanes of 32 bits."""
        return self._position(position.index, block, copy, varying=True, lanes="I32")

    def _position(self, index: Index, block: Block, copy: int, varying: bool, lanes: str = "I64") -> str:
        if not varying:
            return f"(i64)({index_text(index, self.names(block, 0))})"
        stride = Stride.of(index, self.facts.vector)
        if stride.step is None:
            text = index_text(index, self.names(block, copy, "l"))
            return f"lanes_of<{lanes}>([&](int l) -> i64 {{ return {text}; }})"
        base = index_text(index, self.names(block, copy))
        step = "" if stride.step == 1 else f" * ({index_text(as_index(stride.step), {})})"
        return f"splat<{lanes}>({base}) + iota<{lanes}>(){step}"

    def _load(self, value: Load, block: Block, copy: int, varying: bool) -> str:
        pointer = identifier(value.buffer.name)
        dtype = value.dtype
        if not varying:
            at = self._offset(value, block, 0, "", varying_dynamic=False)
            text = f"load<{SCALAR[dtype]}>({pointer} + ({at}))"
            if value.guard is None:
                return text
            return f"({self.scalar(value.guard, block)} ? {text} : ({SCALAR[dtype]})0)"
        return self._vector_load(value, block, copy, pointer)

    def _vector_load(self, value: Load, block: Block, copy: int, pointer: str) -> str:
        name, lanes = VECTOR[value.dtype], self.in_use(block, copy)
        guard = value.guard
        place = self.tiles.place(value.buffer.name, value.index) if self.tiles else None
        if place is not None:
            return f"load<{name}>({place})"
        lane_guard = guard is not None and self.facts.varies(guard, True)
        if self.facts.vector_is_axis and is_scratch(value.buffer):
            text = self._lane_scratch_load(value, block, copy, pointer)
        else:
            loose = any(
                self.facts.varies(n, True) or Stride.of(s, self.facts.vector).step != 0
                for n, s in value.dynamic
            )
            step = None if loose else Stride.of(value.index, self.facts.vector).step
            if step == 0:  # only the guard varies
                at = self._offset(value, block, copy, "", varying_dynamic=False)
                zero = f"{name}{{}}"
                assert guard is not None
                mask = self.vector(guard, block, copy)
                # the element may be out of bounds where no lane wants it
                spread = self._spread(name, value.dtype, f"load<{SCALAR[value.dtype]}>({pointer} + ({at}))")
                used = f"({mask} & lanes_below<B>({lanes}))" if block.partial else mask
                return f"(any_lane((B){used}) ? sel({mask}, {spread}, {zero}) : {zero})"
            if step == 1 or (step == 2 and not block.partial and not lane_guard):
                at = self._offset(value, block, copy, "", varying_dynamic=False)
                text = self._strided(name, f"{pointer} + ({at})", step, block, lane_guard, guard, copy)
            elif step == -1 and not block.partial and not lane_guard:
                at = self._offset(value, block, copy, "", varying_dynamic=False)
                text = f"load_backwards<{name}>({pointer} + ({at}))"
            else:
                at = self._offset(value, block, copy, "l", varying_dynamic=True)
                body = f"[&](int l) -> i64 {{ return {at}; }}"
                assert self.facts.vector is not None
                how = "load_run" if not loose and runs_by_one(value.index, self.facts.vector) else "gather"
                if lane_guard and guard is not None:
                    mask = self.vector(guard, block, copy)
                    text = f"{how}_where<{name}>({pointer}, {mask}, {lanes}, {body})"
                else:
                    text = f"{how}<{name}>({pointer}, {lanes}, {body})"
        if guard is None or lane_guard:
            return text
        return f"({self.scalar(guard, block)} ? {text} : {name}{{}})"

    def _strided(
        self,
        name: str,
        address: str,
        step: IndexLike,
        block: Block,
        lane_guard: bool,
        guard: Value | None,
        copy: int,
    ) -> str:
        if lane_guard and guard is not None:
            return f"load_where<{name}>({address}, {self.vector(guard, block, copy)}, {self.in_use(block, copy)})"
        if step == 2:
            return f"load_even<{name}>({address})"
        return f"load_part<{name}>({address}, {self.in_use(block, copy)})" if block.partial else f"load<{name}>({address})"

    def _offset(self, value: Load, block: Block, copy: int, lane: str, varying_dynamic: bool) -> str:
        """Element offset of a load; with `lane`, that of one lane."""
        names = self.names(block, copy, lane)
        text = index_text(value.index, names)
        for number, stride in value.dynamic:
            if varying_dynamic and self.facts.varies(number, block.in_vector):
                factor = f"lane({self.vector(number, block, copy)}, {lane})"
            else:
                factor = self.scalar(number, block)
            text += f" + {factor} * ({index_text(stride, names)})"
        return text

    def _lane_scratch_load(self, value: Load, block: Block, copy: int, pointer: str) -> str:
        at = self.lane_scratch_offset(value.index, block, copy)
        if value.dynamic:
            raise CannotVectorise("dynamic index into a scratch array of a lane")
        return f"load<{VECTOR[value.dtype]}>({pointer} + {at})"

    def lane_scratch_offset(self, index: Index, block: Block, copy: int) -> str:
        """Scratch arrays of units that are lanes: one row of lanes an element."""
        if Stride.of(index, self.facts.vector).step != 0:
            raise CannotVectorise("scratch array indexed by the lane")
        row = self.facts.lanes * self.facts.copies
        return f"({index_text(index, {})}) * {row} + {copy * self.facts.lanes}"

    def memory(self, buffer: Buffer) -> str:
        return MEMORY[buffer.dtype]
