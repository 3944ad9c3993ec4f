"""Functions of tensors whose schema has a plain int or float where a program may give a number that varies from call to call.

    torch.tril(x, n)             aten.tril(x, n), the operation as it is; where x needs a gradient  where(column - row <= n, x, 0)
    x.diagonal(n)                x[:, n:].diagonal(), or x[-n:].diagonal() for n < 0
    F.dropout(x, p, True)        eager's own steps: noise.bernoulli_(1 - p), noise.div_(1 - p), x * noise
    F.layer_norm(x, s, eps=e)    aten.native_layer_norm(x, s, None, None, e), without gradients only

torch's argument parser would ask for the number itself, which pins it: a version for each value. A form gets the FakeMode and
the call's arguments; NotImplemented leaves a call to torch, also every call that eager answers with an error. torch's own formulas of
gradients take plain numbers too, so operations are asked directly where none is wanted.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.symbolic import is_symbolic

aten = torch.ops.aten
Form = Callable[..., Any]
_FORMS: dict[Any, Form] = {}
_METHODS: dict[str, Form] = {}


def form_of(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], Any] | None:
    """What to call with the mode in place of `fn`; None for all calls without such a number."""
    if not any(map(is_symbolic, (*args, *kwargs.values()))):
        return None
    if type(fn) is types.BuiltinMethodType and isinstance(fn.__self__, torch.Tensor):
        form, args = _METHODS.get(fn.__name__), (fn.__self__, *args)
    else:
        form = _FORMS.get(fn) if type(fn).__hash__ is not None else None
    if form is None or type(args[0] if args else kwargs.get("input")) is not FakeTensor:
        return None
    try:
        bound = _signature(form).bind(None, *args, **kwargs)
    except TypeError:  # torch's parser has words of its own
        return None
    return lambda fakes: form(fakes, *bound.args[1:], **bound.kwargs)


@functools.cache
def _signature(form: Form) -> inspect.Signature:
    return inspect.signature(form)


def _form(*functions: Any, methods: str = "") -> Callable[[Form], Form]:
    def enter(form: Form) -> Form:
        _FORMS.update(dict.fromkeys(functions, form))
        _METHODS.update(dict.fromkeys(methods.split(), form))
        return form

    return enter


def _directly(fakes: Any, op: Any, *args: Any) -> Any:
    return fakes.__torch_dispatch__(op, (), args, {})


def _wants_gradient(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(type(t) is FakeTensor and t.requires_grad for t in tensors)


def _may_ask(*tensors: Any) -> bool:
    """True where an operation may be asked past autograd and autocast."""
    return not _wants_gradient(*tensors) and not torch._C._is_any_autocast_enabled()


# ---- parts of matrices


def _triangle(fakes: Any, op: Any, x: torch.Tensor, diagonal: Any, lower: bool) -> Any:
    if x.dim() < 2 or not isinstance(diagonal, (int, torch.SymInt)):
        return NotImplemented
    if not _wants_gradient(x):
        return _directly(fakes, op, x, diagonal)
    columns, rows = (torch.arange(size, device=x.device) for size in (x.shape[-1], x.shape[-2]))
    place = columns - rows.unsqueeze(-1)
    inside: Any = place <= diagonal if lower else place >= diagonal
    return torch.where(inside, x, x.new_zeros(())).contiguous()


@_form(torch.tril, methods="tril")
def _tril(fakes: Any, input: torch.Tensor, diagonal: Any = 0) -> Any:
    return _triangle(fakes, aten.tril.default, input, diagonal, True)


@_form(torch.triu, methods="triu")
def _triu(fakes: Any, input: torch.Tensor, diagonal: Any = 0) -> Any:
    return _triangle(fakes, aten.triu.default, input, diagonal, False)


@_form(methods="tril_")
def _tril_in_place(fakes: Any, input: torch.Tensor, diagonal: Any = 0) -> Any:
    part = _tril(fakes, input, diagonal)
    return part if part is NotImplemented else input.copy_(part)


@_form(methods="triu_")
def _triu_in_place(fakes: Any, input: torch.Tensor, diagonal: Any = 0) -> Any:
    part = _triu(fakes, input, diagonal)
    return part if part is NotImplemented else input.copy_(part)


@_form(torch.diagonal, methods="diagonal")
def _diagonal(fakes: Any, input: torch.Tensor, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Any:
    rank = input.dim()
    dims = (dim1, dim2)
    if rank < 2 or not isinstance(offset, torch.SymInt) or not all(type(d) is int and -rank <= d < rank for d in dims):
        return NotImplemented
    first, second = dim1 % rank, dim2 % rank
    if first == second:
        return NotImplemented
    across, start = (second, offset) if offset >= 0 else (first, -offset)
    size = input.shape[across]
    if start >= size:  # an empty diagonal starts where the tensor starts
        return NotImplemented
    return input.narrow(across, start, size - start).diagonal(0, first, second)


@_form(torch.diag_embed, methods="diag_embed")
def _diag_embed(fakes: Any, input: torch.Tensor, offset: Any = 0, dim1: int = -2, dim2: int = -1) -> Any:
    if input.dim() < 1 or (dim1, dim2) != (-2, -1) or not isinstance(offset, torch.SymInt):
        return NotImplemented
    if _wants_gradient(input):  # eager's is a view of the result's gradient
        return NotImplemented
    wide = input.shape[-1] + (offset if offset >= 0 else -offset)
    result = input.new_zeros((*input.shape[:-1], wide, wide))
    part = _diagonal(fakes, result, offset, -2, -1)
    if part is NotImplemented:
        return NotImplemented
    part.copy_(input)
    return result


@_form(torch.diag, methods="diag")
def _diag(fakes: Any, input: torch.Tensor, diagonal: Any = 0) -> Any:
    if input.dim() == 1:
        return _diag_embed(fakes, input, diagonal)
    part = _diagonal(fakes, input, diagonal) if input.dim() == 2 else NotImplemented
    return part if part is NotImplemented else part.clone(memory_format=torch.contiguous_format)


@_form(methods="unfold")
def _unfold(fakes: Any, input: torch.Tensor, dimension: int, size: Any, step: Any) -> Any:
    rank = input.dim()
    if rank == 0 or type(dimension) is not int or not -rank <= dimension < rank or not _may_ask(input):
        return NotImplemented
    if not all(isinstance(n, (int, torch.SymInt)) for n in (size, step)):
        return NotImplemented
    if not (size >= 0 and size <= input.shape[dimension] and step > 0):
        return NotImplemented
    return _directly(fakes, aten.unfold.default, input, dimension, size, step)


# ---- random numbers


def _dropped(fakes: Any, x: torch.Tensor, p: Any, train: bool, noise_shape: Any, in_place: bool) -> Any:
    if type(train) is not bool or not isinstance(p, (torch.SymFloat, torch.SymInt)):
        return NotImplemented
    if not x.is_floating_point() or not (p >= 0 and p < 1):
        return NotImplemented
    if not train or p == 0 or x.numel() == 0:
        return x
    noise = torch.empty_like(x) if noise_shape is None else torch.empty(noise_shape, dtype=x.dtype, device=x.device)
    keep = 1 - torch.sym_float(p)
    with torch.no_grad():
        _directly(fakes, aten.bernoulli_.float, noise, keep)
        noise.div_(keep)
    return x.mul_(noise) if in_place else x * noise


@_form(torch.dropout)
def _dropout(fakes: Any, input: torch.Tensor, p: Any, train: bool) -> Any:
    return _dropped(fakes, input, p, train, None, False)


@_form(F.dropout)
def _dropout_function(fakes: Any, input: torch.Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return NotImplemented if type(inplace) is not bool else _dropped(fakes, input, p, training, None, inplace)


def _whole_channels(rank: int) -> Form:
    def form(fakes: Any, input: torch.Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if input.dim() != rank or type(inplace) is not bool:
            return NotImplemented
        return _dropped(fakes, input, p, training, (*input.shape[:2], *[1] * (rank - 2)), inplace)

    return form


_FORMS.update({F.dropout1d: _whole_channels(3), F.dropout2d: _whole_channels(4), F.dropout3d: _whole_channels(5)})


# ---- fillings, normalisations, losses


@_form(F.pad)
def _pad(fakes: Any, input: torch.Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode != "constant" or value is None or len(pad) % 2 or len(pad) > 2 * input.dim():
        return NotImplemented
    return torch.constant_pad_nd(input, pad, value)


@_form(F.layer_norm)
def _layer_norm(
    fakes: Any, input: torch.Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5
) -> Any:
    given = [t for t in (weight, bias) if t is not None]
    if not isinstance(eps, torch.SymFloat) or not _may_ask(input, *given) or input.device.type != "cpu":
        return NotImplemented
    shape = tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape or any(tuple(t.shape) != shape for t in given):
        return NotImplemented
    return _directly(fakes, aten.native_layer_norm.default, input, list(shape), weight, bias, eps)[0]


def _loss(fakes: Any, op: Any, input: torch.Tensor, target: Any, reduction: Any, width: Any) -> Any:
    if not isinstance(width, torch.SymFloat) or type(target) is not FakeTensor or not _may_ask(input, target):
        return NotImplemented
    if reduction not in ("none", "mean", "sum") or not input.is_floating_point() or input.dtype != target.dtype:
        return NotImplemented
    if tuple(input.shape) != tuple(target.shape) or not width > 0:
        return NotImplemented
    each = _directly(fakes, op, input, target, 0, width)
    return each if reduction == "none" else each.mean() if reduction == "mean" else each.sum()


@_form(F.huber_loss)
def _huber_loss(
    fakes: Any, input: torch.Tensor, target: Any, reduction: str = "mean", delta: Any = 1.0, weight: Any = None
) -> Any:
    return NotImplemented if weight is not None else _loss(fakes, aten.huber_loss.default, input, target, reduction, delta)


@_form(F.smooth_l1_loss)
def _smooth_l1_loss(
    fakes: Any, input: torch.Tensor, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    beta: Any = 1.0,
) -> Any:  # fmt: skip
    if size_average is not None or reduce is not None:
        return NotImplemented
    return _loss(fakes, aten.smooth_l1_loss.default, input, target, reduction, beta)
