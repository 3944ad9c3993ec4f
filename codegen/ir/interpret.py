"""Runs a kernel without a compiler: the meaning of the loop IR, for tests.

Each statement is evaluated for all iterations of its loops at once, on a grid with one dimension a bound
variable. That is the program's meaning because iterations meet in accumulators alone. Functions are
torch's own, so results differ from ATen's by what lowering changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dyncomp.codegen.ir.index import (
    FloorDiv,
    Index,
    IndexLike,
    Min,
    Product,
    Size,
    Var,
    as_index,
    const,
    sizes_in,
    substitute,
    variables,
)
from dyncomp.codegen.ir.nodes import (
    ACC_OPS,
    Acc,
    Accumulate,
    Buffer,
    Cast,
    Checked,
    Const,
    Init,
    Kernel,
    Load,
    Loop,
    Op,
    Param,
    Position,
    Stmt,
    Store,
    Value,
)
from dyncomp.codegen.ir.proofs import upper_bound
from dyncomp.codegen.ir.types import FLOATS, HALVES, TO_TORCH, compute_type

OPS: dict[str, Callable[..., torch.Tensor]] = {
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "float_of_bits": lambda a: a.contiguous().view(torch.float64),
    "fma": lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype),  # doubles: rounded twice
    "round_bf16": lambda a: a.bfloat16().float(),
    "round_f16": lambda a: a.half().float(),
}


def interpret(kernel: Kernel, buffers: list[torch.Tensor], sizes: list[int] | None = None) -> None:
    """`buffers`: one flat tensor a parameter, starting where the pointer points (any strides lie in the
    kernel's indices)."""
    run = _Interpreter(kernel, buffers, dict(zip(kernel.sizes, sizes or [], strict=True)))
    if all(_most(v.extent, run.sizes) for v in kernel.axes):
        run.block(kernel.body)


def flat_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from a tensor's first element on, as one flat tensor that shares it."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return tensor.as_strided((max(count, 0),), (1,), tensor.storage_offset())


def _most(extent: IndexLike, sizes: dict[str, int]) -> int:
    """Largest value of an extent, all sizes given."""
    most = upper_bound(_without_sizes(as_index(extent), sizes))
    assert most is not None
    return most


def _without_sizes(index: Index, sizes: dict[str, int]) -> Index:
    """All sizes given, those in the ranges of variables too."""
    change: dict[Size | Var, Index] = {size: const(sizes[size.name]) for size in sizes_in(index)}
    for var in variables(index):
        change[var] = as_index(Var(var.name, _without_sizes(var.extent, sizes)))
    return substitute(index, change)


def _number(index: Index, values: dict[str, Any]) -> Any:
    total: Any = index.const
    for atom, coef in index.terms:
        total = total + _atom(atom, values) * coef
    return total


def _atom(atom: Any, values: dict[str, Any]) -> Any:
    if isinstance(atom, (Var, Size)):
        return values[atom.name]
    if isinstance(atom, Product):
        return math.prod(_atom(a, values) for a in atom.atoms)
    if isinstance(atom, Min):
        a, b = (torch.as_tensor(_number(v, values)) for v in (atom.a, atom.b))
        return torch.minimum(a, b)
    num, den = _number(atom.num, values), _number(atom.den, values)
    return num // den if isinstance(atom, FloorDiv) else num % den


class _Interpreter:
    def __init__(self, kernel: Kernel, buffers: list[torch.Tensor], sizes: dict[str, int]):
        self.kernel, self.sizes = kernel, sizes
        self.memory = {p.name: b for p, b in zip(kernel.params, buffers, strict=True)}
        self.bound: list[Var] = []
        self.rank = _depth(kernel)
        self.names: dict[str, Any] = dict(sizes)
        self.accs: dict[str, torch.Tensor] = {}
        self.positions: dict[str, torch.Tensor] = {}
        self.acc_rank: dict[str, int] = {}
        self.values: dict[Value, torch.Tensor] = {}
        for axis in kernel.axes:
            self._bind(axis)
        units = math.prod(self._grid())
        for scratch in kernel.scratch:
            self.memory[scratch.name] = torch.zeros(units * _most(scratch.extent, sizes), dtype=TO_TORCH[scratch.dtype])
        self.axes = len(kernel.axes)

    # ---- the grid

    def _bind(self, var: Var) -> None:
        extent = _most(var.extent, self.sizes)
        shape = [1] * self.rank
        shape[len(self.bound)] = extent
        self.bound.append(var)
        self.names[var.name] = torch.arange(extent).reshape(shape)

    def _grid(self) -> list[int]:
        shape = [_most(v.extent, self.sizes) for v in self.bound]
        return shape + [1] * (self.rank - len(shape))

    def _inside(self) -> torch.Tensor:
        """False where a variable is beyond its extent (extents that depend on outer variables)."""
        inside = torch.ones(self._grid(), dtype=torch.bool)
        for var in self.bound:
            if not var.extent.is_const:
                inside = inside & (self.names[var.name] < self._index(var.extent))
        return inside

    def _index(self, index: Index) -> torch.Tensor:
        return torch.as_tensor(_number(index, self.names))

    # ---- statements

    def block(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.values.clear()  # memory may have changed
            if isinstance(stmt, Loop):
                self._bind(stmt.var)
                if _most(stmt.var.extent, self.sizes):
                    self.block(stmt.body)
                self.bound.pop()
            elif isinstance(stmt, Init):
                self._init(stmt.acc)
            elif isinstance(stmt, Accumulate):
                self._accumulate(stmt)
            else:
                self._store(stmt)

    def _init(self, acc: Acc) -> None:
        self.acc_rank[acc.name] = len(self.bound)
        self.accs[acc.name] = torch.full(self._grid(), _neutral(acc), dtype=TO_TORCH[acc.dtype])
        self.positions[acc.name] = torch.full(self._grid(), -1, dtype=torch.int64)

    def _accumulate(self, stmt: Accumulate) -> None:
        acc = stmt.acc
        dims = tuple(range(self.acc_rank[acc.name], len(self.bound)))
        value = self.value(stmt.value).expand(self._grid())
        value = torch.where(self._inside(), value, torch.tensor(_neutral(acc), dtype=value.dtype))
        held = self.accs[acc.name]
        if stmt.position is not None:
            position = self.value(stmt.position).expand(self._grid())
            self._arg(acc, value, position, dims)
        elif not dims:
            self.accs[acc.name] = _combine(acc.op, held, value)
        else:
            self.accs[acc.name] = _combine(acc.op, held, _reduce(acc.op, value, dims))

    def _arg(self, acc: Acc, value: torch.Tensor, position: torch.Tensor, dims: tuple[int, ...]) -> None:
        """First place of the best value; NaN is best."""
        order = [d for d in range(value.dim()) if d not in dims] + list(dims)
        kept = [value.shape[d] for d in range(value.dim()) if d not in dims]
        flat = value.permute(order).reshape(*kept, -1)
        best, at = (torch.max if acc.op == "argmax" else torch.min)(flat, dim=-1)
        first = position.permute(order).reshape(*kept, -1).gather(-1, at.unsqueeze(-1)).squeeze(-1)
        self.accs[acc.name] = best.reshape(self.accs[acc.name].shape)
        self.positions[acc.name] = first.reshape(best.shape).reshape(self.accs[acc.name].shape)

    def _store(self, stmt: Store) -> None:
        memory = self.memory[stmt.buffer.name]
        grid = self._grid()
        mask = self._inside()
        if stmt.guard is not None:
            mask = mask & self.value(stmt.guard)
        index = (self._index(stmt.index) + self._base(stmt.buffer)).expand(grid)[mask]
        memory[index] = self.value(stmt.value).expand(grid)[mask].to(memory.dtype)

    def _base(self, buffer: Buffer) -> torch.Tensor:
        """Where a scratch array of this unit starts."""
        if isinstance(buffer, Param):
            return torch.tensor(0)
        unit: Any = torch.tensor(0)
        for axis in self.kernel.axes:
            unit = unit * _most(axis.extent, self.sizes) + self.names[axis.name]
        return unit * _most(buffer.extent, self.sizes)

    # ---- values

    def value(self, value: Value) -> torch.Tensor:
        found = self.values.get(value)
        if found is None:
            found = self.values[value] = self._value(value)
        return found

    def _value(self, value: Value) -> torch.Tensor:
        if isinstance(value, Const):
            return torch.tensor(value.value, dtype=TO_TORCH[value.dtype])
        if isinstance(value, Position):
            return self._index(value.index).to(torch.int64)
        if isinstance(value, Load):
            return self._load(value)
        if isinstance(value, Op):
            args = torch.broadcast_tensors(*(self.value(a) for a in value.args))
            function = OPS.get(value.name) or getattr(torch, value.name)
            return function(*args)
        if isinstance(value, Cast):
            return self.value(value.value).to(TO_TORCH[value.dtype])
        if isinstance(value, Checked):
            return self._checked(value)
        return self.positions[value.acc.name] if value.part == "position" else self.accs[value.acc.name]

    def _checked(self, value: Checked) -> torch.Tensor:
        number, extent = self.value(value.value), self._index(value.extent)
        bad = (number < -extent) | (number >= extent)
        if bool((bad & self._inside()).any()):
            self.memory[value.flag.name][0] = 1
        return torch.where(bad, 0, torch.where(number < 0, number + extent, number))

    def _load(self, value: Load) -> torch.Tensor:
        index = self._index(value.index) + self._base(value.buffer)
        for number, stride in value.dynamic:
            index = index + self.value(number) * self._index(stride)
        mask = self._inside()
        if value.guard is not None:
            mask = mask & self.value(value.guard)
        memory = self.memory[value.buffer.name]
        if not mask.any():
            return torch.zeros((), dtype=TO_TORCH[compute_type(value.buffer.dtype)])
        if not mask.all():
            index = torch.where(mask, index, index.expand(mask.shape)[mask][0])
        loaded = torch.where(mask, memory[index], torch.zeros((), dtype=memory.dtype))
        return loaded.float() if value.buffer.dtype in HALVES else loaded


def _depth(kernel: Kernel) -> int:
    def of(body: tuple[Stmt, ...]) -> int:
        return max((1 + of(s.body) for s in body if isinstance(s, Loop)), default=0)

    return len(kernel.axes) + of(kernel.body)


def _neutral(acc: Acc) -> Any:
    neutral = ACC_OPS[acc.op]
    if neutral not in ("lowest", "highest"):
        return neutral
    if acc.dtype in FLOATS:
        return -math.inf if neutral == "lowest" else math.inf
    info = torch.iinfo(TO_TORCH[acc.dtype])
    return info.min if neutral == "lowest" else info.max


def _reduce(op: str, value: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    if op == "sum":
        return value.sum(dims, keepdim=True, dtype=value.dtype)
    if op == "prod":
        for dim in dims:
            value = value.prod(dim, keepdim=True, dtype=value.dtype)
        return value
    functions: dict[str, Callable[..., torch.Tensor]]
    functions = {"max": torch.amax, "min": torch.amin, "any": torch.any, "all": torch.all}
    return functions[op](value, dims, keepdim=True)


def _combine(op: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    functions: dict[str, Callable[..., torch.Tensor]] = {
        "sum": torch.add,
        "prod": torch.mul,
        "max": torch.maximum,
        "min": torch.minimum,
        "any": torch.logical_or,
        "all": torch.logical_and,
    }
    return functions[op](a, b)
