"""Pointwise families, as tables: one line an op where the op of the loop IR has the same meaning.

Which type is computed in: the promoted type of the operands (`promote`), or the result's type where
integers become floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dyncomp.codegen.ir.index import Index
from dyncomp.codegen.ir.nodes import Builder, Value
from dyncomp.codegen.ir.real import Real
from dyncomp.codegen.ir.types import FLOATS, HALVES, INTS, TO_TORCH, compute_type
from dyncomp.codegen.lower.builder import Lowering, Operand, dtype_of, number, promote, wrap_int
from dyncomp.codegen.lower.registry import lowering, register
from dyncomp.codegen.lower.rounding import rounded
from dyncomp.codegen.lower.tensor import Pointwise, Tensor

# Ops on floats; integers and bools are converted to the default float type first, as the result's type says.
FLOAT_UNARY = """exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh
atanh erf erfc erfinv
    sqrt rsqrt reciprocal sigmoid lgamma digamma""".split()
# Ops that leave integers as they are.
ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round", "fix": "trunc"}
COMPARISONS = "eq ne lt le gt ge".split()
LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
SHIFTS = {"bitwise_left_shift": "shl", "bitwise_right_shift": "shr", "__lshift__": "shl", "__rshift__": "shr"}
FLOAT_BINARY = {"atan2": "atan2", "hypot": "hypot", "copysign": "copysign"}
# Ops whose result depends on the spacing of the very type, which half types lose when they are computed in float.
SPACING = {"nextafter": "nextafter"}
EXTREMA = {"maximum": "maximum", "minimum": "minimum", "fmax": "fmax", "fmin": "fmin"}
OVERLOADS = ("Tensor", "Scalar", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor", "default")


def result(
    lx: Lowering,
    node: Any,
    function: Callable[..., Value],
    operands: list[Operand],
    compute: str | None,
    precise: tuple[int, ...] = (),
) -> Pointwise | None:
    """A pointwise tensor with the shape, type and layout that the node's result has in eager.

    ATen rounds scalars to the type `compute` first, but for the operands at the positions `precise`.
    """
    val = node.meta["val"]
    dtype = dtype_of(val)
    if dtype is None or not all(_representable(o, compute) for o in operands if not isinstance(o, Tensor)):
        return None
    return lx.elementwise(
        function, operands, dtype, compute=compute, shape=val.shape, strides=val.stride(), precise=precise
    )


def _representable(number: Any, compute: str | None) -> bool:
    """False for a number that the type cannot hold: eager raises, or has rules of its own."""
    kind = compute_type(compute) if compute else "f64"
    if isinstance(number, Real):
        return kind in FLOATS
    if kind in FLOATS or kind == "bool":
        return True
    if isinstance(number, Index):
        return kind == "i64"
    return math.isfinite(number) and wrap_int(int(number), kind) == int(number)


def work_type(operands: list[Operand]) -> str | None:
    """The type in which the operands meet; None if the loop IR does not have it."""
    return promote(operands)


def simple(name: str) -> Callable[..., Value]:
    return lambda b, *values: b.op(name, *values)


def _float_unary(ir: str) -> Callable[..., Any]:
    def lower(lx: Lowering, node: Any, x: Operand) -> Any:
        return result(lx, node, simple(ir), [x], dtype_of(node.meta["val"]))

    return lower


def _rounding(ir: str) -> Callable[..., Any]:
    def lower(lx: Lowering, node: Any, x: Any) -> Any:
        if compute_type(x.dtype) not in FLOATS:
            return result(lx, node, lambda b, v: v, [x], None)
        return result(lx, node, simple(ir), [x], x.dtype)

    return lower


def _binary(ir: str, allowed: frozenset[str]) -> Callable[..., Any]:
    def lower(lx: Lowering, node: Any, x: Operand, y: Operand) -> Any:
        work = work_type([x, y])
        if work is None or compute_type(work) not in allowed:
            return None
        return result(lx, node, simple(ir), [x, y], work)

    return lower


def _in_own_type(ir: str) -> Callable[..., Any]:
    def lower(lx: Lowering, node: Any, x: Operand, y: Operand) -> Any:
        work = work_type([x, y])
        return result(lx, node, simple(ir), [x, y], work) if work in FLOATS else None

    return lower


def _logical(ir: str) -> Callable[..., Any]:
    def lower(lx: Lowering, node: Any, x: Operand, y: Operand) -> Any:
        return result(lx, node, simple(ir), [x, y], "bool")

    return lower


def _register_tables() -> None:
    for name in FLOAT_UNARY:
        register(f"aten.{name}.default", _float_unary(name))
    for name, ir in ROUNDING.items():
        register(f"aten.{name}.default", _rounding(ir))
    families: list[tuple[dict[str, str], Callable[[str], Callable[..., Any]]]] = [
        ({n: n for n in COMPARISONS}, lambda ir: _binary(ir, FLOATS | INTS | {"bool"})),
        (LOGICAL, _logical),
        (BITWISE, lambda ir: _binary(ir, INTS | {"bool"})),
        (SHIFTS, lambda ir: _binary(ir, INTS)),
        (FLOAT_BINARY, lambda ir: _binary(ir, FLOATS)),
        (SPACING, _in_own_type),
        (EXTREMA, _extremum),
    ]
    for table, make in families:
        for name, ir in table.items():
            for overload in OVERLOADS:
                register(f"aten.{name}.{overload}", make(ir))


def _extremum(ir: str) -> Callable[..., Any]:
    def lower(lx: Lowering, node: Any, x: Operand, y: Operand) -> Any:
        work = work_type([x, y])
        if work is None:
            return None
        kind = compute_type(work)
        if ir in ("fmax", "fmin") and kind not in FLOATS:
            return result(lx, node, simple({"fmax": "maximum", "fmin": "minimum"}[ir]), [x, y], work)
        return result(lx, node, simple(ir), [x, y], work)

    return lower


_register_tables()


@lowering("aten.neg.default", "aten.abs.default", "aten.sign.default", "aten.sgn.default")
def sign_family(lx: Lowering, node: Any, x: Any) -> Any:
    if x.dtype == "bool":
        return result(lx, node, lambda b, v: v, [x], None)
    name = node.target.__name__.split(".")[0]
    return result(lx, node, simple("sign" if name == "sgn" else name), [x], x.dtype)


@lowering("aten.square.default")
def square(lx: Lowering, node: Any, x: Any) -> Any:
    return result(lx, node, lambda b, v: b.op("mul", v, v), [x], dtype_of(node.meta["val"]))


@lowering("aten.frac.default")
def frac(lx: Lowering, node: Any, x: Any) -> Any:
    if compute_type(x.dtype) not in FLOATS:
        return None  # ATen refuses integers
    return result(lx, node, lambda b, v: b.op("sub", v, b.op("trunc", v)), [x], x.dtype)


@lowering("aten.logical_not.default")
def logical_not(lx: Lowering, node: Any, x: Any) -> Any:
    return result(lx, node, simple("not"), [x], "bool")


@lowering("aten.bitwise_not.default")
def bitwise_not(lx: Lowering, node: Any, x: Any) -> Any:
    return result(lx, node, simple("not"), [x], x.dtype)


@lowering("aten.isnan.default", "aten.isinf.default", "aten.isfinite.default", "aten.signbit.default")
def float_class(lx: Lowering, node: Any, x: Any) -> Any:
    name = node.target.__name__.split(".")[0]
    if compute_type(x.dtype) not in FLOATS:
        if name == "signbit":
            return (
                None
                if x.dtype == "bool"
                else result(lx, node, lambda b, v: b.op("lt", v, b.const(0, v.dtype)), [x], None)
            )
        return result(lx, node, lambda b, v: b.const(name == "isfinite", "bool"), [x], None)
    if name == "isfinite":
        return result(lx, node, lambda b, v: b.op("not", b.op("or", b.op("isnan", v), b.op("isinf", v))), [x], x.dtype)
    return result(lx, node, simple(name), [x], x.dtype)


# ---- arithmetic
# -------------------------------------------------------------------------------------------------


def _scaled(b: Builder, value: Value, factor: bool | int | float | Real) -> Value:
    if isinstance(factor, Real):
        return b.op("mul", value, number(b, factor, value.dtype))
    if factor == 1 or value.dtype == "bool":
        return value
    return b.op("mul", value, b.const(factor if value.dtype in FLOATS else int(factor), value.dtype))


def _plus_scaled(b: Builder, base: Value, value: Value, alpha: bool | int | float | Real, sign: int = 1) -> Value:
    """`base + sign * alpha * value`; of floats rounded once, as ATen's kernels do it."""
    if base.dtype in FLOATS and (isinstance(alpha, Real) or alpha != 1):
        factor = number(b, alpha, value.dtype)
        return b.op("fma", value, b.op("neg", factor) if sign < 0 else factor, base)
    if base.dtype == "bool":
        return b.op("or", base, value)
    return b.op("add" if sign > 0 else "sub", base, _scaled(b, value, alpha))


def _is_bool(operand: Operand) -> bool:
    """Eager refuses to subtract truth values: left to ATen, which raises its error."""
    return operand.dtype == "bool" if isinstance(operand, Tensor) else isinstance(operand, bool)


def _as_held(alpha: Any, dtype: str) -> Any:
    """A factor as ATen holds it, in the type of the elements."""
    if dtype not in HALVES:
        return alpha
    return torch.tensor(float(alpha), dtype=TO_TORCH[dtype]).item()


@lowering("aten.add.Tensor", "aten.add.Scalar")
def add(lx: Lowering, node: Any, x: Operand, y: Operand, alpha: Any = 1) -> Any:
    work = work_type([x, y])
    if work is None or (work == "bool" and alpha is not True and alpha != 1):
        return None
    return result(lx, node, lambda b, u, v: _plus_scaled(b, u, v, _as_held(alpha, work)), [x, y], work)


@lowering("aten.sub.Tensor", "aten.sub.Scalar")
def sub(lx: Lowering, node: Any, x: Operand, y: Operand, alpha: Any = 1) -> Any:
    work = work_type([x, y])
    if work is None or any(_is_bool(v) for v in (x, y)):
        return None
    return result(lx, node, lambda b, u, v: _plus_scaled(b, u, v, _as_held(alpha, work), -1), [x, y], work)


@lowering("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(lx: Lowering, node: Any, x: Operand, y: Operand, alpha: Any = 1) -> Any:
    work = work_type([x, y])
    if work is None or any(_is_bool(v) for v in (x, y)):
        return None
    return result(lx, node, lambda b, u, v: _plus_scaled(b, v, u, _as_held(alpha, work), -1), [x, y], work)


@lowering("aten.mul.Tensor", "aten.mul.Scalar")
def mul(lx: Lowering, node: Any, x: Operand, y: Operand) -> Any:
    work = work_type([x, y])
    if work is None:
        return None
    # ATen keeps a half product's second factor as precise as it is if it has no dimensions.
    precise = (1,) if isinstance(x, Tensor) else (0, 1)
    return result(lx, node, simple("and" if work == "bool" else "mul"), [x, y], work, precise)


@lowering("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(lx: Lowering, node: Any, x: Operand, y: Operand) -> Any:
    return result(lx, node, simple("div"), [x, y], dtype_of(node.meta["val"]), precise=(1,))


def _integer_divisor_unsafe(work: str | None, divisor: Operand) -> bool:
    """Integer division by data may meet 0, where eager raises: left to ATen."""
    if work is None or work == "bool":
        return True
    return work in INTS and (not isinstance(divisor, int) or divisor == 0)


@lowering("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(lx: Lowering, node: Any, x: Operand, y: Operand, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return div(lx, node, x, y)
    work = work_type([x, y])
    if _integer_divisor_unsafe(work, y):
        return None
    assert work is not None
    steps = simple(f"div_{rounding_mode}")
    if work in HALVES and isinstance(y, Tensor) and y.shape:
        steps = _div_trunc_half(work) if rounding_mode == "trunc" else _div_floor_half(work)
    return result(lx, node, steps, [x, y], work, precise=(1,))


def _div_trunc_half(dtype: str) -> Callable[..., Value]:
    """By a tensor, ATen divides in the half type."""
    return lambda b, x, y: b.op("trunc", rounded(b, b.op("div", x, y), dtype))


def _div_floor_half(dtype: str) -> Callable[..., Value]:
    """Python's floor division in steps, each rounded, as ATen has it for half types."""

    def compute(b: Builder, x: Value, y: Value) -> Value:
        def each(name: str, *args: Value) -> Value:
            return rounded(b, b.op(name, *args), dtype)

        zero, half, one = (b.const(v, x.dtype) for v in (0.0, 0.5, 1.0))
        rest = each("fmod", x, y)
        quotient = each("div", each("sub", x, rest), y)
        opposite = b.op("xor", b.op("lt", y, zero), b.op("lt", rest, zero))
        lower = b.op("and", b.op("ne", rest, zero), opposite)
        quotient = b.op("where", lower, each("sub", quotient, one), quotient)
        whole = b.op("floor", quotient)
        short = b.op("gt", each("sub", quotient, whole), half)
        whole = b.op("where", short, each("add", whole, one), whole)
        signed = b.op("copysign", zero, b.op("div", x, y))
        whole = b.op("where", b.op("eq", quotient, zero), signed, whole)
        return b.op("where", b.op("eq", y, zero), b.op("div", x, y), whole)

    return compute


@lowering("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(lx: Lowering, node: Any, x: Operand, y: Operand) -> Any:
    return div_mode(lx, node, x, y, rounding_mode="floor")


@lowering("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.fmod.Tensor", "aten.fmod.Scalar")
def remainder(lx: Lowering, node: Any, x: Operand, y: Operand) -> Any:
    work = work_type([x, y])
    if _integer_divisor_unsafe(work, y):
        return None
    return result(lx, node, simple(node.target.__name__.split(".")[0]), [x, y], work)


def integer_power(b: Builder, base: Value, exponent: int) -> Value:
    """Repeated squaring; integers wrap around as in ATen."""
    out: Value | None = None
    while exponent:
        if exponent & 1:
            out = base if out is None else b.op("mul", out, base)
        exponent >>= 1
        if exponent:
            base = b.op("mul", base, base)
    return b.const(1, base.dtype) if out is None else out


Inner = Callable[[Builder, Value], Value]
# Exponents that ATen computes without pow(), the same way. `r` rounds between the steps, where ATen does
# (bfloat16 alone).
POWERS: dict[float, Callable[[Builder, Value, Inner], Value]] = {
    0.0: lambda b, v, r: b.const(1.0, v.dtype),
    0.5: lambda b, v, r: b.op("sqrt", v),
    1.0: lambda b, v, r: v,
    2.0: lambda b, v, r: b.op("mul", v, v),
    3.0: lambda b, v, r: b.op("mul", r(b, b.op("mul", v, v)), v),
    -0.5: lambda b, v, r: b.op("rsqrt", v),
    -1.0: lambda b, v, r: b.op("reciprocal", v),
    -2.0: lambda b, v, r: b.op("reciprocal", r(b, b.op("mul", v, v))),
}


@lowering("aten.pow.Tensor_Scalar")
def pow_scalar(lx: Lowering, node: Any, x: Any, exponent: Any) -> Any:
    work = work_type([x, exponent])
    if work is None or work == "bool":
        return None
    if compute_type(work) in INTS:
        if exponent < 0:
            return None
        return result(lx, node, lambda b, v: integer_power(b, v, int(exponent)), [x], work)
    known = POWERS.get(float(exponent))
    if known is not None and not (work == "f16" and exponent in (0.5, -0.5)):  # float16 goes through pow(): -0.0, -inf
        inner = (lambda b, v: rounded(b, v, work)) if work == "bf16" else (lambda b, v: v)
        return result(lx, node, lambda b, v: known(b, v, inner), [x], work)
    return result(lx, node, simple("pow"), [x, float(exponent)], work)


@lowering("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def pow_tensor(lx: Lowering, node: Any, x: Operand, exponent: Operand) -> Any:
    work = work_type([x, exponent])
    if work is None or compute_type(work) not in FLOATS:
        return None
    return result(lx, node, simple("pow"), [x, exponent], work)


@lowering("aten.addcmul.default", "aten.addcdiv.default")
def addc(lx: Lowering, node: Any, x: Any, first: Any, second: Any, value: Any = 1) -> Any:
    work = work_type([x, first, second])
    name = "mul" if node.target.__name__.startswith("addcmul") else "div"
    if work is None or work == "bool" or (name == "div" and compute_type(work) not in FLOATS):
        return None

    def compute(b: Builder, u: Value, v: Value, w: Value) -> Value:
        return b.op("add", u, b.op(name, _scaled(b, v, value), w))

    return result(lx, node, compute, [x, first, second], work)


@lowering("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(lx: Lowering, node: Any, start: Any, end: Any, weight: Operand) -> Any:
    if compute_type(start.dtype) not in FLOATS:
        return None  # ATen refuses integers

    def compute(b: Builder, s: Value, e: Value, w: Value) -> Value:
        gap = b.op("sub", e, s)
        near = b.op("add", s, b.op("mul", w, gap))
        far = b.op("sub", e, b.op("mul", gap, b.op("sub", b.const(1.0, w.dtype), w)))
        return b.op("where", b.op("lt", b.op("abs", w), b.const(0.5, w.dtype)), near, far)

    return result(lx, node, compute, [start, end, weight], dtype_of(node.meta["val"]), precise=(2,))
