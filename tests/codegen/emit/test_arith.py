"""Arithmetic, comparison, bit operations and extrema on all types, against eager."""

import pytest
import torch

from tests.codegen.emit.kernel_harness import available_isas, multi_pointwise
from tests.codegen.emit.test_cast import sample

INTS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float64]

COMMON = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum,
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign,
    "fmod": torch.fmod, "remainder": torch.remainder,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}  # fmt: skip
ON_INTS = {
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor, "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift,
}  # fmt: skip
ON_FLOATS = {
    "div": torch.div, "fmax": torch.fmax, "fmin": torch.fmin, "copysign": torch.copysign, "nextafter":
    torch.nextafter,
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round,
    "reciprocal": torch.reciprocal,
    "isnan": torch.isnan, "isinf": torch.isinf, "signbit": torch.signbit,
}  # fmt: skip
ON_BOOL = {
    **{k: COMMON[k] for k in ("eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum")},
    **{k: ON_INTS[k] for k in ("and", "or", "xor", "not")},
}
ONE_ARGUMENT = {
    "neg",
    "abs",
    "sign",
    "not",
    "floor",
    "ceil",
    "trunc",
    "round",
    "reciprocal",
    "isnan",
    "isinf",
    "signbit",
}


def check(table, x, y, isa):
    def apply(op, name):
        return op(x) if name in ONE_ARGUMENT else op(x, y)

    wants = {name: apply(op, name) for name, op in table.items()}
    got = multi_pointwise(
        lambda b, u, v: [b.op(name, u) if name in ONE_ARGUMENT else b.op(name, u, v) for name in table],
        [w.dtype for w in wants.values()],
        x, y, isa=isa,
    )  # fmt: skip
    for (name, want), result in zip(wants.items(), got, strict=True):
        same = (result == want) | ((result != result) & (want != want))
        if want.dtype.is_floating_point and name not in ("maximum", "minimum", "fmax", "fmin"):
            same &= (torch.signbit(result) == torch.signbit(want)) | (want != want)  # sign of zeros too
        bad = (~same).nonzero()[:3, 0]
        assert same.all(), (
            f"{name} on {x.dtype}: {x[bad].tolist()}, {y[bad].tolist()} gives {result[bad].tolist()}, "
            f"eager {want[bad].tolist()}"
        )


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integers(dtype, isa):
    x, y = sample(dtype), sample(dtype)[torch.randperm(1003)]
    y[300:600] = torch.randint(1, 20, (300,), dtype=dtype)
    y[y == 0] = 3  # the IR promises divisors other than 0
    check({**COMMON, **ON_INTS}, x, y, isa)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_shifts_by_any_count(dtype, isa):
    x = sample(dtype)
    count = torch.randint(-5 if dtype.is_signed else 0, 80, (1003,)).to(dtype)
    inside = (count >= 0) & (count < torch.iinfo(dtype).bits)
    count = torch.where(inside | (torch.arange(1003) % 3 == 0), count, torch.ones_like(count))
    check({k: ON_INTS[k] for k in ("shl", "shr")}, x, count, isa)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats(dtype, isa):
    x, y = sample(dtype), sample(dtype)[torch.randperm(1003)]
    special = sample(dtype)[:14]
    x[300:496], y[300:496] = special.repeat(14), special.repeat_interleave(14)
    check({**COMMON, **ON_FLOATS}, x, y, isa)


@pytest.mark.parametrize("isa", available_isas())
def test_fmod_is_exact_for_quotients_of_all_sizes(isa):
    x = torch.randn(40_001) * torch.pow(10.0, torch.randint(0, 30, (40_001,)).float())
    y = torch.randn(40_001) * torch.pow(10.0, torch.randint(-10, 10, (40_001,)).float())
    x[:20_000] = (y[:20_000].double() * torch.randint(1, 2**27, (20_000,))).float()  # near whole quotients
    (got,) = multi_pointwise(lambda b, u, v: [b.op("fmod", u, v)], [torch.float32], x, y, isa=isa)
    # the remainder of floats is a float, so double (which is exact too) is the reference: eager's float
    # kernel overflows
    assert torch.equal(got, torch.fmod(x.double(), y.double()).float())


@pytest.mark.parametrize("isa", available_isas())
def test_truth_values(isa):
    x, y = torch.rand(1003) < 0.5, torch.rand(1003) < 0.5
    check(ON_BOOL, x, y, isa)


@pytest.mark.parametrize("isa", available_isas())
def test_where_mixes_widths(isa):
    condition, x, y, z = (
        torch.rand(1003) < 0.5,
        torch.randn(1003),
        torch.randn(1003).double(),
        sample(torch.int8),
    )
    a, b_, c = multi_pointwise(
        lambda b, k, u, v, w: [
            b.op("where", k, u, b.op("neg", u)),
            b.op("where", b.op("gt", v, b.const(0.0, "f64")), v, b.cast(u, "f64")),
            b.op("where", k, w, b.const(7, "i8")),
        ],
        [torch.float32, torch.float64, torch.int8],
        condition, x, y, z, isa=isa,
    )  # fmt: skip
    assert torch.equal(a, torch.where(condition, x, -x))
    assert torch.equal(b_, torch.where(y > 0, y, x.double()))
    assert torch.equal(c, torch.where(condition, z, torch.tensor(7, dtype=torch.int8)))
