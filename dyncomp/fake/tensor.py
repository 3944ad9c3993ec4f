"""FakeTensor: a tensor with everything but data."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.errors import DataDependentValue
from dyncomp.shape.layout import Ints, known_equal
from dyncomp.shape.symbolic import number_key


class TensorMeta:
    """Shape, strides, storage offset, dtype and device: what shape rules work on. Never changed once made."""

    __slots__ = ("shape", "strides", "offset", "dtype", "device", "_key")

    def __init__(self, shape: Ints, strides: Ints, dtype: torch.dtype, device: torch.device, offset: int = 0):
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.dtype = dtype
        self.device = device
        self._key: tuple[Any, ...] | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def key(self) -> tuple[Any, ...]:
        """Hashable identity of all fields."""
        if self._key is None:
            key: tuple[Any, ...] = (self.shape, self.strides, self.offset, self.dtype, self.device)
            try:
                hash(key)
            except TypeError:  # symbolic sizes; what they are equal to may change with what is learned
                sizes, strides = (tuple(map(number_key, numbers)) for numbers in (self.shape, self.strides))
                return (sizes, strides, number_key(self.offset), self.dtype, self.device)
            self._key = key
        return self._key

    def same_layout(self, other: TensorMeta) -> bool:
        """Equal in all that a computation on the data can see (the offset is where the data starts), by what is known:
        asks nothing of sizes.
        """
        return (
            self.dtype == other.dtype
            and self.device == other.device
            and len(self.shape) == len(other.shape)
            and all(map(known_equal, self.shape, other.shape))
            and all(map(known_equal, self.strides, other.strides))
        )

    def __repr__(self) -> str:
        layout = f"strides={self.strides}, offset={self.offset}"
        return f"TensorMeta({self.shape}, {layout}, {self.dtype}, {self.device})"


class FakeStorage:
    """Identity of a storage. Fakes that share one alias each other. `version` counts in-place writes."""

    __slots__ = ("version",)

    def __init__(self) -> None:
        self.version = 0


class FakeTensor(torch.Tensor):
    """A wrapper subclass with no inner tensor and no memory; C++ autograd, views and metadata queries work.

    `meta` mirrors the C++ metadata as plain Python, `constant` is the real value where tracing knows it.
    """

    meta: TensorMeta
    fake_storage: FakeStorage
    constant: torch.Tensor | None

    # Fakes stand for plain tensors, so Python-level overrides must see none.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, op: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise RuntimeError(f"{op} on fake tensors outside of their FakeMode")

    # torch answers these in C++ without the dispatcher, so they are refused here rather than in the mode.

    def tolist(self) -> Any:
        return self.item() if self.ndim == 0 else [row.tolist() for row in self]

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise DataDependentValue("Tensor.numpy", "the result holds tensor data")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise DataDependentValue("Tensor.__array__", "the result holds tensor data")

    def data_ptr(self) -> int:
        raise DataDependentValue("Tensor.data_ptr", "a fake tensor has no address")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"FakeTensor({tuple(self.shape)}, stride={self.stride()}, {self.dtype}, {self.device})"


_ZERO: dict[str, Any] = {"_extra_dispatch_keys": torch._C.DispatchKeySet(torch._C.DispatchKey.ZeroTensor)}


def make_fake(
    meta: TensorMeta,
    storage: FakeStorage | None = None,
    requires_grad: bool = False,
    constant: torch.Tensor | None = None,
    zero: bool = False,
) -> FakeTensor:
    """A fresh FakeTensor of this metadata; without `storage`, one that aliases nothing.

    `zero`: it stands for autograd's zeros without memory, and torch's own kernels for these compute with it: their product with
    inf is 0, and a sum with them copies the other operand.
    """
    fake = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
        FakeTensor,
        meta.shape,
        meta.strides,
        storage_offset=meta.offset,
        dtype=meta.dtype,
        device=meta.device,
        requires_grad=requires_grad,
        storage_size=0,
        **(_ZERO if zero else {}),
    )
    fields = fake.__dict__
    fields["meta"] = meta
    fields["fake_storage"] = FakeStorage() if storage is None else storage
    fields["constant"] = constant
    return fake


class _Result(torch.autograd.Function):
    """Gives a fake a history, and no base."""

    @staticmethod
    def forward(ctx: Any, leaf: FakeTensor) -> FakeTensor:  # type: ignore[override]
        return make_fake(leaf.meta, leaf.fake_storage)


def as_result(leaf: FakeTensor) -> FakeTensor:
    """A fake of the same metadata and storage that autograd takes for the result of some operation: no leaf, no view."""
    with torch.enable_grad():
        result: FakeTensor = _Result.apply(leaf)  # type: ignore[no-untyped-call]
    result.__dict__.update({**leaf.__dict__})
    return result
