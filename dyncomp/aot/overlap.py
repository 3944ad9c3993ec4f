"""Writes that overlap what they read.

    x[:, 1:] = x[:, :-1]        refused        x[:, 1:] = x[:, :1]        slices that lie apart: recorded

The first reads memory that it is writing: eager's result depends on the order in which its kernel goes through the
elements. A functional graph reads everything first, so it cannot stand for that.
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.aot.store import ViewStep, track_of
from dyncomp.fake.facts import OpFacts
from dyncomp.fake.infer import infer
from dyncomp.fake.inplace import targets_of
from dyncomp.fake.rules.view import bounds
from dyncomp.fake.tensor import FakeTensor, TensorMeta
from dyncomp.shape.symbolic import is_symbolic

aten = torch.ops.aten


def check_overlap(facts: OpFacts, bound: dict[str, Any]) -> None:
    """Raises Unsupported if a written argument shares elements with another argument, unless they are the
    same view.
    """
    written_names = {facts.names[position] for position in facts.written}
    written = [t for name in written_names for t in targets_of(bound.get(name))]
    read = [t for name, value in bound.items() if name not in written_names for t in targets_of(value)]
    for target in written:
        for source in read:
            if source.fake_storage is target.fake_storage and _overlap(facts, target, source):
                raise Unsupported(f"{facts.op} reads memory that it writes")


def _overlap(facts: OpFacts, target: FakeTensor, source: FakeTensor) -> bool:
    a, b = target.meta, source.meta
    if a.key == b.key:
        return False
    if any(map(is_symbolic, (*a.shape, *a.strides, a.offset, *b.shape, *b.strides, b.offset))):
        if not _apart(target, source):
            raise Unsupported(f"{facts.op} reads memory that it writes, perhaps: symbolic sizes do not tell")
        return False
    if _end(a) <= b.offset or _end(b) <= a.offset or 0 in a.shape or 0 in b.shape:
        return False
    with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
        touched = torch.zeros(max(_end(a), _end(b)), dtype=torch.bool)
        touched.as_strided(a.shape, a.strides, a.offset).fill_(True)
        return bool(touched.as_strided(b.shape, b.strides, b.offset).any())


def _end(meta: TensorMeta) -> int:
    return meta.offset + 1 + sum((n - 1) * s for n, s in zip(meta.shape, meta.strides, strict=True))


def _apart(a: FakeTensor, b: FakeTensor) -> bool:
    """True for views of one tensor of which the first difference is a slice or row of the same dimension, elsewhere. That the
    one ends before the other begins is asked of the sizes, and guarded.
    """
    meta = track_of(a).store.meta
    for mine, other in zip(track_of(a).chain, track_of(b).chain, strict=False):
        spans = [_span(step, meta) for step in (mine, other)]
        if None not in spans:
            (dim, start, end), (dim_b, start_b, end_b) = spans  # type: ignore[misc]
            if dim != dim_b:
                return False
            if end <= start_b or end_b <= start:
                return True
        if not _same(mine, other):
            return False
        made = infer(mine.op, (meta, *mine.args), mine.kwargs)
        meta = made if mine.item is None else made[mine.item]
    return False


def _span(step: ViewStep, meta: TensorMeta) -> tuple[int, Any, Any] | None:
    """(dimension, first position, the one after the last) of a slice or row."""
    if step.kwargs:
        return None
    if step.op is aten.select.int:
        dim, index = step.args
        size = meta.shape[dim]
        first = index + size if index < 0 else index
        return dim % meta.ndim, first, first + 1
    if step.op is aten.slice.Tensor:
        defaults: list[Any] = [0, None, None]
        dim, start, end, *_ = [*step.args, *defaults[len(step.args) :]]
        first, last = bounds(start, end, meta.shape[dim])
        return dim % meta.ndim, first, last
    return None


def _same(a: ViewStep, b: ViewStep) -> bool:
    if a is b:
        return True
    plain = not any(is_symbolic(value) for step in (a, b) for value in step.args)
    return plain and a == b
