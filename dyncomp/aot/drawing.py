"""Bernoulli fills in memory that is not row-major.

`bernoulli_(p)` draws in the order of its target's memory (unless torch was built to draw in logical order,
which is tried once); the functional `bernoulli(p)` always has row-major memory. So the functional form draws
for the dimensions in memory order and the result is permuted back:

    y = x.t(); y.bernoulli_(p)   ->   d = bernoulli(permute(y, [1, 0]), p); new y = permute(d, [1, 0])
"""

from __future__ import annotations

import functools

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.aot.store import Recorder
from dyncomp.aot.tape import Node
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import is_contiguous, iteration_order

aten = torch.ops.aten


def record_bernoulli(recorder: Recorder, node: Node, target: TensorMeta, p: float) -> Node:
    """The node of `target.bernoulli_(p)`, given the node of the target's old value."""
    if is_contiguous(target.shape, target.strides):
        return recorder.emit(aten.bernoulli.p, (node, p))
    if target.device.type != "cpu" or not _draws_in_memory_order():
        raise Unsupported("aten.bernoulli_ on a tensor that is not row-major")
    order = iteration_order(target.shape, [target.strides])[::-1]
    drawn = recorder.emit(aten.bernoulli.p, (recorder.emit(aten.permute.default, (node, order)), p))
    return recorder.emit(aten.permute.default, (drawn, [order.index(dim) for dim in range(len(order))]))


@functools.cache
def _draws_in_memory_order() -> bool:
    """Draws from a generator of its own, on tensors too large for the orders to agree by chance."""
    with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
        generator = torch.Generator()
        row_major = torch.empty(37, 41).bernoulli_(0.5, generator=generator.manual_seed(0))
        column_major = torch.empty(37, 41).t().bernoulli_(0.5, generator=generator.manual_seed(0))
        gaps = torch.empty(37, 82)[:, ::2].bernoulli_(0.5, generator=generator.manual_seed(0))
        return torch.equal(row_major.t(), column_major) and torch.equal(row_major, gaps)
