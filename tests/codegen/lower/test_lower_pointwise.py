"""Pointwise lowerings against eager, over types, broadcasting and layouts, through the interpreter."""

import pytest
import torch

from tests.codegen.graphs import assert_close, run_interpreted

F = torch.nn.functional
torch.manual_seed(0)
X, Y = torch.randn(4, 6, 8), torch.randn(4, 6, 8)
INTS, BOOLS = torch.randint(-5, 6, (4, 6, 8)), torch.rand(4, 6, 8) > 0.5
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.5, 2.5, float("inf"), float("-inf"), float("nan"), 1e30, 1e-40])

UNARY = """exp log sin cos tanh sigmoid sqrt rsqrt erf floor ceil trunc round neg abs sign reciprocal expm1
    log1p exp2 log2 log10 tan asin acos atan sinh cosh asinh acosh atanh erfc lgamma frac square relu isnan
    isinf isfinite signbit logical_not sgn digamma erfinv""".split()
UNARY_INT = "exp neg abs sign sqrt floor logical_not square bitwise_not relu".split()
BINARY = """add sub mul div atan2 maximum minimum fmax fmin eq ne lt le gt ge pow hypot copysign logical_and
    logical_or logical_xor remainder fmod floor_divide nextafter""".split()
FLOAT_ONLY = {"nextafter", "copysign", "atan2", "hypot"}
TENSOR_ONLY = {"atan2", "hypot", "nextafter", "maximum", "minimum", "fmax", "fmin"} | {
    f"logical_{n}" for n in ("and", "or", "xor")
}
BITS = "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split()


def check(function, *inputs):
    want = function(*inputs)
    assert_close(run_interpreted(function, *inputs), [want])


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    function = getattr(torch, name)
    for operand in (X, X.t() if X.dim() == 2 else X.transpose(0, 2), X.bfloat16(), SPECIAL):
        check(function, operand)


@pytest.mark.parametrize("name", UNARY_INT)
def test_unary_int(name):
    check(getattr(torch, name), INTS)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    function = getattr(torch, name)
    check(function, X, Y)
    check(function, X, Y[:, :1])
    check(function, torch.randn(6, 4).t(), torch.randn(4, 6))
    check(function, SPECIAL, SPECIAL.flip(0))
    if name not in FLOAT_ONLY:
        check(function, INTS, INTS.flip(0).abs() + 1)
    if name not in TENSOR_ONLY | {"copysign"}:
        check(lambda a: function(a, 2), X)
        check(lambda a: function(a, 3), INTS)


@pytest.mark.parametrize("name", BITS)
def test_bits(name):
    check(getattr(torch, name), INTS, INTS.abs())


ACTIVATIONS = [
    F.gelu, lambda a: F.gelu(a, approximate="tanh"), F.silu, F.mish, F.hardtanh, F.hardsigmoid, F.hardswish,
    F.leaky_relu, F.elu, F.softplus, F.relu6, F.celu, F.selu, F.logsigmoid, F.tanhshrink, F.softsign,
    F.hardshrink, F.softshrink, lambda a: F.threshold(a, 0.1, 20.0),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ACTIVATIONS)))
def test_activation(number):
    check(ACTIVATIONS[number], X * 2)
    # eager's own gelu gives NaN for infinity on some processors
    check(ACTIVATIONS[number], SPECIAL[:5] if number < 2 else SPECIAL)
    check(ACTIVATIONS[number], (X * 2).bfloat16())


PROMOTION = [
    (lambda a: a + 1.5, INTS),
    (lambda a: a + True, BOOLS),
    (torch.add, BOOLS, INTS),
    (torch.mul, INTS.int(), X),
    (torch.mul, BOOLS, BOOLS.flip(0)),
    (lambda a, b: torch.add(a, b, alpha=2.5), X, Y),
    (lambda a, b: torch.sub(a, b, alpha=2), INTS, INTS),
    (lambda a: 1 - a, X),
    (lambda a, b: a + b, X, torch.tensor(2.0, dtype=torch.float64)),
    (lambda a, b: a * b, X.bfloat16(), X),
    (lambda a, b: a * b, INTS.to(torch.int8), torch.tensor(3)),
    (lambda a: a.to(torch.uint8), INTS),
    (lambda a: a.to(torch.int8) * 100, INTS),
    (lambda a: a.to(torch.int16) * 3000, INTS),
    (lambda a: a.bool(), X),
    (lambda a: a.half() + 1, X),
    (lambda a: a.bfloat16().float(), X),
    (lambda a: a.double() * 3.3, X),
    (lambda a: a.to(torch.int32), X * 3),
    (lambda a: a**3, INTS.to(torch.int8)),
    (lambda a: a**-2, X),
    (lambda a: a**0.5, X.abs()),
    (lambda a: torch.div(a, 3, rounding_mode="trunc"), INTS),
    (lambda a: torch.div(a, -3, rounding_mode="floor"), INTS),
    (lambda a: torch.remainder(a, -3), INTS),
    (lambda a, b: torch.div(a, b, rounding_mode="floor"), X, Y),
]


@pytest.mark.parametrize("number", range(len(PROMOTION)))
def test_promotion(number):
    check(*PROMOTION[number])


CHOICES = [
    (lambda a: a.clamp(-0.5, 0.5), X),
    (lambda a: a.clamp(min=0), INTS),
    (lambda a: a.clamp(0.5, -0.5), SPECIAL),
    (lambda a, b: torch.clamp(a, b, b + 1), X, Y),
    (lambda a, b: torch.where(a > 0, a, b), X, Y),
    (lambda a: torch.where(a > 0, a, 0.0), X),
    (lambda a, b, m: torch.where(m, a, b), X, Y.double(), BOOLS),
    (lambda a: a.masked_fill(a > 0, -1e9), X),
    (lambda a: a.tril(), X),
    (lambda a: a.triu(1), X),
    (lambda a, b: torch.lerp(a, b, 0.3), X, Y),
    (lambda a, b, c: torch.addcmul(a, b, c, value=0.5), X, Y, X),
    (lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), X, Y, X.abs() + 1),
    (lambda a: torch.nan_to_num(a, 0.0, 1.0, -1.0), SPECIAL),
]


@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_choice(number):
    check(*CHOICES[number])


def test_explicit_rounding_to_half_types_is_kept():
    wide = torch.tensor([1.0009765625 + 2**-20, 3.14159265, -2.7182818])
    check(lambda a: a.bfloat16().float() * 1024, wide)
    got = run_interpreted(lambda a: a.half().float(), wide)[0]
    assert torch.equal(got, wide.half().float())


def test_bad_double_registration_is_refused():
    from dyncomp.codegen.lower.registry import register

    with pytest.raises(ValueError, match="two lowerings"):
        register("aten.add.Tensor", lambda: None)
