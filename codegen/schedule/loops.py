"""Writes a group as loop IR statements over its own variables, before any choice of loop order.

    softmax over (r | c), c reduced  ->  stage 0: sum-free:  max += x          inside the loops over c
                                         stage 1:            sum += exp(x-max) inside
                                         stage 2:            out = exp(x-max)/sum inside

A stage is one pass over the reduced variables. What a stage computes needs accumulators of earlier stages
alone. `inner` statements run for every element, `outer` ones once for each kept index, after the stage's
pass.
"""

from __future__ import annotations

import dataclasses

from dyncomp.codegen.ir.index import Index, Var, as_index, const, variables
from dyncomp.codegen.ir.nodes import Acc, Accumulate, Builder, Param, Position, Store, Value
from dyncomp.codegen.ir.proofs import nonnegative
from dyncomp.codegen.ir.types import compute_type
from dyncomp.codegen.lower.rounding import rounded, stored
from dyncomp.codegen.lower.tensor import Indices, Pointwise, Reduce, Storage, Tensor, View, root
from dyncomp.codegen.schedule.group import Group
from dyncomp.codegen.schedule.rewrite import results_in
from dyncomp.errors import InternalError


@dataclasses.dataclass
class Stage:
    accs: list[Acc] = dataclasses.field(default_factory=list)
    inner: list[Accumulate | Store] = dataclasses.field(default_factory=list)
    outer: list[Store] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Program:
    """`buffers`: the tensor in memory behind each parameter, None for the flag. `written`: where each
    stored tensor went."""

    builder: Builder
    stages: list[Stage]
    params: list[Param]
    buffers: list[Tensor | None]
    note: str = ""


def write_program(group: Group, inlined: set[Tensor], stored: set[Tensor]) -> Program:
    """`stored`: the members that must be in memory after the kernel."""
    return _Writer(group, inlined, stored).run()


class _Writer:
    def __init__(self, group: Group, inlined: set[Tensor], stored: set[Tensor]):
        self.group, self.inlined, self.stored = group, inlined, stored
        self.b = Builder()
        self.guard: Value | None = None
        self.params: dict[Tensor, Param] = {}
        self.flag: Param | None = None
        self.accs: dict[tuple[object, ...], Acc] = {}
        self.acc_of: dict[Tensor, Acc] = {}
        self.values: dict[tuple[Tensor, Indices, Value | None], Value] = {}
        self.stages: list[Stage] = []
        self.outs: list[tuple[Tensor, Param]] = []

    def run(self) -> Program:
        for tensor, index in self.group.members.items():
            if isinstance(tensor, Reduce):
                self._reduce(tensor, index)
            elif tensor in self.stored:
                self._store(tensor, index, self._is_inner(tensor))
            else:
                self.read(tensor, index)  # in program order, so that long chains do not nest
        ins = list(self.params.items())
        params = [p for _, p in ins] + [p for _, p in self.outs]
        buffers: list[Tensor | None] = [t for t, _ in ins] + [t for t, _ in self.outs]
        if self.flag is not None:
            params, buffers = [*params, self.flag], [*buffers, None]
        names = dict.fromkeys(str(t.key[0]) for t in self.group.members if t.key)
        return Program(self.b, self.stages, params, buffers, " ".join(names))

    def _is_inner(self, tensor: Tensor) -> bool:
        return bool(self._vars_of(tensor) - set(self.group.kept))

    def _vars_of(self, tensor: Tensor) -> set[Var]:
        index = self.group.members[tensor]
        return set().union(*(variables(i) for i in index)) if index else set()

    def _stage(self, number: int) -> Stage:
        while len(self.stages) <= number:
            self.stages.append(Stage())
        return self.stages[number]

    def _reduce(self, tensor: Reduce, index: Indices) -> None:
        source_index, position = self._source_index(tensor, index)
        value, stage = self._evaluate(tensor.source, source_index)
        key = (tensor.op, value, tensor.acc_dtype, position)
        acc = self.accs.get(key)
        if acc is None:
            acc = self.accs[key] = Acc(f"a{len(self.accs)}", tensor.op, tensor.acc_dtype)
            place = self._stage(stage)
            place.accs.append(acc)
            at = self.b.position(position) if position is not None else None
            place.inner.append(Accumulate(acc, self.b.cast(value, tensor.acc_dtype), at))
        self.acc_of[tensor] = acc
        if tensor in self.stored:
            value = self._converted(self.read(tensor, index), tensor)
            out = self._out(tensor)
            self._stage(stage).outer.append(Store(out, self._address(tensor, index), value))

    def _source_index(self, tensor: Reduce, index: Indices) -> tuple[Indices, Index | None]:
        """The source's index in the group's variables, and the position over the reduced dims
        (argmax/argmin)."""
        shape = tensor.source.shape
        for place_shape, place in self.group.places:
            if place_shape == shape and all(place[d] == i for d, i in tensor.kept(index).items()):
                if self._covers(place):
                    position = const(0)
                    for d in tensor.dims:
                        position = position * shape[d] + place[d]
                    return place, position if tensor.op.startswith("arg") else None
        raise InternalError(f"no place for the source of {tensor}")

    def _covers(self, place: Indices) -> bool:
        used = set().union(*(variables(i) for i in place)) if place else set()
        return used == set(self.group.variables)

    def _store(self, tensor: Tensor, index: Indices, inner: bool) -> None:
        value, stage = self._evaluate(tensor, index)
        store = Store(self._out(tensor), self._address(tensor, index), self._converted(value, tensor))
        place = self._stage(stage)
        (place.inner if inner or not self.group.reduced else place.outer).append(store)

    def _converted(self, value: Value, tensor: Tensor) -> Value:
        return stored(self.b.cast(value, compute_type(tensor.dtype)), tensor.dtype)

    def _evaluate(self, tensor: Tensor, index: Indices) -> tuple[Value, int]:
        value = self.read(tensor, index)
        return value, self._value_stage(value)

    def _value_stage(self, root_value: Value) -> int:
        """Stages that must be over before a value can be computed."""
        needed = {acc.name for acc in results_in(root_value)}
        return max((n + 1 for n, stage in enumerate(self.stages) for a in stage.accs if a.name in needed), default=0)

    # ---- the scope that bodies see

    def read(self, tensor: Tensor, index: Indices, guard: Value | None = None) -> Value:
        while isinstance(tensor, View):
            index = tensor.to_source(index)
            tensor = tensor.source
        guard = self._both(guard)
        key = (tensor, index, guard)
        found = self.values.get(key)
        if found is None:
            found = self.values[key] = self._read(tensor, index, guard)
        return found

    def _both(self, guard: Value | None) -> Value | None:
        if guard is None or self.guard is None or guard is self.guard:
            return guard or self.guard
        return self.b.op("and", self.guard, guard)

    def _read(self, tensor: Tensor, index: Indices, guard: Value | None) -> Value:
        if tensor in self.acc_of:
            assert isinstance(tensor, Reduce)
            result = self.b.result(self.acc_of[tensor], tensor.part)
            return rounded(self.b, result, tensor.dtype) if tensor.rounds else result
        if isinstance(tensor, Pointwise) and (tensor in self.inlined or tensor in self.group.members):
            outer, self.guard = self.guard, guard
            try:
                return tensor.body(self, index)
            finally:
                self.guard = outer
        return self.b.load(self._in(tensor), self._address(tensor, index), (), guard)

    def checked(self, value: Value, extent: int) -> Value:
        if _known_below(value, extent):
            return value
        if self.flag is None:
            self.flag = Param("flag", "i64", "flag")
        if self.guard is not None:  # where nothing is read, nothing is out of range either
            value = self.b.op("where", self.guard, value, self.b.const(0, value.dtype))
        return self.b.checked(value, extent, self.flag)

    def pick(self, tensor: Tensor, index: Indices, numbers: dict[int, Value]) -> Value:
        base = root(tensor)
        start = as_index(_offset(tensor) - _offset(base))
        for i, stride in zip(index, tensor.strides, strict=True):
            start = start + i * stride
        dynamic = tuple((number, as_index(tensor.strides[d])) for d, number in numbers.items())
        return self.b.load(self._in(base), start, dynamic, self.guard)

    def _address(self, tensor: Tensor, index: Indices) -> Index:
        """Elements from where the buffer's pointer points."""
        out = const(0)
        for i, stride in zip(index, tensor.strides, strict=True):
            out = out + i * stride
        return out

    def _in(self, tensor: Tensor) -> Param:
        param = self.params.get(tensor)
        if param is None:
            if not isinstance(tensor, (Storage, Pointwise, Reduce)):
                raise InternalError(f"{tensor} is not in memory")
            param = self.params[tensor] = Param(f"in{len(self.params)}", tensor.dtype, "in")
        return param

    def _out(self, tensor: Tensor) -> Param:
        param = Param(f"out{len(self.outs)}", tensor.dtype, "out")
        self.outs.append((tensor, param))
        return param


def _known_below(value: Value, extent: int) -> bool:
    """True for a position that its variables' ranges keep in [0, extent)."""
    if not isinstance(value, Position):
        return False
    return nonnegative(value.index) and nonnegative(as_index(extent) - 1 - value.index)


def _offset(tensor: Tensor) -> int:
    return getattr(tensor, "offset", 0)
