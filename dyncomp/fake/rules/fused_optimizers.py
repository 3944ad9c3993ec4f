"""The fused optimisers: they write lists of tensors and return nothing."""

from __future__ import annotations

from typing import Any

from dyncomp.fake.registry import rule


@rule(
    "_fused_adam_.default _fused_adam_.tensor_lr _fused_adamw_.default _fused_adamw_.tensor_lr "
    "_fused_sgd_.default _fused_sgd_.tensor_lr _fused_adagrad_.default _fused_adagrad_.tensor_lr"
)
def fused_step(params: Any, grads: Any, *rest: Any, **options: Any) -> Any:
    """Nothing where every parameter has its gradient; anything else is for the kernel to refuse."""
    if len(params) != len(grads) or any(p.shape != g.shape for p, g in zip(params, grads, strict=True)):
        return None
    return ()
