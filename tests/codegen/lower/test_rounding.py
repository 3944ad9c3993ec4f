"""Half types: fused chains give eager's numbers, bit for bit, because each operation rounds as eager's does."""

import pytest
import torch

import dyncomp
from dyncomp import config
from dyncomp.codegen.ir.nodes import Builder, Load, Param
from dyncomp.codegen.lower.rounding import rounded, stored
from tests.codegen.graphs import kernels_of, run_interpreted

F = torch.nn.functional
HALVES = [torch.bfloat16, torch.float16]

CHAINS = {
    "arithmetic": lambda x, y: ((x * 2 + y) * x - y) * 0.5 + x * y,
    "scalars": lambda x, y: (x + 0.1) * 0.3 / 1.7 - 2.3,
    "scalar tensors": lambda x, y: (x * torch.tensor(0.3) + torch.tensor(0.1)) / torch.tensor(1.7),
    "scalar tensors first": lambda x, y: torch.tensor(0.3) * x + torch.tensor(100001) * y,
    "integers": lambda x, y: x + torch.arange(64) * 1001,
    "alpha": lambda x, y: torch.add(x, y, alpha=1.7) * y,
    "powers": lambda x, y: x.pow(3) + y.pow(2) + (x.abs() + 1).pow(-2),
    "where": lambda x, y: torch.where(x > y, x * y, 0.3) + 1,
    "choices": lambda x, y: torch.maximum(x, -y).clamp(-0.7, 0.7).abs() * y,
    "casts": lambda x, y: (x.float() * y.float()).to(x.dtype) + x,
    "cat": lambda x, y: torch.cat([x * y, y + 1]).relu() * 0.1,
    "means": lambda x, y: (x - x.mean(-1, keepdim=True)).pow(2).mean(-1) + 1,
    "sum": lambda x, y: (x * y).sum(-1) + 1,
    "extrema": lambda x, y: (x * y).amax(-1) + y.amin(-1),
    "division": lambda x, y: torch.div(x, y, rounding_mode="trunc") + torch.div(x, 0.1, rounding_mode="floor"),
    "floor division": lambda x, y: torch.floor_divide(x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25) + y,
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_equals_eager(name, dtype):
    x, y = torch.randn(16, 64).to(dtype), torch.randn(16, 64).to(dtype)
    want = CHAINS[name](x, y)
    [got] = run_interpreted(CHAINS[name], x, y)
    assert torch.equal(got, want)


SCALED_SUMS = {
    "add": lambda x, y: torch.add(x, y, alpha=0.587),
    "sub": lambda x, y: torch.sub(x, y, alpha=1.3),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=-0.3),
    "whole": lambda x, y: torch.sub(x, y, alpha=3),
    "in place": lambda x, y: x.mul(1.7).add_(y, alpha=-0.7),
    "broadcast": lambda x, y: torch.add(x, y[:1], alpha=0.7),
    "bytes": lambda x, y: (x * 100).to(torch.uint8).mul(0.2989).add_((y * 100).to(torch.uint8), alpha=0.587),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", SCALED_SUMS)
def test_a_scaled_sum_is_rounded_once(name, dtype):
    x, y = torch.rand(16, 64).to(dtype), torch.rand(16, 64).to(dtype)
    assert torch.equal(dyncomp.optimize(SCALED_SUMS[name])(x, y), SCALED_SUMS[name](x, y))


def test_a_factor_of_the_call_is_no_other():
    def function(x, y, factor):
        return torch.add(x, y, alpha=factor), torch.sub(x, y, alpha=factor)

    x, y = torch.rand(1000), torch.rand(1000)
    fast = dyncomp.optimize(function)
    for factor in (0.587, 1.0, -1.3, 1 / 3, 0.0):
        for got, want in zip(fast(x, y, factor), function(x, y, factor), strict=True):
            assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape,dim", [((9, 32, 11), 2), ((37, 5), 0), ((600,), 0)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_rounds_where_eager_does(name, shape, dim, dtype):
    """Up to one unit in the last place in few elements: exp and log differ in theirs."""
    x = (torch.randn(shape) * 3).to(dtype)
    want = getattr(torch, name)(x, dim)
    [got] = run_interpreted(lambda v: getattr(torch, name)(v, dim), x)
    assert (got != want).sum() <= 1 + want.numel() / 500
    torch.testing.assert_close(got, want, rtol=2e-2 if dtype is torch.bfloat16 else 2e-3, atol=0)


def test_one_operation_needs_no_rounding_of_its_own():
    x = torch.randn(8, 64).bfloat16()
    [kernel] = kernels_of(lambda v: v * 0.3, x)
    assert "round_bf16" not in str(kernel.kernel)
    [kernel] = kernels_of(lambda v: (v.neg().abs().relu() * 0.3), x)
    assert "round_bf16" not in str(kernel.kernel)


def test_the_knob_keeps_fused_values_wide():
    x = torch.randn(8, 64).bfloat16()
    with config.patch(round_low_precision=False):
        [got] = run_interpreted(lambda v: v * 0.3 + 0.1, x)
    wide = (x.float() * 0.3 + torch.tensor(0.1).bfloat16().float()).bfloat16()
    assert torch.equal(got, wide) and not torch.equal(got, x * 0.3 + 0.1)


def test_rounding_is_left_out_where_the_value_is_exact():
    b = Builder()
    half: Load = b.load(Param("x", "bf16", "in"), 0)
    single: Load = b.load(Param("y", "f32", "in"), 0)
    assert rounded(b, half, "bf16") is half
    assert rounded(b, b.op("maximum", half, b.op("neg", half)), "bf16").name == "maximum"
    assert rounded(b, b.op("add", half, half), "bf16").name == "round_bf16"
    assert rounded(b, single, "bf16").name == "round_bf16"
    assert rounded(b, half, "f16").name == "round_f16"
    once = rounded(b, single, "bf16")
    assert rounded(b, once, "bf16") is once
    assert rounded(b, b.const(0.1, "f32"), "bf16").value == torch.tensor(0.1).bfloat16().item()
    assert stored(once, "bf16") is single and stored(once, "f16") is once


# Operations that are exact in every type, or of which eager's result is known to the bit.
EVERY_VALUE = {
    "abs": torch.abs,
    "neg": torch.neg,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "sign": torch.sign,
    "sqrt": torch.sqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "nan_to_num": torch.nan_to_num,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softsign": F.softsign,
    "leaky_relu": F.leaky_relu,
    "half power": lambda x: x**0.5,
    "minus half power": lambda x: x**-0.5,
    "cube": lambda x: x**3,
    "inverse square": lambda x: x**-2,
    "nextafter": lambda x: torch.nextafter(x, x.flip(0)),
    "nextafter to a number": lambda x: torch.nextafter(x, torch.full_like(x, 0.25)),
    "copysign": lambda x: torch.copysign(x, x.flip(0)),
    "quotient": lambda x: x / x.flip(0),
    "floor division": lambda x: x // 3,
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.3),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", EVERY_VALUE)
def test_all_values_of_the_type_give_eagers_bits(name, dtype):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    want, got = EVERY_VALUE[name](x), dyncomp.optimize(EVERY_VALUE[name])(x)
    assert got.dtype == want.dtype
    both_nan = want.isnan() & got.isnan()
    assert torch.equal(got.view(torch.int16)[~both_nan], want.view(torch.int16)[~both_nan])
