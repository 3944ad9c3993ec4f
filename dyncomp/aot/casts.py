"""Weights that autocast has cast once for all of a block, as inputs of a graph.

    with torch.autocast("cpu"):          eager:   c = w.to(bfloat16), kept in autocast's cache; a = x @ c; b = y @ c
        a = compiled(x, w)                        the gradients of a and b are added in bfloat16, and cast once
        b = compiled(y, w)               graph:   a = f(x, w, c), where c comes from that cache (`_exec.CastingCall`)

Input: the inputs of a graph that is recorded where autocast is on already. Output: which of them the graph reads as such a cast, and,
when it is recorded once more, those casts as inputs after the others. What the program itself casts is no matter of autocast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dyncomp._frame import _exec
from dyncomp.aot.store import track_of
from dyncomp.aot.tracer import TraceMode
from dyncomp.errors import InternalError
from dyncomp.fake.tensor import FakeTensor, TensorMeta, make_fake

Casts = tuple[tuple[int, torch.dtype], ...]  # (input, to what), in the order in which eager makes them


class _Given(TorchDispatchMode):
    """The one operation inside, a cast, results in a tensor that is there already."""

    def __init__(self, cast: torch.Tensor):
        super().__init__()
        self.cast = cast

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.cast


def remember(weight: torch.Tensor, cast: torch.Tensor) -> None:
    """Makes `cast`, a leaf, what autocast's cache has for `weight`, another; autocast is on. To autograd they have nothing in common."""
    asking = cast.requires_grad
    with _Given(cast.requires_grad_(False)):
        if _exec.cached_cast(weight, cast.dtype) is not cast:
            raise InternalError("autocast does not take a cast for a weight into its cache")
    with torch._C._DisableTorchDispatch():
        cast.detach_().requires_grad_(asking)


def cached_dtypes() -> dict[str, torch.dtype]:
    """By device to what autocast casts weights now, where it keeps the casts."""
    if not torch.is_autocast_cache_enabled():
        return {}
    return {device: torch.get_autocast_dtype(device) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)}


def found_in_cache(mode: TraceMode, inputs: Sequence[Any], before_it: dict[str, torch.dtype]) -> Casts:
    """The inputs that the graph, which has just run in `mode`, reads as casts from autocast's cache. `before_it`: `cached_dtypes()` then."""
    kept = cached_dtypes()
    found = []
    tape = mode.recorder.tape
    for index, one in enumerate(inputs):
        if type(one) is not FakeTensor or not (one.requires_grad and one.is_leaf and one.meta.dtype is torch.float32):
            continue
        device = one.meta.device.type
        dtype, before = kept.get(device), len(tape)
        if dtype is None or dtype is not before_it.get(device):
            continue
        with mode:
            cast = _exec.cached_cast(one, dtype)
        if len(tape) > before or cast is one:  # it was not there, and is made now
            del tape[before:]
        else:
            found.append((tape.index(track_of(cast).node), index, dtype))
    return tuple([(index, dtype) for _, index, dtype in sorted(found, key=lambda one: one[0])])


def cast_inputs(inputs: Sequence[Any], casts: Casts) -> list[Any]:
    """Fakes like the casts. Each is a leaf: what lies behind it is no part of the graph."""
    metas = [(inputs[index].meta, dtype) for index, dtype in casts]
    return [make_fake(TensorMeta(meta.shape, meta.strides, dtype, meta.device), requires_grad=True) for meta, dtype in metas]
