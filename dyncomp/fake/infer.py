"""Metadata of an operation's results: by rule where there is one, else by meta kernel."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake import rules as _rules  # noqa: F401  (fills the registry)
from dyncomp.fake.meta_kernel import infer_by_meta_kernel
from dyncomp.fake.registry import RULES
from dyncomp.fake.scalars import check_numbers


def infer(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`args` and `kwargs` hold `TensorMeta`s for tensors; so does the result."""
    rule = RULES.get(op)
    result = rule(*args, **kwargs) if rule is not None else None
    if result is None:
        result = infer_by_meta_kernel(op, args, kwargs)
    check_numbers(op, args, kwargs, result)
    return result
