"""Strides of results where a size is 1: its stride says how eager chose the layout, and shows in every later operation."""

import pytest
import torch
import torch.nn.functional as F

from dyncomp.fake import FakeMode

LAYOUTS = [
    ((3, 3, 1), (3, 1, 3)),
    ((2, 1), (1, 7)),
    ((1,), (5,)),
    ((2, 3, 1, 1), (3, 1, 3, 3)),
    ((2, 3), (1, 2)),
    ((1, 2), (5, 1)),
]
OPERATIONS = {
    "pow": lambda x: x**3,
    "pow-one": lambda x: x**1,
    "pow-float": lambda x: x**2.5,
    "clamp": lambda x: x.clamp(0, 1),
    "isnan": lambda x: x.isnan(),
    "nan_to_num": lambda x: x.nan_to_num(),
    "hardtanh": lambda x: F.hardtanh(x),
    "deg2rad": lambda x: torch.deg2rad(x),
    "logsigmoid": lambda x: F.logsigmoid(x.float()),
    "huber": lambda x: F.huber_loss(x.float(), x.float(), reduction="none"),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_strides(name, layout, dtype):
    x = torch.empty_strided(*layout, dtype=dtype).fill_(2)
    want = OPERATIONS[name](x)
    mode = FakeMode()
    got = mode.run(OPERATIONS[name], (mode.from_real(x),))
    assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
