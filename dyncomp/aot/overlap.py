"""Writes that overlap what they read.

`x[:, 1:] = x[:, :-1]` reads memory that it is writing: eager's result depends on the order in which its
kernel goes through the elements. A functional graph reads everything first, so it cannot stand for that.
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.fake.facts import OpFacts
from dyncomp.fake.inplace import targets_of
from dyncomp.fake.tensor import TensorMeta


def check_overlap(facts: OpFacts, bound: dict[str, Any]) -> None:
    """Raises Unsupported if a written argument shares elements with another argument, unless they are the
    same view.
    """
    written_names = {facts.names[position] for position in facts.written}
    written = [t for name in written_names for t in targets_of(bound.get(name))]
    read = [t for name, value in bound.items() if name not in written_names for t in targets_of(value)]
    for target in written:
        for source in read:
            if source.fake_storage is target.fake_storage and _overlap(target.meta, source.meta):
                raise Unsupported(f"{facts.op} reads memory that it writes")


def _overlap(a: TensorMeta, b: TensorMeta) -> bool:
    if a.key == b.key:
        return False
    if _end(a) <= b.offset or _end(b) <= a.offset or 0 in a.shape or 0 in b.shape:
        return False
    with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
        touched = torch.zeros(max(_end(a), _end(b)), dtype=torch.bool)
        touched.as_strided(a.shape, a.strides, a.offset).fill_(True)
        return bool(touched.as_strided(b.shape, b.strides, b.offset).any())


def _end(meta: TensorMeta) -> int:
    return meta.offset + 1 + sum((n - 1) * s for n, s in zip(meta.shape, meta.strides, strict=True))
