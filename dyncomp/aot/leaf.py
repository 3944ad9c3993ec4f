"""Composite operations that stay whole in an inference graph.

Everything else that torch composes is taken apart into what its own C++ kernel calls,
`scaled_dot_product_attention` included: it becomes the fused kernel that eager chooses, or matmul and
softmax.
"""

from __future__ import annotations

import torch

aten = torch.ops.aten

# Their composites compute otherwise for plain tensors without gradients than for those that Python code
# stands behind.
_KEPT = frozenset(
    {
        aten.max_pool1d.default,
        aten.linalg_eigvalsh.default,
        aten.linalg_svdvals.default,
        aten.linalg_eigvals.default,
    }
)


def keeps_whole(op: torch._ops.OpOverload) -> bool:
    return op in _KEPT
