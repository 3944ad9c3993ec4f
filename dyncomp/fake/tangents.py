"""Zeros that autograd makes for tangents and gradients that are not there.

    aten._efficientzerotensor([2, 3])       zeros without memory: torch's kernels multiply nothing with them, so that 0 * inf is 0
    aten._new_zeros_with_same_feature_meta  zeros laid out as a primal is, batches of them one behind the other

Fakes of the first kind have the dispatch key of the real ones, and so torch's own kernels decide what comes of them; in a graph they
are zeros like others. A dot product, which looks at its operands itself, and the second kind have a form here, in operations of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dyncomp.shape.symbolic import is_symbolic

aten = torch.ops.aten
ZEROS_WITHOUT_MEMORY = aten._efficientzerotensor.default


def _dot(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a._is_zerotensor() or b._is_zerotensor():
        return ZEROS_WITHOUT_MEMORY((), dtype=a.dtype, device=a.device)
    return NotImplemented


def _zeros_like_primal(tangent: torch.Tensor, primal: torch.Tensor, *, self_num_batch_dims: int = 0) -> torch.Tensor:
    offset, batch = primal.storage_offset(), tuple(tangent.shape[:self_num_batch_dims])
    reach: Any = offset + 1
    for n, stride in zip(primal.shape, primal.stride(), strict=True):
        reach = reach + (n - 1 if is_symbolic(n) else max(n - 1, 0)) * stride
    strides: list[Any] = []
    for n in reversed(batch):
        strides.append(reach)
        reach = reach * n
    zeros = torch.zeros(reach, dtype=tangent.dtype, device=tangent.device)
    return zeros.as_strided((*batch, *primal.shape), (*reversed(strides), *primal.stride()), offset)


FORMS: dict[Any, Callable[..., Any]] = {
    aten.dot.default: _dot,
    aten.vdot.default: _dot,
    aten._new_zeros_with_same_feature_meta.default: _zeros_like_primal,
}
