"""Which real tensors a fake can stand for, and their metadata."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from dyncomp.fake.errors import UnsupportedTensor
from dyncomp.fake.tensor import TensorMeta

_PLAIN_TYPES: tuple[type, ...] = tuple(
    kind for kind in (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", None)) if kind is not None
)


def check_supported(tensor: torch.Tensor) -> None:
    """Raises UnsupportedTensor for anything but a plain strided tensor, parameter or buffer."""
    if type(tensor) not in _PLAIN_TYPES:
        raise UnsupportedTensor(
            "tensor", f"instances of {type(tensor).__qualname__} have behaviour of their own"
        )
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise UnsupportedTensor("tensor", "inside a torch.func transform")
    if tensor.layout is not torch.strided:
        raise UnsupportedTensor("tensor", f"layout {tensor.layout}")
    if tensor.is_quantized or tensor.is_nested:
        raise UnsupportedTensor("tensor", "quantised or nested")
    if tensor._is_zerotensor():
        raise UnsupportedTensor("tensor", "zeros without memory")
    if forward_ad._current_level >= 0 and torch._VF._unpack_dual(tensor, level=forward_ad._current_level)[1] is not None:
        raise UnsupportedTensor("tensor", "a dual tensor of forward-mode differentiation")
    if tensor.is_conj() or tensor.is_neg():
        raise UnsupportedTensor("tensor", "a lazy conjugate or negative view")
    try:
        _ = tensor.is_leaf  # of a view whose memory was written autograd makes the node now, or refuses to
    except RuntimeError as error:
        raise UnsupportedTensor("tensor", f"a view that autograd refuses to use: {error}") from error


def meta_of_real(tensor: torch.Tensor) -> TensorMeta:
    return TensorMeta(
        tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, int(tensor.storage_offset())
    )
