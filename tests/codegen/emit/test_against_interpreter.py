"""Random kernels: the compiled code agrees with the reference interpreter of the loop IR."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp.codegen.ir import index as ix
from dyncomp.codegen.ir.interpret import interpret
from dyncomp.codegen.ir.nodes import Acc, Accumulate, Builder, Init, Kernel, Loop, Param, Store
from dyncomp.codegen.ir.ops import OPS
from dyncomp.codegen.ir.types import FLOATS, INTS, TO_TORCH, compute_type
from tests.codegen.emit.kernel_harness import run

TYPES = ["f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool"]
BINARY = "add sub mul maximum minimum lt eq ge and or xor remainder div copysign".split()
UNARY = "neg abs sign not floor round sigmoid tanh erf cos isnan".split()
LOADS = "plain strided row column reversed guarded divided indirect".split()


def allowed(name, dtype):
    try:
        OPS[name].result((dtype,) * OPS[name].arity)
    except TypeError:
        return False
    # the divisor of integers may be 0 here, which the IR rules out
    return not (name == "remainder" and dtype in INTS)


@st.composite
def values(draw, b, params, row, col, steps):
    """A list of values over (row, col): loads of all kinds, then operations on earlier ones."""
    made = []
    r, c = ix.as_index(row), ix.as_index(col)
    width = col.extent.const
    for p in params:
        kind = draw(st.sampled_from(LOADS))
        at = {
            "plain": r * width + c,
            "strided": r + c * 2,
            "row": r,
            "column": c,
            "reversed": r * width + (width - 1) - c,
            "guarded": r * width + c - 3,
            "divided": (r * width + c) // 3,
            "indirect": ix.ZERO,
        }[kind]
        if kind == "guarded":
            inside = b.op("ge", b.position(r * width + c), b.const(3, "i64"))
            made.append(b.load(p, at, (), inside))
        elif kind == "indirect":
            number = b.op("maximum", b.position(c - 2), b.const(0, "i64"))
            made.append(b.load(p, at, ((number, ix.const(2)),)))
        else:
            made.append(b.load(p, at))
    made.append(b.position(c - r * 2))
    for _ in range(steps):
        first = draw(st.sampled_from(made))
        how = draw(st.sampled_from(["unary", "binary", "binary", "cast", "where"]))
        if how == "unary":
            names = [n for n in UNARY if allowed(n, first.dtype)]
            if names:
                made.append(b.op(draw(st.sampled_from(names)), first))
        elif how == "binary":
            names = [n for n in BINARY if allowed(n, first.dtype)]
            same = [v for v in made if v.dtype == first.dtype]
            made.append(b.op(draw(st.sampled_from(names)), first, draw(st.sampled_from(same))))
        elif how == "cast" and first.dtype not in FLOATS:
            made.append(b.cast(first, draw(st.sampled_from(["f32", "f64", "i64", "i32", "u8", "bool"]))))
        elif how == "where":
            conditions = [v for v in made if v.dtype == "bool"]
            same = [v for v in made if v.dtype == first.dtype]
            if conditions:
                made.append(
                    b.op("where", draw(st.sampled_from(conditions)), first, draw(st.sampled_from(same)))
                )
    return made


def buffer(dtype, count):
    torch_type = TO_TORCH[dtype]
    if dtype == "bool":
        return torch.rand(count) < 0.5
    if torch_type.is_floating_point:
        return (torch.randn(count) * 3).to(torch_type)
    info = torch.iinfo(torch_type)
    return torch.randint(max(info.min, -100), min(info.max, 100), (count,)).to(torch_type)


def check(kernel, inputs, outputs):
    got = [o.clone() for o in outputs]
    want = [o.clone() for o in outputs]
    text = run(kernel, *inputs, *got, cuts=(1,))
    interpret(kernel, [*inputs, *want])
    for param, g, w in zip(kernel.params[len(inputs) :], got, want, strict=True):
        loose = {"rtol": 1e-4, "atol": 1e-4} if g.dtype.is_floating_point else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(g, w, **loose, equal_nan=True, msg=lambda m, p=param: f"{p}: {m}\n{text}")


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_pointwise_kernels(data):
    rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(4, 70))
    row, col = ix.Var("row", ix.const(rows)), ix.Var("col", ix.const(width))
    types = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    params = [Param(f"x{k}", t, "in") for k, t in enumerate(types)]
    b = Builder()
    made = data.draw(values(b, params, row, col, data.draw(st.integers(1, 8))))
    outs, stores = [], []
    for k, value in enumerate(made[-3:]):
        outs.append(Param(f"y{k}", value.dtype, "out"))
        stores.append(Store(outs[-1], ix.as_index(row) * width + ix.as_index(col), value))
    as_axis = data.draw(st.booleans())
    axes, body = ((row, col), tuple(stores)) if as_axis else ((row,), (Loop(col, tuple(stores)),))
    kernel = Kernel((*params, *outs), (), (), axes, col, None, body)
    count = rows * width + 2 * width + rows
    inputs = [buffer(p.dtype, count) for p in params]
    check(kernel, inputs, [torch.zeros(rows * width, dtype=TO_TORCH[p.dtype]) for p in outs])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_reductions(data):
    rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(4, 200))
    row, col = ix.Var("row", ix.const(rows)), ix.Var("col", ix.const(width))
    along_columns = data.draw(st.booleans())
    types = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2))
    params = [Param(f"x{k}", t, "in") for k, t in enumerate(types)]
    b = Builder()
    made = data.draw(values(b, params, row, col, data.draw(st.integers(0, 5))))
    kept, reduced = (col, row) if along_columns else (row, col)
    outs, starts, grows, stores = [], [], [], []
    for k, value in enumerate(made[-3:]):
        ops = ["any", "all"] if value.dtype == "bool" else ["max", "min", "argmax", "argmin"]
        if value.dtype in INTS:
            ops.append("sum")
        acc = Acc(f"a{k}", data.draw(st.sampled_from(ops)), compute_type(value.dtype))
        arg = acc.op.startswith("arg")
        position = b.position(ix.as_index(reduced)) if arg else None
        result = b.result(acc, "position" if arg else "value")
        outs.append(Param(f"y{k}", result.dtype, "out"))
        starts.append(Init(acc))
        grows.append(Accumulate(acc, value, position))
        stores.append(Store(outs[-1], ix.as_index(kept), result))
    body = (*starts, Loop(reduced, tuple(grows)), *stores)
    kernel = Kernel((*params, *outs), (), (), (kept,), col, None, body)
    inputs = [buffer(p.dtype, rows * width + 2 * width + rows) for p in params]
    check(kernel, inputs, [torch.zeros(kept.extent.const, dtype=TO_TORCH[p.dtype]) for p in outs])
