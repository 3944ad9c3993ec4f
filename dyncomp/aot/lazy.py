"""Lazy conjugates and negatives: in eager views with a bit set, in a graph values of their own.

    grad * w.conj()      aten._conj(w), aten.mul(grad, _)      ->      aten._conj_physical(w), aten.mul(grad, _)

Autograd's formulas make and use them up at once, so nobody sees the difference. Where somebody could, the graph is refused: one
that comes out (its bit would be missing), one that is written, and one whose memory is written afterwards.
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.aot.store import Recorder, Store, Track, track_of
from dyncomp.fake.tensor import FakeTensor, TensorMeta, make_fake

aten = torch.ops.aten

VALUES: dict[Any, Any] = {aten._conj.default: aten._conj_physical.default, aten._neg_view.default: aten.neg.default}


def value_of(recorder: Recorder, op: Any, base: FakeTensor) -> FakeTensor:
    """The result of `op` on `base` as memory of its own, laid out as the view would be."""
    meta = base.meta
    if op is aten._conj.default and not meta.dtype.is_complex:
        raise Unsupported("a conjugate of real numbers")  # eager gives the tensor itself
    node = recorder.emit(VALUES[op], (recorder.read(base),))
    own = TensorMeta(meta.shape, meta.strides, meta.dtype, meta.device)
    fake = make_fake(own, zero=base._is_zerotensor())
    fake.__dict__["track"] = Track(Store(node, own), (), node)
    track_of(fake).store.lazy = True
    track_of(base).store.looked_at = True
    return fake


def check_result(fake: FakeTensor) -> None:
    """Raises Unsupported for a result whose bit would be missing."""
    if track_of(fake).store.lazy:
        raise Unsupported("a result that is a lazy conjugate or negative")
