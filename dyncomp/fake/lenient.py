"""Calls that torch's meta kernels take and eager refuses whatever the data: eager is asked about those that look like one.

aten.mm(float32, float64)          meta kernel: a float32 tensor    eager: RuntimeError, the same dtype expected
aten._softmax(2 x 3, dim=3)        meta kernel: 2 x 3               eager: IndexError, dimension out of range
aten.max(no element)               meta kernel: a number            eager: RuntimeError, which dimension?
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dyncomp.fake.refusal import asked
from dyncomp.fake.rules.view import wrap_dim
from dyncomp.fake.tensor import TensorMeta

aten = torch.ops.aten
Question = Callable[..., bool]


def check_taken(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises what eager raises for such a call. `args` and `kwargs` hold `TensorMeta`s for tensors."""
    doubtful = _DOUBTFUL.get(op)
    if doubtful is not None and doubtful(*args, **kwargs):
        told = asked(op, args, kwargs)
        if told is not None:
            raise told


def _dtypes_differ(*places: int) -> Question:
    def question(*args: Any, **kwargs: Any) -> bool:
        found = [args[place] for place in places if place < len(args)]
        return len({value.dtype for value in found if type(value) is TensorMeta}) > 1

    return question


def _parameters_differ(*places: int) -> Question:
    """Norms take parameters and statistics of single precision beside low precision."""

    def question(x: TensorMeta, *args: Any, **kwargs: Any) -> bool:
        given = [args[place - 1] for place in places]
        return any(type(p) is TensorMeta and p.dtype not in (x.dtype, torch.float32) for p in given)

    return question


def _beyond(x: TensorMeta, dim: int = -1, *rest: Any, **kwargs: Any) -> bool:
    return wrap_dim(dim, max(x.ndim, 1)) is None


def _no_elements(x: TensorMeta, *rest: Any, **kwargs: Any) -> bool:
    return 0 in x.shape


def _table(rows: dict[str, Question]) -> dict[Any, Question]:
    found = {}
    for names, question in rows.items():
        for name in names.split():
            packet, _, overload = name.partition(".")
            found[getattr(getattr(aten, packet), overload or "default")] = question
    return found


_DOUBTFUL = _table(
    {
        "mm bmm mv dot vdot": _dtypes_differ(0, 1),
        "addmm addmv baddbmm addbmm convolution": _dtypes_differ(0, 1, 2),
        "index_add index_add_": _dtypes_differ(0, 3),
        "index_put index_put_": _dtypes_differ(0, 2),
        "native_layer_norm": _parameters_differ(2, 3),
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional": _parameters_differ(1, 2, 3, 4),
        "_softmax _log_softmax sort": _beyond,
        "sort.stable": lambda x, *, dim=-1, **rest: _beyond(x, dim),
        "index_select": lambda x, dim, index: index.ndim > 1,
        "max min max.dim min.dim": _no_elements,
    }
)
