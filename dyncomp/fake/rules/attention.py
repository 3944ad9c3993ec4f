"""Fused attention kernels."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.promotion import FLOATS
from dyncomp.fake.registry import rule
from dyncomp.fake.rules.like import preserved
from dyncomp.fake.tensor import TensorMeta


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention(
    query: TensorMeta,
    key: TensorMeta,
    value: TensorMeta,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[TensorMeta, ...] | None:
    """The output is laid out as the query; the log-sum-exp is kept with heads innermost, in at least
    float32.
    """
    operands = (query, key, value)
    if any(t.ndim != 4 or t.dtype != query.dtype for t in operands) or query.dtype not in FLOATS:
        return None
    batch, heads, length, _ = query.shape
    dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
    sums = TensorMeta((batch, heads, length), (length * heads, 1, heads), dtype, query.device)
    return preserved(query), sums
