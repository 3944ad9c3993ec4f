"""Float math within 2 ulp of the exact result: random bit patterns, dense ranges and special values."""

import pytest
import torch

from tests.codegen.emit.kernel_harness import available_isas, pointwise

SPECIAL = [
    0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45, 1.17549435e-38,
    3.4028235e38, -3.4028235e38,
    0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, -1.5, 2.5, 100.0, -100.0, 1e5, 65536.0, 65537.0, 88.7, 88.73,
    -87.3, -103.9, -104.0,
    0.9999999, 1.0000001, 1e10, -1e10, 1e30,
]  # fmt: skip
UNARY = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "sigmoid": torch.sigmoid, "log": torch.log,
    "log1p": torch.log1p,
    "log2": torch.log2, "log10": torch.log10, "erf": torch.erf, "erfc": torch.erfc, "erfinv": torch.erfinv,
    "tanh": torch.tanh,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan":
    torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh,
    "lgamma": torch.lgamma, "digamma": torch.digamma, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
}  # fmt: skip
BINARY = {"pow": torch.pow, "atan2": torch.atan2, "hypot": torch.hypot}
ODD = (
    "erf",
    "erfinv",
    "tanh",
    "sin",
    "tan",
    "asin",
    "atan",
    "sinh",
    "asinh",
    "atanh",
    "expm1",
    "log1p",
    "sqrt",
)


def arguments(count):
    bits = torch.randint(-(2**31), 2**31, (count,), dtype=torch.int64).to(torch.int32).view(torch.float32)
    return torch.cat(
        [
            torch.tensor(SPECIAL),
            bits,
            torch.randn(count) * 3,
            torch.rand(count) * 2 - 1,
            torch.rand(count) * 200 - 100,
        ]
    )


def ulps(got, exact):
    """Distance in units of the float32 spacing at the exact result; equal special values count as 0."""
    want = exact.float()
    exponent = torch.frexp(exact.abs().clamp(min=2.0**-126)).exponent.double() - 1
    distance = (got.double() - exact).abs() / torch.pow(2.0, exponent - 23)
    special = ~torch.isfinite(want) | ~torch.isfinite(got)
    equal = (got == want) | ((got != got) & (exact != exact))
    distance[special] = torch.where(equal[special], 0.0, float("inf")).double()
    return distance


def assert_close(name, got, exact, arguments_):
    distance = ulps(got, exact)
    worst = int(distance.argmax())
    at = [a[worst].item() for a in arguments_]
    assert distance[worst] <= 2, (
        f"{name}{at}: {got[worst].item()!r}, exact {exact[worst].item()!r}, {distance[worst]:.2f} ulp"
    )


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, isa):
    slow = name in ("erfinv", "lgamma", "digamma")
    x = arguments(10_000 if slow else 200_000)
    got = pointwise(lambda b, v: b.op(name, v), x, isa=isa)
    assert_close(name, got, UNARY[name](x.double()), [x])
    if name in ODD:
        assert torch.equal(torch.signbit(got[:2]), torch.tensor([False, True])), "sign of zero"


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, isa):
    x, y = arguments(100_000), arguments(100_000)
    special = torch.tensor(SPECIAL)
    x, y = (
        torch.cat([special.repeat(len(special)), x]),
        torch.cat([special.repeat_interleave(len(special)), y]),
    )
    got = pointwise(lambda b, u, v: b.op(name, u, v), x, y, isa=isa)
    assert_close(name, got, BINARY[name](x.double(), y.double()), [x, y])


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_double_agrees_with_eager(name, isa):
    x, y = arguments(1000).double(), arguments(1000).double().flip(0)
    two = name in BINARY
    got = pointwise(lambda b, u, v: b.op(name, u, v) if two else b.op(name, u), x, y, isa=isa)
    want = BINARY[name](x, y) if two else UNARY[name](x)
    torch.testing.assert_close(
        got, want, rtol=5e-15 if name != "digamma" else 1e-12, atol=1e-300, equal_nan=True
    )
