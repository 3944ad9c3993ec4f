"""Python numbers out of a type's range: the fake run raises exactly where eager does."""

import pytest
import torch

from dyncomp.fake import FakeMode

F = torch.nn.functional
CALLS = {
    "clamp": lambda x: x.clamp(max=1000),
    "clamp_": lambda x: x.clamp_(min=-70000),
    "add": lambda x: x + 70000,
    "add_": lambda x: x.add_(70000),
    "alpha": lambda x: torch.add(x, x, alpha=100000),
    "mul": lambda x: x * 300,
    "fill_": lambda x: x.fill_(1000),
    "full": lambda x: torch.full((3,), 70000, dtype=x.dtype),
    "full nan": lambda x: torch.full((2,), float("nan"), dtype=x.dtype),
    "full_like": lambda x: torch.full_like(x, 1e39),
    "where": lambda x: torch.where(x > 0, x, 70000),
    "less": lambda x: x < 70000,
    "remainder": lambda x: torch.remainder(x, 70000),
    "masked_fill": lambda x: x.masked_fill(x > 0, 70000),
    "masked_fill inf": lambda x: x.masked_fill(x > 0, float("inf")),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0]), 1e39),
    "scatter": lambda x: x.scatter(0, torch.tensor([0]), 70000),
    "pad": lambda x: F.pad(x, (1, 1), value=1000),
    "hardtanh": lambda x: F.hardtanh(x, -70000.0, 70000.0),
    "threshold": lambda x: F.threshold(x, 1e39, 0),
    "pow": lambda x: torch.pow(x, 1000),
    "equal to -1": lambda x: x == -1,
}


def outcome(function, *args):
    try:
        return function(*args).dtype
    except (RuntimeError, OverflowError, NotImplementedError) as error:
        return "raises", type(error) is OverflowError and "RuntimeError" or type(error).__name__


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", CALLS)
def test_raises_where_eager_raises(name, dtype):
    call, mode = CALLS[name], FakeMode()
    assert outcome(lambda x: mode.run(call, (mode.from_real(x),)), torch.ones(3, dtype=dtype)) == outcome(
        call, torch.ones(3, dtype=dtype)
    )
