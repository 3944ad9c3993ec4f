"""Tensors without data: shapes, strides, dtypes and devices as eager would compute them, without running
it.
"""

from dyncomp.fake.errors import (
    DataDependentShape,
    DataDependentValue,
    FakeError,
    NoShapeRule,
    OtherLayout,
    UnsupportedTensor,
)
from dyncomp.fake.mode import FakeMode
from dyncomp.fake.tensor import FakeStorage, FakeTensor, TensorMeta, make_fake

__all__ = [
    "DataDependentShape",
    "DataDependentValue",
    "FakeError",
    "FakeMode",
    "FakeStorage",
    "FakeTensor",
    "NoShapeRule",
    "OtherLayout",
    "TensorMeta",
    "UnsupportedTensor",
    "make_fake",
]
