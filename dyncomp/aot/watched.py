"""What eager's history keeps of tensors that can be written after the call: of inputs, and of results that the program returns.

    y = x.exp(); z = y * w; return y, z     ->     of y (output 0 of Exp, twice: mul keeps it too), of w

Eager compares version counters when a backward comes to the node that keeps such a tensor, and raises where it was written since. Our
backward may read other values, or none, so the list goes with it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils._python_dispatch import _disable_current_modes

from dyncomp._frame import _exec
from dyncomp.aot.ends import saved_names
from dyncomp.aot.store import track_of
from dyncomp.errors import InternalError
from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.symbolic import is_symbolic


@dataclasses.dataclass(frozen=True)
class Watched:
    """A tensor over the memory of an input or raw output (`kind`, `index`), kept by a node between these outputs and inputs (sets as in
    `aot.ends`). What eager calls it: `sizes` (None: as at the call), `type`, `origin` ("" for a leaf), and `itself`: it is that very
    input, whose history tells.
    """

    kind: str
    index: int
    sizes: tuple[int, ...] | None
    type: str
    outputs: int
    inputs: int
    origin: str
    itself: bool


# By ("input", i) or ("raw", k): the nodes that keep its memory, each as the sets of outputs and inputs that it lies between.
Memory = dict[tuple[str, int], set[tuple[int, int]]]


def watched_tensors(
    results: Sequence[Any], ends: Mapping[Any, tuple[int, int]], inputs: Sequence[Any], raw: Sequence[Any]
) -> tuple[list[Watched], Memory]:
    """In the order in which eager's backward of all `results` comes to it; and all memory that is kept, under whatever version (`x.data`
    has its own). `ends`: by node of the history from which results to which inputs it lies; to be called in the mode that recorded it,
    when all writes of the program are done.
    """
    tensors = [(("raw", k), one) for k, one in enumerate(raw)]
    tensors += [(("input", i), one) for i, one in enumerate(inputs) if type(one) is FakeTensor]
    owners = {id(track_of(one).writes): key for key, one in tensors}
    stores = {id(track_of(one).store): key for key, one in tensors}
    memory: Memory = {}
    found: dict[Watched, None] = {}
    for node in _exec.backward_order(tuple(results)) if results else ():
        between = ends.get(node)
        if between is None or not between[1]:
            continue
        for one, origin in _kept_by(node):
            if type(one) is not FakeTensor:
                continue
            if (key := stores.get(id(track_of(one).store))) is not None:
                memory.setdefault(key, set()).add(between)
            owner = owners.get(id(track_of(one).writes))
            if owner is not None:
                itself = owner[0] == "input" and one is inputs[owner[1]]
                sizes = None if any(map(is_symbolic, one.meta.shape)) else one.meta.shape
                made_outside = itself and not track_of(one).store.version
                found[Watched(*owner, sizes, _type_of(one.meta.dtype), *between, "" if made_outside else origin, itself)] = None
    return list(found), memory


def _kept_by(node: Any) -> Iterator[tuple[Any, str]]:
    """What is kept, but for what was written by the program itself since: the backward that is recorded raises for that. And what
    eager calls it.
    """
    for one in (node, _exec.written_part(node)):
        if isinstance(one, BackwardCFunction):
            for kept in _told(one, "saved_tensors"):
                yield kept, _origin_of(kept)
        elif one is not None:
            for name in saved_names(one.__class__):
                for kept in _told(one, f"_{name}"):
                    is_written = one is not node and name == "saved_result"
                    yield kept, f"output 0 of {_operation_of(one.name())}" if is_written else _origin_of(kept)


def _told(node: Any, name: str) -> Iterator[Any]:
    try:
        kept = getattr(node, name)
    except RuntimeError:
        return
    yield from kept if isinstance(kept, (tuple, list)) else (kept,)


def _origin_of(kept: Any) -> str:
    """By the history that autograd knows when it complains: a view gets a new one after a write to its base."""
    if not isinstance(kept, torch.Tensor) or kept.grad_fn is None:
        return ""
    name = "AsStridedBackward0" if kept._is_view() else kept.grad_fn.name()
    return f"output {kept.output_nr} of {_operation_of(name)}"


def _operation_of(node: str) -> str:
    """As eager's message calls it: of ExpBackward0 Exp, of LeakyReluBackward1 LeakyRelu1, of a custom function its own name; older
    releases of torch give the node's.
    """
    found = re.fullmatch(r"(.*)Backward(\d*)", node) if _names_operations() else None
    return node if found is None else found[1] + found[2].removeprefix("0")


@functools.cache
def _type_of(dtype: torch.dtype) -> str:
    with _disable_current_modes():
        return torch.empty(0, dtype=dtype).type()  # type: ignore[no-any-return]


@functools.cache
def _names_operations() -> bool:
    with torch.inference_mode(False), torch.enable_grad(), _disable_current_modes():
        x = torch.ones(1, requires_grad=True)
        y = x.exp()
        y.detach().zero_()
        try:
            torch.autograd.grad(y, x)
        except RuntimeError as error:
            return "ExpBackward" not in str(error)
    raise InternalError("a write to a kept value does not raise")
