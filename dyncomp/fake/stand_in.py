"""Functions that torch composes otherwise for tensors without data than for real ones, before any mode sees them.

    one_hot(x, 5)     of a fake: (x.unsqueeze(-1) == arange(5)), in the layout of x      eager: zeros and scatter_, row-major

On fakes a stand-in runs in their place, which gives metadata alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional

from dyncomp.fake.errors import DataDependentShape
from dyncomp.shape.layout import late, must_hold


def _one_hot(tensor: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    if not late(num_classes) and num_classes == -1:
        raise DataDependentShape(
            "aten.one_hot.default", "without num_classes the size of the result depends on tensor data"
        )
    if tensor.dtype is not torch.int64 or not must_hold(num_classes >= 1):
        return torch.nn.functional.one_hot(tensor, num_classes)  # raises eager's error
    return tensor.new_empty((*tensor.shape, num_classes))


_STAND_INS: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.one_hot: _one_hot,
    torch.ops.aten.one_hot.default: _one_hot,
    torch.ops.aten.one_hot: _one_hot,
}


def stand_in(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What to call on fakes for `fn`; nearly always itself."""
    return _STAND_INS.get(fn, fn) if type(fn).__hash__ is not None else fn
