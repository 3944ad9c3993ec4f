"""Fused attention kernels."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.promotion import FLOATS
from dyncomp.fake.registry import rule
from dyncomp.fake.rules.like import preserved
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import contiguous_strides


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


@rule("_transformer_encoder_layer_fwd")
def _encoder_layer(src: TensorMeta, *args: Any, **kwargs: Any) -> TensorMeta | None:
    """A whole layer in one operation, from torch.nn.TransformerEncoderLayer; torch before 2.12 has no meta kernel for it. Its last
    step is a projection or a norm of fresh memory, so the result is row-major however `src` is laid out.
    """
    weights = [t for t in (*args, *kwargs.values()) if type(t) is TensorMeta and t.dtype in FLOATS]
    if src.ndim != 3 or src.dtype not in FLOATS or any(t.dtype != src.dtype or t.device != src.device for t in weights):
        return None
    return TensorMeta(src.shape, contiguous_strides(src.shape), src.dtype, src.device)
