"""Backward of the negative log likelihood: one element of each row is not zero.

    nll_loss_backward(g, x[n, c], target)[n, c]  =  c == target[n] and target[n] != ignored  ?  -g / total  :  0

As a value at an index it joins what reads it, the backward of log_softmax, and takes no memory. The forward has checked
the targets.
"""

from __future__ import annotations

from typing import Any

from dyncomp.codegen.ir.nodes import Value
from dyncomp.codegen.ir.types import HALVES, compute_type
from dyncomp.codegen.lower.builder import Lowering, dtype_of
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Indices, Scope, Tensor, may_be_empty

NONE, MEAN = 0, 1  # reductions, as ATen counts them


@lowering("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss(
    lx: Lowering, node: Any, grad: Tensor, x: Tensor, target: Tensor, weight: Any, reduction: int, ignored: int,
    total: Tensor,
) -> Any:  # fmt: skip
    """`x` is [N, C] or [N, C, H, W], `target` the same without C. f32 and f64."""
    val = node.meta["val"]
    dtype = dtype_of(val)
    operands = [t for t in (grad, x, weight, total) if t is not None]
    if dtype is None or any(t.dtype != dtype for t in operands) or dtype in HALVES or may_be_empty(x.shape):
        return None
    places = (*x.shape[:1], *x.shape[2:])
    if len(x.shape) < 2 or target.shape != places or target.dtype != "i64" or isinstance(ignored, bool):
        return None
    if grad.shape != (places if reduction == NONE else ()):
        return None
    kind = compute_type(dtype)

    def body(scope: Scope, index: Indices) -> Value:
        b = scope.b
        row = (*index[:1], *index[2:])
        wanted = scope.read(target, row)
        here = b.op("eq", wanted, b.position(index[1]))
        here = b.op("and", here, b.op("ne", wanted, b.const(ignored, "i64")))
        value = scope.read(grad, row if reduction == NONE else ())
        if reduction == MEAN:
            value = b.op("div", value, scope.read(total, ()))
        value = b.op("neg", value)
        if weight is not None:
            value = b.op("mul", scope.read(weight, (index[1],)), value)
        return b.op("where", here, value, b.const(0.0, kind))

    sources = [target, grad, *([total] if reduction == MEAN else []), *([] if weight is None else [weight])]
    return lx.compute(val.shape, dtype, body, sources, val.stride())
