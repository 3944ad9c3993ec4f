"""What the emitter must know of a kernel before it writes a line.

Facts.uses(value)       variables, accumulators and stored-to buffers that a value depends on
Facts.lane_wise         accumulators that keep one result a lane (column reductions)
Facts.split             accumulators that lanes share and combine at the end (row reductions)
Facts.narrow            those of them that remember places in 32 bits
Facts.lanes             lanes of one vector: the widest type computed along the vector variable decides
Facts.flushes(loop)     long float sums to be moved to the second level inside this loop, and after how
many iterations
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator

from dyncomp.codegen.emit.cpp.positions import narrow_places, not_held
from dyncomp.codegen.ir.index import Index, Var, as_index, hint, substitute, variables
from dyncomp.codegen.ir.nodes import (
    Acc,
    Accumulate,
    Checked,
    Init,
    Kernel,
    Load,
    Loop,
    Op,
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
from dyncomp.codegen.ir.proofs import upper_bound
from dyncomp.codegen.ir.types import SIZE

# A float sum may run this many steps in one accumulator; longer ones go to a compensated second level.
PLAIN_STEPS = 64
FLUSH_STEPS = 32


@dataclasses.dataclass(frozen=True)
class Uses:
    variables: frozenset[Var]
    accs: frozenset[str]
    buffers: frozenset[str]
    depth: int = 1  # operations on the longest way to a leaf


def index_variables(*indices: Index) -> frozenset[Var]:
    """Variables of indices, and those that the extents of these variables mention."""
    found: set[Var] = set()
    todo = [v for i in indices for v in variables(i)]
    while todo:
        var = todo.pop()
        if var not in found:
            found.add(var)
            todo.extend(variables(var.extent))
    return frozenset(found)


class Facts:
    def __init__(self, kernel: Kernel, vector_bytes: int, vectorise: bool):
        self.kernel = kernel
        self.vector = kernel.vector if vectorise else None
        self.vector_is_axis = self.vector is not None and self.vector in kernel.axes
        self.scratch_names = frozenset(s.name for s in kernel.scratch)
        self.stored = frozenset(s.buffer.name for s in all_statements(kernel.body) if isinstance(s, Store))
        self._uses: dict[int, Uses] = {}
        self.lane_wise: set[str] = set()
        self.split: set[str] = set()
        self.narrow: set[str] = set()
        self._modes(kernel.body, self.vector_is_axis)
        self.lane_bytes, self.lanes = self._lanes(vector_bytes)
        self.copies = self._copies()
        self._flush: dict[int, list[tuple[Acc, int]]] = {}
        self._outermost: dict[str, int] = {}  # of a long sum: the loop in front of which it begins
        self._starts: dict[str, int] = {}
        self._alone: dict[str, bool] = {}  # of a long sum: it grows in one loop, which is not in another that it grows in
        self.long: set[str] = set()
        self._find_flushes(kernel.body, [])

    def uses(self, value: Value) -> Uses:
        known = self._uses.get(id(value))
        if known is None:
            for part in children_first(value, self._uses):  # chains of values may be longer than Python's stack
                self._uses[id(part)] = self._compute_uses(part)
            known = self._uses[id(value)]
        return known

    def _compute_uses(self, value: Value) -> Uses:
        below = [self._uses[id(child)] for child in value_children(value)]
        variables_ = frozenset().union(*(u.variables for u in below))
        accs = frozenset().union(*(u.accs for u in below))
        buffers = frozenset().union(*(u.buffers for u in below))
        if isinstance(value, Load):
            variables_ |= index_variables(value.index, *(stride for _, stride in value.dynamic))
            if value.buffer.name in self.stored:
                buffers |= {value.buffer.name}
        elif isinstance(value, Position):
            variables_ |= index_variables(value.index)
        elif isinstance(value, Checked):
            variables_ |= index_variables(value.extent)
        elif isinstance(value, Result):
            accs |= {value.acc.name}
        return Uses(variables_, accs, buffers, 1 + max((u.depth for u in below), default=0))

    def varies(self, value: Value, in_vector: bool) -> bool:
        """True if lanes may hold different values."""
        if not in_vector:
            return False
        uses = self.uses(value)
        if self.vector in uses.variables or uses.accs & self.lane_wise:
            return True
        return self.vector_is_axis and bool(uses.buffers & self.scratch_names)

    def acc_uses(self, acc: Acc) -> Uses:
        return Uses(frozenset(), frozenset({acc.name}), frozenset())

    def rest_at_once(self, loop: Loop) -> bool:
        """True for a vector loop that reads rows again and again, once a pass: what whole vectors leave is one pass too, if it is
        more than one vector.
        """
        if self.copies == 1 or not self.lane_wise or self.split or not any(isinstance(s, Loop) for s in loop.body):
            return False
        step = self.lanes * self.copies
        return any(_seen_extent(loop.var, last) % step > self.lanes for last in (False, True))

    def flushes_between(self, loop: Loop) -> bool:
        """True if the sums that are flushed in a loop begin right in front of it: what its last block adds may then stay in the
        first level, which their totals include.
        """
        return all(self._outermost.get(acc.name) == id(loop) for acc, _ in self.flushes(loop))

    def plain_iterations(self, loop: Loop) -> int | None:
        """Up to how many iterations the sums of a loop need no second level, where only the call tells how many there are."""
        flushes = self.flushes(loop)
        if not flushes or loop.var.extent.is_const or not all(self._alone[acc.name] for acc, _ in flushes):
            return None
        shared = {acc.name in self.split and loop.var == self.vector for acc, _ in flushes}
        return None if len(shared) > 1 else PLAIN_STEPS * (self.lanes if shared.pop() else 1)

    def flushes(self, loop: Loop) -> list[tuple[Acc, int]]:
        return self._flush.get(id(loop), [])

    def body_cost(self, body: tuple[Stmt, ...]) -> int:
        """Rough machine operations of one iteration: operations that depend on the vector variable."""
        values = all_values(body, set())
        return sum(OPS[value.name].cost if isinstance(value, Op) else 1 for value in values)

    def _modes(self, body: tuple[Stmt, ...], in_vector: bool) -> None:
        for stmt in body:
            if isinstance(stmt, Init) and in_vector:
                self.lane_wise.add(stmt.acc.name)
            elif isinstance(stmt, Accumulate) and in_vector and stmt.acc.name not in self.lane_wise:
                self.split.add(stmt.acc.name)
            elif isinstance(stmt, Loop):
                self._modes(stmt.body, in_vector or stmt.var == self.vector)

    def _lanes(self, vector_bytes: int) -> tuple[int, int]:
        """(bytes of the widest lane, lanes)."""
        if self.vector is None:
            return vector_bytes, 1
        widest = 1
        values = list(all_values(self.kernel.body, set()))
        statements = [s for s in all_statements(self.kernel.body) if isinstance(s, Accumulate | Store)]
        self.narrow = narrow_places(statements, self.split)
        light = not_held(values, statements, self, self.narrow)
        for value in values:
            uses = self.uses(value)
            if (self.vector in uses.variables or uses.accs & self.lane_wise) and id(value) not in light:
                widest = max(widest, SIZE[value.dtype])
        for stmt in all_statements(self.kernel.body):
            if isinstance(stmt, Accumulate) and stmt.acc.name in self.split | self.lane_wise:
                place = 0 if stmt.position is None else 4 if stmt.acc.name in self.narrow else 8
                widest = max(widest, SIZE[stmt.acc.dtype], place)
        return widest, vector_bytes // widest

    def _copies(self) -> int:
        """Vectors handled side by side: enough independent chains to hide latency, without bloating heavy
        bodies."""
        if self.vector is None:
            return 1
        loops = [s for s in all_statements(self.kernel.body) if isinstance(s, Loop) and s.var == self.vector]
        bodies = [self.kernel.body] if self.vector_is_axis else [loop.body for loop in loops]
        cost = max((self.body_cost(body) for body in bodies), default=0)
        reduces = bool(self.split or self.lane_wise)
        wanted = 1 if cost > 60 else 2 if cost > 12 or not reduces else 4
        seen = _seen_extent(self.vector)
        if self.lane_wise and not self.split:  # all columns in one pass, if they are few
            wanted = min(wanted, max(1, -(-seen // self.lanes)))
            return 4 if wanted == 3 else wanted
        wanted = min(wanted, max(1, seen // self.lanes))
        return 2 if wanted == 3 else wanted

    def _find_flushes(self, body: tuple[Stmt, ...], nest: list[Loop]) -> None:
        self._starts.update({s.acc.name: len(nest) for s in body if isinstance(s, Init)})
        for stmt in body:
            if isinstance(stmt, Accumulate) and stmt.acc.op == "sum" and stmt.acc.dtype in ("f32", "f64"):
                self._place_flush(stmt.acc, nest[self._starts[stmt.acc.name] :])
            elif isinstance(stmt, Loop):
                self._find_flushes(stmt.body, [*nest, stmt])

    def _place_flush(self, acc: Acc, loops: list[Loop]) -> None:
        """Innermost loops first: the one in which the steps pass the limit is cut into blocks."""
        steps, placed = 1, None
        for loop in reversed(loops):
            most = upper_bound(loop.var.extent)
            extent = 1 << 62 if most is None else most
            if loop.var == self.vector and acc.name in self.split:
                extent = -(-extent // self.lanes)
            if placed is None and steps * extent > FLUSH_STEPS:
                placed = (loop, max(1, FLUSH_STEPS // steps))
            steps *= extent
        if steps > PLAIN_STEPS and placed is not None:
            self.long.add(acc.name)
            self._alone[acc.name] = len(loops) == 1 and self._outermost.get(acc.name, id(loops[0])) == id(loops[0])
            self._outermost[acc.name] = id(loops[0])
            entry = self._flush.setdefault(id(placed[0]), [])
            if all(known.name != acc.name for known, _ in entry):
                entry.append((acc, placed[1]))


def _seen_extent(var: Var, last: bool = False) -> int:
    """What an extent was while tracing: it chooses a form that is right for all. Where blocks differ, that of the first one, or of
    the last.
    """
    outer = variables(var.extent)
    return hint(substitute(var.extent, {v: as_index(_seen_extent(v) - 1 if last else 0) for v in outer}))


def all_statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Statements of a body and of the loops in it."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from all_statements(stmt.body)


def all_values(body: tuple[Stmt, ...], seen: set[int]) -> Iterator[Value]:
    """Each value that the statements use, directly or not, once."""
    todo = [v for s in all_statements(body) for v in stmt_values(s)]
    while todo:
        value = todo.pop()
        if id(value) not in seen:
            seen.add(id(value))
            yield value
            todo.extend(value_children(value))


def children_first(root: Value, done: Container[int]) -> list[Value]:
    """A value and what it is made of, each once and after its parts; without those whose `id` is in `done`."""
    found: list[Value] = []
    seen: set[int] = set()
    stack = [(root, False)]
    while stack:
        value, parts_are_done = stack.pop()
        if parts_are_done:
            found.append(value)
        elif id(value) not in seen and id(value) not in done:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((child, False) for child in value_children(value))
    return found


def stored_in(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Buffers that a body stores to, at any depth."""
    return frozenset(s.buffer.name for s in all_statements(body) if isinstance(s, Store))


def initialised_in(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Accumulators that start or grow in a body, at any depth."""
    return frozenset(s.acc.name for s in all_statements(body) if isinstance(s, (Init, Accumulate)))


def is_scratch(buffer: object) -> bool:
    return isinstance(buffer, Scratch)
