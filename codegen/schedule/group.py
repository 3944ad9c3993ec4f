"""Puts tensors that can share loops into one group: one group becomes one kernel.

    m = max(x, -1); e = exp(x - m); s = sum(e, -1); y = e / s      ->  one group over (rows | columns),
    columns reduced

A group has an iteration space: kept variables, and reduced ones if it holds a reduction. Each member has a
canonical index, its index in terms of these variables; a member is computed at that index alone, so it may
be read inside the group only there.

Legal: a tensor joins if some index for it makes every read of a member canonical, and if nothing outside
lies between the group and the tensor (what it reads from outside must not depend on the group). Worth it:
it reads a member, or both read the same memory; and the kernel does not grow too large.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TypeAlias

from dyncomp.codegen.ir.index import Index, Var, as_index, substitute, variables
from dyncomp.codegen.lower.builder import linear, unravel, vars_of
from dyncomp.codegen.lower.recorder import Read, Recorder
from dyncomp.codegen.lower.tensor import ExternCall, Indices, Reduce, Shape, Storage, Tensor

MOST_COST = 1500  # machine operations an element
MOST_READS = 24  # different tensors in memory
LOOK_BACK = 12  # groups tried for loops that share nothing but inputs

Mapping = dict[Var, Index]


@dataclasses.dataclass(eq=False)
class Group:
    """`members` in program order with their canonical indices; `full` the index of an element of the whole
    space, by shape."""

    number: int
    kept: tuple[Var, ...]
    reduced: tuple[Var, ...] = ()
    members: dict[Tensor, Indices] = dataclasses.field(default_factory=dict)
    places: list[tuple[Shape, Indices]] = dataclasses.field(default_factory=list)
    outside: set[Tensor] = dataclasses.field(default_factory=set)
    cost: int = 0
    last: int = 0  # position in program order of the last member

    @property
    def variables(self) -> tuple[Var, ...]:
        return self.kept + self.reduced


Unit: TypeAlias = Group | ExternCall


@dataclasses.dataclass
class _Candidate:
    """A tensor to place: its variables, what it reads in terms of them, and its own index."""

    tensor: Tensor
    shape: Shape  # of the space it runs over: the source's for a reduction
    vars: Indices
    index: Indices
    reads: list[Read]
    cost: int


class Grouping:
    """Assigns solid tensors, in program order, to groups. `dependencies[number]`: bit set of the units
    that a unit needs."""

    def __init__(self, inlined: set[Tensor], fuse: bool):
        self.inlined = inlined
        self.fuse = fuse
        self.units: list[Unit] = []
        self.dependencies: list[int] = []
        self.unit_of: dict[Tensor, int] = {}
        self.barrier = 0  # bit set of units: the last barrier so far and what it needs
        self.steps = 0
        self.born: list[int] = []  # step at which each unit began

    def add_call(self, call: ExternCall, after: ExternCall | None = None) -> None:
        """An ATen call; `after`: a call that must stay before it."""
        number = self._new_unit(call)
        needs = self.barrier
        for tensor in call.tensors:
            needs |= self._needed(tensor)
        if after is not None:
            needs |= self._closure(self.units.index(after))
        self.dependencies[number] = needs
        if call.barrier:
            self.barrier = self._closure(number)
        for result in call.results:
            if result is not None:
                self.unit_of[result] = number

    def add_tensor(self, tensor: Tensor) -> None:
        """A Pointwise or Reduce that is not inlined."""
        self.steps += 1
        candidate = self._candidate(tensor)
        for group in self._possible_groups(candidate) if self.fuse else ():
            if self._join(group, candidate):
                return
        self._start(candidate)

    # ---- dependencies

    def _new_unit(self, unit: Unit) -> int:
        self.units.append(unit)
        self.dependencies.append(0)
        self.born.append(self.steps)
        return len(self.units) - 1

    def _closure(self, number: int) -> int:
        return self.dependencies[number] | (1 << number)

    def _needed(self, tensor: Tensor) -> int:
        """Units needed before a tensor can be read, looking through views and inlined tensors."""
        needs = 0
        stack, seen = [tensor], set()
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in self.unit_of:
                needs |= self._closure(self.unit_of[current])
            elif not isinstance(current, Storage):
                stack.extend(current.inputs)
        return needs

    def _depend(self, number: int, needs: int) -> None:
        """Unit `number` needs more; so does everything that needs it."""
        needs &= ~(1 << number)
        self.dependencies[number] |= needs
        bit = 1 << number
        for other, held in enumerate(self.dependencies):
            if held & bit:
                self.dependencies[other] |= needs

    # ---- candidates

    def _candidate(self, tensor: Tensor) -> _Candidate:
        scope = Recorder(self.inlined)
        prefix = f"t{self.steps}_"
        if isinstance(tensor, Reduce):
            shape = tensor.source.shape
            variables_ = vars_of(shape, prefix)
            scope.read(tensor.source, variables_)
            kept = [d for d in range(len(shape)) if d not in tensor.dims]
            index = tuple(as_index(0) if d in tensor.dims else v for d, v in enumerate(variables_))
            index = index if tensor.keepdim else tuple(variables_[d] for d in kept)
        else:
            shape = tensor.shape
            variables_ = index = vars_of(shape, prefix)
            tensor.body(scope, variables_)  # type: ignore[attr-defined]
        return _Candidate(tensor, shape, variables_, index, scope.reads, scope.cost())

    def _possible_groups(self, candidate: _Candidate) -> Iterator[Group]:
        direct = {self.unit_of[r.tensor] for r in candidate.reads if r.tensor in self.unit_of}
        groups = [g for g in sorted(direct, reverse=True) if isinstance(self.units[g], Group)]
        yield from (self.units[g] for g in groups)  # type: ignore[misc]
        memory = {r.tensor for r in candidate.reads}
        recent = [u for u in self.units[-LOOK_BACK:] if isinstance(u, Group) and u.number not in direct]
        for group in reversed(recent):
            if memory & group.outside and any(shape == candidate.shape for shape, _ in group.places):
                yield group

    # ---- joining

    def _start(self, candidate: _Candidate) -> None:
        own = [v for v in candidate.vars if v.terms]
        atoms = tuple(v.terms[0][0] for v in own)
        group = Group(len(self.units), tuple(a for a in atoms if isinstance(a, Var)))
        self._new_unit(group)
        group.places.append((candidate.shape, candidate.vars))
        self._place(group, candidate, {v: as_index(v) for v in group.kept})

    def _join(self, group: Group, candidate: _Candidate) -> bool:
        if group.cost + candidate.cost > MOST_COST or not self._order_allows(group, candidate):
            return False
        outside = {r.tensor for r in candidate.reads} - group.members.keys()
        if len(group.outside | outside) > MOST_READS:
            return False
        for mapping in self._mappings(group, candidate):
            if self._canonical(group, candidate, mapping) and self._space_allows(group, candidate, mapping):
                self._place(group, candidate, mapping)
                return True
        return False

    def _order_allows(self, group: Group, candidate: _Candidate) -> bool:
        bit = 1 << group.number
        if self.barrier & bit:
            return False
        for read in candidate.reads:
            unit = self.unit_of.get(read.tensor)
            if unit is None or unit == group.number:
                if unit is not None and read.picked:
                    return False  # needs the whole tensor in memory first
                continue
            if self.dependencies[unit] & bit:
                return False
        return True

    def _mappings(self, group: Group, candidate: _Candidate) -> Iterator[Mapping]:
        """Ways to write the candidate's variables in terms of the group's."""
        for read in candidate.reads:
            home = group.members.get(read.tensor)
            if home is not None:
                mapping = _solve(candidate, read.index, home, read.tensor.shape)
                if mapping is not None:
                    yield mapping
        for shape, place in group.places:
            if shape == candidate.shape:
                yield _bind(candidate.vars, place)

    def _canonical(self, group: Group, candidate: _Candidate, mapping: Mapping) -> bool:
        for read in candidate.reads:
            home = group.members.get(read.tensor)
            if home is not None and tuple(substitute(i, mapping) for i in read.index) != home:
                return False
        return True

    def _space_allows(self, group: Group, candidate: _Candidate, mapping: Mapping) -> bool:
        place = [substitute(v, mapping) for v in candidate.vars]
        used = set().union(*(variables(i) for i in place)) if place else set()
        kept, reduced = set(group.kept), set(group.reduced)
        covered = math.prod(v.extent for v in used)
        if covered != math.prod(candidate.shape):
            return False
        if not isinstance(candidate.tensor, Reduce):
            return used == kept | reduced or used == kept
        if used != kept | reduced:
            return False
        inner, outer = self._reduced_vars(candidate, place)
        if inner & outer:
            return False
        return inner == reduced and outer == kept if reduced else self._may_reduce(group, inner)

    def _reduced_vars(self, candidate: _Candidate, place: list[Index]) -> tuple[set[Var], set[Var]]:
        tensor = candidate.tensor
        assert isinstance(tensor, Reduce)
        inner = set().union(*(variables(place[d]) for d in tensor.dims)) if tensor.dims else set()
        outer_dims = [d for d in range(len(place)) if d not in tensor.dims]
        outer = set().union(*(variables(place[d]) for d in outer_dims)) if outer_dims else set()
        return inner, outer

    def _may_reduce(self, group: Group, inner: set[Var]) -> bool:
        """A group without reduced variables gets some: not if it already has a reduction over dims of size
        1 alone."""
        return bool(inner) or not group.reduced

    def _place(self, group: Group, candidate: _Candidate, mapping: Mapping) -> None:
        tensor = candidate.tensor
        place = [substitute(v, mapping) for v in candidate.vars]
        if isinstance(tensor, Reduce):
            inner, _ = self._reduced_vars(candidate, place)
            if inner and not group.reduced:
                group.reduced = tuple(v for v in group.kept if v in inner)
                group.kept = tuple(v for v in group.kept if v not in inner)
        index = tuple(substitute(i, mapping) for i in candidate.index)
        group.members[tensor] = index
        if (candidate.shape, tuple(place)) not in group.places:
            group.places.append((candidate.shape, tuple(place)))
        if (tensor.shape, index) not in group.places:
            group.places.append((tensor.shape, index))
        needs = self.barrier
        for read in candidate.reads:
            if read.tensor not in group.members:
                group.outside.add(read.tensor)
                needs |= self._needed(read.tensor)
        self.unit_of[tensor] = group.number
        group.cost += candidate.cost
        group.last = self.steps
        self._depend(group.number, needs)


def _bind(vars_: Indices, place: Indices) -> Mapping:
    mapping: Mapping = {}
    for v, target in zip(vars_, place, strict=True):
        if v.terms:
            atom = v.terms[0][0]
            assert isinstance(atom, Var)
            mapping[atom] = target
    return mapping


def _solve(candidate: _Candidate, read: Indices, home: Indices, shape: Shape) -> Mapping | None:
    """The mapping that makes a read at `read` (in the candidate's variables) the read at `home`; None if
    there is no plain one."""
    mapping: Mapping = {}
    for wanted, have, extent in zip(read, home, shape, strict=True):
        atom = wanted.terms[0][0] if len(wanted.terms) == 1 else None
        if isinstance(atom, Var) and wanted.const == 0 and wanted.terms[0][1] == 1:
            if atom.extent != extent:  # a guarded read, of a part or beyond the end: the tensor's loops are other ones
                return None
            if mapping.setdefault(atom, have) != have:
                return None
        elif not wanted.is_const or wanted != have:
            mapping = {}
            break
    needed = {v.terms[0][0] for v in candidate.vars if v.terms}
    if mapping.keys() >= needed:
        return mapping
    # the read covers the whole tensor in row-major order: the candidate is a reshape of it
    if math.prod(shape) == math.prod(candidate.shape) and linear(read, shape) == linear(
        candidate.vars, candidate.shape
    ):
        return _bind(candidate.vars, unravel(linear(home, shape), candidate.shape))
    return None
