"""Operations whose result has a number that only running them gives: `nonzero`, a boolean index, `.item()`.

    mask: b8[s0]       x[mask]    ->   f32[u0]         0 <= u0 <= s0
    n: i64[]           n.item()   ->   u1

Each result's number is a new symbol without a hint, with the bounds that the operation keeps. The same question about the same
tensor gives the same symbol, so that `x[mask] + y[mask]` has one size. Strides are those of the CPU kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dyncomp import config
from dyncomp.fake.errors import DataDependentShape, DataDependentValue, FakeError
from dyncomp.fake.facts import OpFacts
from dyncomp.fake.infer import infer
from dyncomp.fake.tensor import FakeTensor, TensorMeta
from dyncomp.shape.layout import broadcast, contiguous_strides, numel
from dyncomp.shape.symbolic import plain

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

aten = torch.ops.aten
_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
Rule = Callable[..., Any]
_RULES: dict[torch._ops.OpOverload, Rule] = {}


def allowed(facts: OpFacts) -> bool:
    """True if the knobs let such an operation into a graph, and there is a rule for it."""
    if facts.op not in _RULES:
        return False
    return bool(config.capture_scalar_outputs if facts.data_value else config.capture_dynamic_output_shape_ops)


def infer_late(env: ShapeEnv, facts: OpFacts, args: Any, kwargs: Any, metas: Callable[[Any], Any]) -> Any:
    """Metadata of the results (a number for `.item()`). `metas` turns fakes into metadata. Raises FakeError for what no rule covers."""
    return _RULES[facts.op](_Call(env, str(facts.op), metas), *args, **kwargs)


class _Call:
    """What a rule needs besides the operation's own arguments, which are fakes."""

    def __init__(self, env: ShapeEnv, op: str, metas: Callable[[Any], Any]):
        self.env, self.op, self.metas = env, op, metas

    def refuse(self, why: str) -> FakeError:
        kind = DataDependentValue if self.op == str(aten._local_scalar_dense.default) else DataDependentShape
        return kind(self.op, why)

    def number(self, of: FakeTensor, what: Any, make: Callable[[], Any]) -> Any:
        """The answer to the question `what` about the data of a tensor, asked once as long as nobody writes to it."""
        known: dict[Any, Any] = of.__dict__.setdefault("late", {})
        key = (what, of.fake_storage.version)
        if key not in known:
            known[key] = make()
        return plain(known[key])

    def count(self, of: FakeTensor, what: Any, low: int, most: Any) -> Any:
        """A number from `low` to `most`, which may be symbolic."""

        def make() -> Any:
            if isinstance(most, int):
                return self.env.create_unbacked(low, max(most, low))
            number = self.env.create_unbacked(low)
            self.env.learn_bound(number, most)
            return number

        return self.number(of, what, make)


def _rule(*ops: Any) -> Callable[[Rule], Rule]:
    def enter(function: Rule) -> Rule:
        for op in ops:
            _RULES[op] = function
        return function

    return enter


def _row_major(shape: Sequence[Any], dtype: torch.dtype, like: TensorMeta) -> TensorMeta:
    return TensorMeta(tuple(shape), contiguous_strides(shape), dtype, like.device)


@_rule(aten._local_scalar_dense.default)
def _local_scalar_dense(call: _Call, x: FakeTensor) -> Any:
    dtype = x.meta.dtype
    if dtype in _FLOATS:
        return call.number(x, "item", call.env.create_unbacked_float)
    if dtype not in _INTEGERS:
        raise call.refuse(f"the value of a {dtype} tensor")
    limits = torch.iinfo(dtype)
    if dtype is torch.int64:
        return call.number(x, "item", call.env.create_unbacked)
    return call.number(x, "item", lambda: call.env.create_unbacked(limits.min, limits.max))


def _nonzero_count(call: _Call, x: FakeTensor) -> Any:
    return call.count(x, "nonzero", 0, numel(x.meta.shape))


@_rule(aten.nonzero.default)
def _nonzero(call: _Call, x: FakeTensor) -> TensorMeta:
    """The kernel writes one column a dimension, so the result is column-major."""
    if x.meta.device.type != "cpu":
        raise call.refuse("the memory layout of its result is known on the CPU only")
    count = _nonzero_count(call, x)
    return TensorMeta((count, x.meta.ndim), (1, count), torch.int64, x.meta.device)


@_rule(aten.masked_select.default)
def _masked_select(call: _Call, x: FakeTensor, mask: FakeTensor) -> TensorMeta:
    shape = broadcast([x.meta.shape, mask.meta.shape])
    if shape is None or mask.meta.dtype is not torch.bool:
        raise call.refuse("shapes that do not broadcast, or a mask that is not bool")
    if len(shape) == mask.meta.ndim and all(a is b or a == b for a, b in zip(shape, mask.meta.shape, strict=True)):
        count = _nonzero_count(call, mask)
    else:
        count = call.count(mask, ("masked_select", len(shape), str(shape)), 0, numel(shape))
    return _row_major((count,), x.meta.dtype, x.meta)


@_rule(aten.index.Tensor)
def _index(call: _Call, x: FakeTensor, indices: Sequence[Any]) -> Any:
    """A mask stands for the columns of its nonzero."""
    metas: list[Any] = []
    for index in indices:
        if not isinstance(index, torch.Tensor) or index.dtype not in (torch.bool, torch.uint8):
            metas.append(call.metas(index))
            continue
        if not isinstance(index, FakeTensor) or index.dtype is torch.uint8:
            raise call.refuse("a mask that is a constant of the graph or of uint8")
        mask = index.meta
        if len(metas) + mask.ndim > x.meta.ndim or mask.ndim == 0:
            raise call.refuse("a mask of more dimensions than there are, or of none")
        for dim, size in enumerate(mask.shape):
            if size != x.meta.shape[len(metas) + dim]:
                raise IndexError(
                    f"The shape of the mask {list(mask.shape)} at index {dim} does not match the shape of the indexed tensor "
                    f"{list(x.meta.shape)} at index {len(metas) + dim}"
                )
        column = TensorMeta((_nonzero_count(call, index),), (1,), torch.int64, mask.device)
        metas.extend([column] * mask.ndim)
    return infer(aten.index.Tensor, (x.meta, metas), {})


def _least(x: FakeTensor) -> int:
    """How many different values there are at least, as far as is known without asking."""
    size = numel(x.meta.shape)
    return 1 if isinstance(size, int) and size > 0 else 0


@_rule(aten._unique2.default)
def _unique2(
    call: _Call, x: FakeTensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    count = call.count(x, "unique", _least(x), numel(x.meta.shape))
    return (
        _row_major((count,), x.meta.dtype, x.meta),
        _row_major(x.meta.shape if return_inverse else (0,), torch.int64, x.meta),
        _row_major((count,) if return_counts else (0,), torch.int64, x.meta),
    )


@_rule(aten.unique_consecutive.default)
def _unique_consecutive(
    call: _Call, x: FakeTensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim is not None:
        raise call.refuse("unique values along a dimension")
    count = call.count(x, "unique_consecutive", _least(x), numel(x.meta.shape))
    return (
        _row_major((count,), x.meta.dtype, x.meta),
        _row_major(x.meta.shape if return_inverse else (0,), torch.int64, x.meta),
        _row_major((count,) if return_counts else (0,), torch.int64, x.meta),
    )


@_rule(aten.repeat_interleave.Tensor)
def _repeat_interleave(call: _Call, repeats: FakeTensor, *, output_size: Any = None) -> TensorMeta:
    if repeats.meta.ndim != 1 or repeats.meta.dtype not in (torch.int32, torch.int64):
        raise call.refuse("repeats that are not a row of integers")
    total = output_size
    if total is None:
        total = call.number(repeats, "repeat_interleave", lambda: call.env.create_unbacked(0))
    return _row_major((total,), repeats.meta.dtype, repeats.meta)


@_rule(aten.bincount.default)
def _bincount(call: _Call, x: FakeTensor, weights: FakeTensor | None = None, minlength: Any = 0) -> TensorMeta:
    if x.meta.ndim != 1 or x.meta.dtype not in _INTEGERS or not isinstance(minlength, int) or minlength < 0:
        raise call.refuse("anything but a row of integers")
    count = call.number(x, ("bincount", minlength), lambda: call.env.create_unbacked(minlength))
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.meta.dtype is torch.float32 else torch.float64
    return _row_major((count,), dtype, x.meta)
