"""Shapes by torch's own meta kernels, memoised: the way for every operation without a rule.

aten.cumsum.default, (TensorMeta((2, 3), ...), 0)   ->   TensorMeta((2, 3), ...)
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import torch

from dyncomp.fake.errors import DataDependentShape, NoShapeRule, OtherLayout
from dyncomp.fake.facts import Kind, facts_of
from dyncomp.fake.no_dynamo import keep_dynamo_out
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.symbolic import env_of, is_symbolic, number_key, plain

_MEMO_LIMIT = 20_000
_memo: collections.OrderedDict[Any, Any] = collections.OrderedDict()
_META = torch.device("meta")
# Operations that may mix devices: the result lives on the device of the first tensor.
_MIXED_DEVICES = frozenset(
    {"aten::copy_", "aten::copy", "aten::index", "aten::index_put", "aten::index_put_"}
)


def infer_by_meta_kernel(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs the operation on meta tensors; results are `TensorMeta`s in the same containers."""
    if any(is_symbolic(meta.offset) for meta in tensor_metas((*args, *kwargs.values()))):
        return _from_zero(op, args, kwargs)
    env = env_of(numbers((args, kwargs)))
    memo = _memo if env is None else env.memo
    key: Any = None
    known = None
    try:
        key = (op, key_of(args), key_of(kwargs), torch.get_default_dtype())
        known = memo.get(key)
    except TypeError:  # an argument that cannot be hashed, such as a generator
        pass
    if known is not None:
        return known
    device = _result_device(op, args, kwargs)
    result = _describe(op, _run(op, args, kwargs, symbolic=env is not None), device)
    if key is not None:
        memo[key] = result
        if len(_memo) > _MEMO_LIMIT:
            _memo.popitem(last=False)
    return result


def _from_zero(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """For tensors that start at a symbolic place of their storage: as if they started at 0, since kernels ask where a tensor starts."""

    def moved(value: Any, offset: Any) -> Any:
        if type(value) is TensorMeta:
            start = 0 if offset is None else value.offset + offset
            return TensorMeta(value.shape, value.strides, value.dtype, value.device, start)
        return type(value)(moved(item, offset) for item in value) if isinstance(value, (list, tuple)) else value

    result = infer_by_meta_kernel(op, moved(args, None), {name: moved(value, None) for name, value in kwargs.items()})
    if facts_of(op).kind is not Kind.VIEW:
        return result
    base = next(tensor_metas((*args, *kwargs.values())))
    return moved(result, base.offset)


def numbers(value: Any) -> Iterator[Any]:
    """All numbers in nested arguments, sizes of tensors included."""
    if type(value) is TensorMeta:
        yield from value.shape
        yield from value.strides
        yield value.offset
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, dict):
        yield from numbers(list(value.values()))
    else:
        yield value


def key_of(value: Any) -> Any:
    kind = type(value)
    if kind is TensorMeta:
        return value.key
    if kind is list or kind is tuple:
        return (kind, *map(key_of, value))
    if kind is dict:
        return tuple((name, key_of(item)) for name, item in value.items())
    # 1, 1.0 and True are equal as keys, and so are 0.0 and -0.0; only the former changes a shape or dtype.
    return (kind, number_key(value))


def _run(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], symbolic: bool) -> Any:
    """With symbolic sizes torch's Python kernels go first: C++ ones would ask for plain sizes. Without they never do, also in a trace
    that has symbolic sizes elsewhere: some of them lay results out otherwise, and what is found here is remembered.
    """
    keep_dynamo_out()
    meta_kwargs = {name: _to_meta(value) for name, value in kwargs.items()}
    if meta_kwargs.get("device") is None and any(a.name == "device" for a in op._schema.arguments):
        meta_kwargs["device"] = _META
    dispatcher = torch._C._EnablePythonDispatcher() if symbolic else torch._C._DisablePythonDispatcher()
    try:
        with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd(), dispatcher:
            return op(*[_to_meta(value) for value in args], **meta_kwargs)
    except NotImplementedError as error:
        raise NoShapeRule(str(op), str(error).split("\n", 1)[0]) from error
    except Exception as error:
        if facts_of(op).opaque:  # somebody's own fake implementation, or none at all
            if "data-dependent shape" in str(error):  # it asks for `torch.library.get_ctx().new_dynamic_size()`
                raise DataDependentShape(str(op), "the shape of the result depends on tensor data") from error
            raise NoShapeRule(str(op), str(error).split("\n", 1)[0]) from error
        raise


def _to_meta(value: Any) -> Any:
    if type(value) is TensorMeta:
        if value.offset == 0:
            return torch.empty_strided(value.shape, value.strides, dtype=value.dtype, device=_META)
        steps = zip(value.shape, value.strides, strict=True)
        reach = value.offset + 1 + sum(max(n - 1, 0) * s for n, s in steps)
        storage = torch.empty(reach, dtype=value.dtype, device=_META)
        return storage.as_strided(value.shape, value.strides, value.offset)
    if isinstance(value, (list, tuple)):
        return [_to_meta(item) for item in value]
    return _META if isinstance(value, torch.device) else value


def _result_device(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    asked = kwargs.get("device")
    if asked is not None:
        return torch.device(asked)
    metas = list(tensor_metas((*args, *kwargs.values())))
    if not metas:
        return torch.device("cpu")
    # A zero-dimensional CPU tensor may join tensors of any device.
    leading = next((m for m in metas if m.ndim > 0 or m.device.type != "cpu"), metas[0])
    if op._schema.name in _MIXED_DEVICES:
        return metas[0].device
    for other in metas:
        if other.device != leading.device and (other.ndim > 0 or other.device.type != "cpu"):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{leading.device} and {other.device}!"
            )
    return leading.device


def tensor_metas(values: Any) -> Any:
    """All `TensorMeta`s in nested lists and tuples, in order."""
    for value in values:
        if type(value) is TensorMeta:
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensor_metas(value)


def _describe(op: torch._ops.OpOverload, value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise OtherLayout(str(op), f"the result has layout {value.layout}")
        shape, strides = tuple(map(plain, value.shape)), tuple(map(plain, value.stride()))
        return TensorMeta(shape, strides, value.dtype, device, plain(value.storage_offset()))
    if isinstance(value, (list, tuple)):
        return type(value)(_describe(op, item, device) for item in value)
    return value
