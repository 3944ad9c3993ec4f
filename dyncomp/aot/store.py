"""Functional storages: how reads and writes of aliased tensors become pure values.

One `Store` a storage holds the node of its newest value. Every tensor over it is a chain of views from that
value. A write through a tensor makes a new value of the whole store; a read after somebody's write replays
the chain.

    y = x[0]; y.add_(1); return x * y
      ->   s = select(x, 0, 0); a = add(s, 1); x2 = select_scatter(x, a, 0, 0); mul(x2, a)
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.aot.late import LateNumbers
from dyncomp.aot.places import placed
from dyncomp.aot.scatter import reshape, scatter
from dyncomp.aot.tape import Node, Tape
from dyncomp.fake.infer import infer
from dyncomp.fake.tensor import FakeTensor, TensorMeta
from dyncomp.shape.layout import is_channels_last, is_contiguous, is_dense, iteration_order, numel, surely_apart
from dyncomp.shape.symbolic import is_symbolic

aten = torch.ops.aten


class ViewStep(NamedTuple):
    """One view from its base: the arguments after the base, and which of several results."""

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    item: int | None


class Store:
    """A storage. `meta`: how eager lays out the tensor that the chains start from; `value`: the node of its
    newest value.

    `input`: index of the graph input that owns it. `frozen`: a captured constant, which nobody may write. `lazy`: in eager it is
    memory that others own (see `aot.lazy`); `looked_at`: there is such a one of this memory.
    """

    __slots__ = ("value", "meta", "version", "input", "frozen", "lazy", "looked_at")

    def __init__(self, value: Node, meta: TensorMeta, input: int | None = None, frozen: bool = False):
        self.value, self.meta, self.version, self.input, self.frozen = value, meta, 0, input, frozen
        self.lazy = self.looked_at = False

    @property
    def exact(self) -> bool:
        """True while the value is laid out in memory as in eager."""
        return self.value.meta is self.meta or self.value.meta.same_layout(self.meta)


class Writes:
    """A version counter of eager's: how often it rose. Views share that of their base; `x.data` has its own. `through`: the `id`s of
    the tensors that they went through, in order.
    """

    __slots__ = ("count", "through")

    def __init__(self) -> None:
        self.count = 0
        self.through: list[int] = []

    def rise(self) -> None:
        self.count += 1


class Track:
    """A tensor as a chain of views of a store, and the node of its value as of `version`; `writes`: its version counter, which stood at
    `born` when the tensor was made, and at `ages` when each view of the chain was, its own last.
    """

    __slots__ = ("store", "chain", "version", "node", "writes", "born", "ages")

    def __init__(self, store: Store, chain: tuple[ViewStep, ...], node: Node, writes: Writes | None = None, ages: tuple[int, ...] = ()):
        self.store, self.chain, self.version, self.node = store, chain, store.version, node
        self.writes = Writes() if writes is None else writes
        self.born = self.writes.count
        self.ages = (*ages, self.born) if chain else ()


def track_of(fake: FakeTensor) -> Track:
    return fake.__dict__["track"]


class Recorder:
    """Appends to the tape and keeps stores and tracks right."""

    def __init__(self, env: Any = None) -> None:
        self.tape: Tape = []
        self.line: Any = None
        self.quiet = False  # writes are not counted by eager's version counters
        self.late = LateNumbers(env, self._append)

    def emit(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, meta: Any = None
    ) -> Node:
        """A new node; its metadata is inferred from the nodes it reads unless given."""
        kwargs = kwargs or {}
        if meta is None:
            meta = infer(op, _metas(args), _metas(kwargs))
        if self.late.env is not None:
            args = placed(op, args)
            self.late.check()  # what the operation relies on comes before it
        return self._append(op, args, kwargs, meta)

    def _append(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, meta: Any = None) -> Node:
        kwargs = kwargs or {}
        node = Node(op, args, kwargs, meta, self.line)
        self.tape.append(node)
        return node

    def item(self, node: Node, index: int) -> Node:
        """One of several results."""
        return self.emit(operator.getitem, (node, index), meta=node.meta[index])

    # ---- reading

    def read(self, fake: FakeTensor) -> Node:
        """The node of a tensor's value now."""
        track = track_of(fake)
        if track.version != track.store.version:
            node = track.store.value
            if track.chain:
                _check_as_strided(track)
            for step in track.chain:
                node = self.apply_view(node, step)
            track.node, track.version = node, track.store.version
        return track.node

    def apply_view(self, base: Node, step: ViewStep) -> Node:
        if step.op is aten.view.default:
            # The value may be laid out more densely than eager's memory, never less, so this is a view in
            # practice.
            return reshape(self.emit, base, _view_size(base, step))
        node = self.emit(step.op, (base, *step.args), step.kwargs)
        return node if step.item is None else self.item(node, step.item)

    # ---- writing

    def write(self, fake: FakeTensor, node: Node) -> None:
        """From now on `fake`, and whatever shares its memory, sees `node`."""
        track = track_of(fake)
        store = track.store
        if store.frozen:
            raise Unsupported("an in-place write to a tensor that is a constant of the graph")
        if store.lazy or store.looked_at:
            raise Unsupported("an in-place write to memory that a lazy conjugate or negative shares")
        if _may_share_elements(track, fake.meta):
            raise Unsupported("an in-place write to a tensor whose elements share memory")
        node = self.in_layout(node, fake.meta)
        _check_as_strided(track)
        bases = [store.value]
        for step in track.chain[:-1]:
            bases.append(self.apply_view(bases[-1], step))
        new = node
        for step, base in zip(reversed(track.chain), reversed(bases), strict=False):
            new = scatter(self.emit, step.op, base, new, step.args, step.item)
            new = self.in_layout(new, base.meta)
        store.value = new
        store.version += 1
        if not self.quiet:
            track.writes.rise()
            track.writes.through.append(id(fake))
        track.node, track.version = node, store.version

    def in_layout(self, node: Node, like: TensorMeta) -> Node:
        """`node` in the dtype and memory layout of `like`. Memory with gaps has no functional form: dense,
        same order.
        """
        if node.meta.dtype != like.dtype:
            node = self.emit(aten._to_copy.default, (node,), {"dtype": like.dtype})
        if node.meta.strides == like.strides or not is_dense(like.shape, like.strides):
            return node
        if is_contiguous(like.shape, like.strides):
            if not _is_spread(node.meta) and is_contiguous(node.meta.shape, node.meta.strides):
                return node  # they differ only where a dimension has size 1
            return self.emit(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
        if len(like.shape) == 4 and is_channels_last(like.shape, like.strides):
            return self.emit(aten.clone.default, (node,), {"memory_format": torch.channels_last})
        order = iteration_order(like.shape, [like.strides])[::-1]
        moved = self.emit(aten.permute.default, (node, order))
        dense = self.emit(aten.clone.default, (moved,), {"memory_format": torch.contiguous_format})
        return self.emit(aten.permute.default, (dense, [order.index(dim) for dim in range(len(order))]))


def _is_spread(meta: TensorMeta) -> bool:
    """Surely or perhaps: which of the two is not asked of symbolic sizes, since a copy is right in any case."""
    return any(type(stride) is int and stride == 0 for stride in meta.strides) and any(map(is_symbolic, meta.shape))


def _check_as_strided(track: Track) -> None:
    """`as_strided` sees memory. A functional value stands for it only if it is dense, laid out as in
    eager, and whole.
    """
    for position, step in enumerate(track.chain):
        if step.op is not aten.as_strided.default:
            continue
        base = track.store.meta
        view = infer(step.op, (base, *step.args), step.kwargs)
        reach = (
            view.offset
            - base.offset
            + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
        )
        inside = view.offset >= base.offset and reach < numel(base.shape)
        if position > 0 or not inside or not track.store.exact or not is_dense(base.shape, base.strides):
            raise Unsupported("as_strided on memory that is written in place")


def _may_share_elements(track: Track, meta: TensorMeta) -> bool:
    """Eager writes such memory element by element, in an order of its own. Views from dense memory share none but for these two."""
    numbers = (*meta.shape, *meta.strides)
    if any(map(is_symbolic, numbers)):
        return any(step.op in (aten.unfold.default, aten.as_strided.default) for step in track.chain)
    return not surely_apart(meta.shape, meta.strides)


def _view_size(base: Node, step: ViewStep) -> Any:
    size = step.args[0]
    if -1 not in size:
        return size
    return infer(step.op, (base.meta, size), {}).shape


def _metas(value: Any) -> Any:
    kind = type(value)
    if kind is Node:
        return value.meta
    if kind is tuple:
        return tuple([_metas(item) for item in value])
    if kind is list:
        return [_metas(item) for item in value]
    if kind is dict:
        return {name: _metas(item) for name, item in value.items()}
    return value
