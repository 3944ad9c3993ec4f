"""Conversions between all element types, against eager."""

import pytest
import torch

from dyncomp.codegen.ir.types import FROM_TORCH, compute_type
from tests.codegen.emit.kernel_harness import available_isas, multi_pointwise

DTYPES = list(FROM_TORCH)


def sample(dtype, n=1003):
    """Small, large and special values; the odd length leaves a part of a vector at the end."""
    if dtype is torch.bool:
        return torch.rand(n) < 0.5
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        x = torch.randint(info.min, info.max, (n,), dtype=dtype)
        x[:6] = torch.tensor([info.min, info.max, 0, 1, info.max - 1, 2], dtype=dtype)
        x[100:300] = torch.randint(0, 100, (200,), dtype=dtype)
        return x
    x = torch.randn(n, dtype=torch.float64) * torch.pow(10.0, torch.randint(-9, 12, (n,)).double())
    special = [
        0,
        -0.0,
        float("inf"),
        -float("inf"),
        float("nan"),
        -1,
        255.9,
        -128.5,
        300,
        65504,
        65519.9,
        65520,
        6e-8,
        2.9e-8,
    ]
    x[: len(special)] = torch.tensor(special, dtype=torch.float64)
    return x.to(dtype)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_cast_equals_eager(source, isa):
    x = sample(source)
    results = multi_pointwise(
        lambda b, v: [b.cast(v, compute_type(FROM_TORCH[d])) for d in DTYPES], DTYPES, x, isa=isa
    )
    for dtype, got in zip(DTYPES, results, strict=True):
        want = x.to(dtype)
        same = (got == want) | ((got != got) & (want != want))
        bad = (~same).nonzero()[:3, 0]
        assert same.all(), (
            f"{source} -> {dtype}: {x[bad].tolist()} gives {got[bad].tolist()}, eager {want[bad].tolist()}"
        )


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("name, dtype", [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_half_rounding_over_all_kinds_of_floats(name, dtype, isa):
    bits = torch.randint(-(2**31), 2**31 - 1, (1_000_003,), dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32).clone()
    for exponent in range(-30, 20):  # ties and their neighbours
        at = 1000 + 40 * (exponent + 30)
        steps = torch.arange(40, dtype=torch.float64) / 2**12 + 1
        x[at : at + 40] = (steps * 2.0**exponent).float()
    stored, rounded = multi_pointwise(
        lambda b, v: [v, b.op(f"round_{name}", v)], [dtype, torch.float32], x, isa=isa
    )
    want = x.to(dtype)
    nan = want != want
    assert torch.equal(stored[~nan].view(torch.int16), want[~nan].view(torch.int16))
    assert (stored[nan] != stored[nan]).all()
    assert torch.equal(rounded[~nan], want[~nan].float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("isa", available_isas())
def test_every_half_loads_as_its_value(dtype, isa):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    (got,) = multi_pointwise(lambda b, v: [v], [torch.float32], x, isa=isa)
    want = x.float()
    assert torch.equal(got.nan_to_num(1.5), want.nan_to_num(1.5))
    assert torch.equal(torch.signbit(got[want == 0]), torch.signbit(want[want == 0]))
