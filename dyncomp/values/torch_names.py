"""What the members of a tensor mean for a trace, as tables: metadata, graph calls, or a named break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Fixed by the `tensor` guard of an outside tensor, and by the operation that made any other.
METADATA_ATTRIBUTES = frozenset(
    "shape dtype device ndim layout requires_grad itemsize nbytes is_cpu is_cuda is_meta is_mkldnn is_mps "
    "is_mtia is_xla is_xpu is_ipu is_maia is_vulkan is_nested is_quantized is_sparse is_sparse_csr".split()
)
METADATA_METHODS = frozenset(
    "size dim ndimension numel nelement stride storage_offset element_size is_contiguous "
    "is_floating_point is_complex is_signed is_conj is_neg get_device dim_order".split()
)
LAYOUT_METHODS = frozenset({"stride", "storage_offset", "is_contiguous", "dim_order"})
# Attributes that give another tensor.
GRAPH_ATTRIBUTES = frozenset("T mT H mH real imag data".split())
# Metadata that the `tensor` guard leaves open: guarded apart on outside tensors.
GUARDED_ATTRIBUTES = frozenset("is_leaf grad retains_grad".split())

_VALUE = (
    "tolist numpy __array__ __array_wrap__ __index__ __long__ "
    "__nonzero__ __contains__ __format__ __repr__ __str__ __dlpack__ __dlpack_device__ "
    "__cuda_array_interface__"
)
_AUTOGRAD = (
    "backward requires_grad_ retain_grad register_hook register_post_accumulate_grad_hook reinforce "
    "detach_"
)
_STORAGE = (
    "data_ptr const_data_ptr storage untyped_storage _typed_storage storage_type is_shared share_memory_ "
    "pin_memory is_pinned is_set_to record_stream _use_count _is_view is_inference as_subclass "
    "__deepcopy__ __reduce__ __reduce_ex__ __setstate__ __getstate__ __dir__ __sizeof__ __setattr__ "
    "__delattr__ __getattribute__ module_load is_distributed new _make_subclass"
)
# They change sizes, strides or storage of an object that others may hold, or call back into Python.
_METADATA_CHANGE = (
    "resize_ resize_as_ resize resize_as set_ t_ transpose_ swapaxes_ swapdims_ unsqueeze_ squeeze_ "
    "as_strided_ sparse_resize_ sparse_resize_and_clear_ resize_as_sparse_ apply_ map_ map2_ rename_ "
    "__delitem__"
)
METHOD_BREAKS: dict[str, str] = {
    **dict.fromkeys(_VALUE.split(), "data-dependent-value"),
    **dict.fromkeys(_AUTOGRAD.split(), "autograd"),
    **dict.fromkeys(_STORAGE.split(), "unsupported-call"),
    **dict.fromkeys(_METADATA_CHANGE.split(), "unsupported-mutation"),
}

# They give one number, known for tensors made from Python numbers.
NUMBER_METHODS: dict[str, Callable[[Any], Any]] = {
    "item": lambda number: number,
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__bool__": bool,
}

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Special method -> (kind of operation, what the value's own operation takes).
DUNDER_OPERATORS: dict[str, tuple[str, str]] = {
    **{f"__{name}__": ("binary", symbol) for name, symbol in _SYMBOLS.items()},
    **{f"__r{name}__": ("reflected", symbol) for name, symbol in _SYMBOLS.items()},
    **{f"__i{name}__": ("inplace", symbol) for name, symbol in _SYMBOLS.items()},
    **{f"__{name}__": ("compare", symbol) for name, symbol in _COMPARISONS.items()},
    "__neg__": ("unary", "-"),
    "__pos__": ("unary", "+"),
    "__invert__": ("unary", "~"),
    "__getitem__": ("item", "get"),
    "__setitem__": ("item", "set"),
    "__len__": ("item", "len"),
    "__iter__": ("item", "iter"),
}


def _legacy_types() -> dict[type, str]:
    """`torch.FloatTensor` and its like: classes whose isinstance asks for dtype and device."""
    found: dict[type, str] = {}
    for namespace, prefix in ((torch, "torch."), (torch.cuda, "torch.cuda.")):
        for name, cls in vars(namespace).items():
            if name.endswith("Tensor") and type(cls).__name__ == "tensortype":
                found[cls] = prefix + name
    return found


LEGACY_TENSOR_TYPES: dict[type, str] = _legacy_types()
# Classes whose isinstance looks at a mark on the tensor object.
MARKED_CLASSES: tuple[Any, ...] = (torch.nn.Parameter, torch.nn.Buffer)


def type_name(dtype: torch.dtype, device: torch.device) -> str:
    """What `Tensor.type()` answers."""
    stem = torch.empty(0, dtype=dtype).type().removeprefix("torch.")
    return f"torch.{stem}" if device.type == "cpu" else f"torch.{device.type}.{stem}"
