"""Lowered tensors: what the scheduler groups into kernels.

    Storage     elements in memory: an input, a constant, the result of an ATen call
    Pointwise   each element is a value computed from its index and from elements of other tensors
    Reduce      each element is an accumulator over some dims of a source tensor
    View        the same elements under another index (an alias, or part of one)

A tensor says what its elements are, not where they are kept: Pointwise, Reduce and View need memory only
if the scheduler decides so. Bodies are define-by-run: `body(scope, index)` is called with whatever scope
the caller needs: one that records what is read, or one that builds loop IR. `scope.read(tensor, index)`
inlines or loads as the scope sees fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from dyncomp.codegen.ir.index import Index
from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.proofs import nonnegative

Indices = tuple[Index, ...]
# Sizes and strides: ints, or an `Index` over `Size`s where they are symbolic (compares as an int wherever all sizes give
# the same answer, and raises `Undecided` elsewhere). Typed as ints, which is what nearly all code may take them for.
Shape = tuple[int, ...]


class Scope(Protocol):
    """Where a body is being evaluated."""

    b: Builder

    def read(self, tensor: Tensor, index: Indices, guard: Value | None = None) -> Value:
        """The element at an index, in compute type. Where `guard` is false nothing is touched and the
        value is arbitrary."""

    def checked(self, value: Value, extent: int) -> Value:
        """An index from data: negative ones wrap, ones out of range make the call fail as in eager."""

    def pick(self, tensor: Tensor, index: Indices, numbers: dict[int, Value]) -> Value:
        """The element at an index whose dims in `numbers` come from data. The tensor is read from memory."""


Body = Callable[[Scope, Indices], Value]


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Tensor:
    """Base. `strides` is the layout in memory if it ever gets some; `key` says what it computes, apart
    from its inputs."""

    shape: Shape
    dtype: str
    strides: Shape
    name: str = ""
    key: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.dtype}{list(self.shape)}>"

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return ()

    @property
    def numel(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Storage(Tensor):
    """`origin`: ("input", i), ("constant", target), or ("call", ExternCall, position of the result)."""

    origin: tuple[Any, ...] = ()
    offset: int = 0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Pointwise(Tensor):
    """`sources` are the tensors that the body may read."""

    body: Body = dataclasses.field(kw_only=True)
    sources: tuple[Tensor, ...] = ()
    streaming: bool = True  # reads each source element about once; false for gathers

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.sources


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Reduce(Tensor):
    """Accumulates `source` over `dims`. `part` is "position" for the index of argmax and argmin (row-major
    over `dims`). `rounds`: the result counts as an element of its half type, not as the f32 accumulator."""

    op: str = dataclasses.field(kw_only=True)
    source: Tensor = dataclasses.field(kw_only=True)
    dims: tuple[int, ...] = ()
    keepdim: bool = False
    part: str = "value"
    acc_dtype: str = "f32"
    rounds: bool = False

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.source,)

    def kept(self, index: Indices) -> dict[int, Index]:
        """Source dim -> index, for the dims that are not reduced."""
        dims = [d for d in range(len(self.source.shape)) if self.keepdim or d not in self.dims]
        return {d: index[i] for i, d in enumerate(dims) if d not in self.dims}


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class View(Tensor):
    """`to_source` maps an index of the view to one of the source. `offset`: elements from the start of the
    storage, as eager has it."""

    source: Tensor = dataclasses.field(kw_only=True)
    to_source: Callable[[Indices], Indices] = dataclasses.field(kw_only=True)
    offset: int = 0

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.source,)


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class ExternCall:
    """A call of an ATen op. Tensor arguments stand in `args` and `kwargs` as lowered tensors; results as
    Storage (None: no tensor).

    `ordered`: draws random numbers or may have effects, so it keeps its place among its kind. `aliases`: a result may share
    memory with an argument. `in_place`: it writes its first argument, which is the result, and which nothing else reads.
    `barrier`: it gives numbers that the graph goes on with, or checks them, so what comes later in the program stays after
    it. `gives`: the nodes whose numbers come from it, each with the position of the result whose sizes they are.
    """

    name: str
    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Storage | None] = dataclasses.field(default_factory=list)
    tensors: tuple[Tensor, ...] = ()
    note: str = ""
    ordered: bool = False
    listed: bool = False  # the results are one list
    aliases: bool = False
    in_place: bool = False
    barrier: bool = False
    gives: list[tuple[Any, int]] = dataclasses.field(default_factory=list)


def contiguous_strides(shape: Shape) -> Shape:
    """Strides of a row-major tensor, as torch computes them (sizes of 0 count as 1)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1) if isinstance(size, int) else size
    return tuple(reversed(strides))


def may_be_empty(shape: Shape) -> bool:
    """True if a size is 0, or may be for some sizes of the call."""
    return any(size == 0 if isinstance(size, int) else not nonnegative(size - 1) for size in shape)


def root(tensor: Tensor) -> Tensor:
    """The tensor that a chain of views starts from."""
    while isinstance(tensor, View):
        tensor = tensor.source
    return tensor
