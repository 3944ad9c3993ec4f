"""Guards that keep tensors apart which the trace took for separate memory.

    def f(a, b):        a graph traced with two tensors may read `b` before or after it writes `a`;
        a.add_(1)       called as f(t, t), or with two views of one tensor, the order would matter
        return b * 2

So when a graph writes an input, no other input may share its memory in a later call. Storages are Python
objects that live as long as their memory, so their identities decide it, in one check. Inputs that share memory
while tracing need no guard: such a graph is compiled for that case.
"""

from __future__ import annotations

import torch

from dyncomp.guards.source import Call, Source
from dyncomp.values import registry
from dyncomp.values.base import Tracer
from dyncomp.values.torch_tensor import TensorValue, tensors_of

storage_of = torch.Tensor.untyped_storage


@registry.at_graph_end
def guard_written_inputs(tx: Tracer) -> None:
    inputs = [value for value in tensors_of(tx) if value.is_graph_input()]
    written: dict[int, list[Source]] = {}  # by storage
    read: list[Source] = []
    for value in inputs:
        storage = value.fake(tx).fake_storage
        (written.setdefault(id(storage), []) if storage.version > 0 else read).append(_storage(value))
    if len(written) > 1 or (written and read):
        groups = tuple([tuple(group) for group in written.values()])
        tx.guard(groups[0][0], "distinct", (groups, tuple(read)))


def _storage(value: TensorValue) -> Source:
    assert value.source is not None
    return Call(value.source, storage_of)
