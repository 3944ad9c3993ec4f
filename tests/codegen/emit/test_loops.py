"""Loop forms: rows, columns, tails, strides, gathers, guards, accumulators, ranges of units; buffers end
at guard pages."""

import pytest
import torch

from dyncomp.codegen.ir import index as ix
from dyncomp.codegen.ir.nodes import Acc, Accumulate, Builder, Init, Kernel, Loop, Param, Scratch, Store
from tests.codegen.emit.kernel_harness import available_isas, guarded, run

ISAS = available_isas()
SIZES = [1, 5, 17, 64, 129, 1000]


def var(name, extent):
    v = ix.Var(name, ix.as_index(extent))
    return v, ix.as_index(v)


def f32(name, role="in"):
    return Param(name, "f32", role)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", SIZES)
def test_softmax_rows_with_a_scratch_row(n, isa):
    rows = 5
    i, iv = var("i", rows)
    r, rv = var("r", n)
    x, y = f32("x"), f32("y", "out")
    top, total = Acc("top", "max", "f32"), Acc("total", "sum", "f32")
    row = Scratch("row", "f32", n)
    b = Builder()
    at = iv * n + rv
    e = b.op("exp", b.op("sub", b.load(x, at), b.result(top)))
    kernel = Kernel(
        (x, y), (row,), (), (i,), r, None,
        (
            Init(top), Loop(r, (Accumulate(top, b.load(x, at)),)),
            Init(total), Loop(r, (Store(row, rv, e), Accumulate(total, b.load(row, rv)))),
            Loop(r, (Store(y, at, b.op("div", b.load(row, rv), b.result(total))),)),
        ),
    )  # fmt: skip
    data, out = guarded(torch.randn(rows, n)), guarded(torch.zeros(rows, n))
    run(kernel, data, out, isa=isa, cuts=(2, 3))
    torch.testing.assert_close(out, data.softmax(-1), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rows", [1, 40, 700])
def test_column_sums(n, rows, isa):
    c, cv = var("c", n)
    r, rv = var("r", rows)
    x, y = f32("x"), f32("y", "out")
    total = Acc("total", "sum", "f32")
    b = Builder()
    body = (
        Init(total),
        Loop(r, (Accumulate(total, b.load(x, rv * n + cv)),)),
        Store(y, cv, b.op("neg", b.result(total))),
    )
    kernel = Kernel((x, y), (), (), (c,), c, None, body)
    data, out = guarded(torch.randn(rows, n)), guarded(torch.zeros(n))
    run(kernel, data, out, isa=isa, cuts=(n // 3,))
    torch.testing.assert_close(out.double(), -data.double().sum(0), rtol=1e-6, atol=2e-6 * rows**0.5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(
    "dtype, name", [(torch.float32, "f32"), (torch.float64, "f64"), (torch.int64, "i64"), (torch.int8, "i8")]
)
def test_reduction_over_two_loops(op, dtype, name, isa):
    i, iv = var("i", 3)
    a, av = var("a", 4)
    r, rv = var("r", 37)
    x, y = Param("x", name, "in"), Param("y", name, "out")
    acc = Acc("acc", op, name)
    b = Builder()
    body = (
        Init(acc),
        Loop(a, (Loop(r, (Accumulate(acc, b.load(x, av * 111 + iv * 37 + rv)),)),)),
        Store(y, iv, b.result(acc)),
    )
    kernel = Kernel((x, y), (), (), (i,), r, None, body)
    data = (
        torch.randn(4, 3, 37).to(dtype)
        if dtype.is_floating_point
        else torch.randint(-50, 50, (4, 3, 37)).to(dtype)
    )
    data, out = guarded(data), guarded(torch.zeros(3, dtype=dtype))
    run(kernel, data, out, isa=isa)
    flat = data.transpose(0, 1).reshape(3, -1)
    want = {"sum": flat.sum(1), "prod": flat.prod(1), "max": flat.amax(1), "min": flat.amin(1)}[op].to(dtype)
    torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5 if op == "sum" else 1e-40)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", ["max", "min"])
def test_extrema_let_nan_win(op, isa):
    n = 75
    i, iv = var("i", 80)
    r, rv = var("r", n)
    x, y = f32("x"), f32("y", "out")
    acc = Acc("acc", op, "f32")
    b = Builder()
    kernel = Kernel(
        (x, y),
        (),
        (),
        (i,),
        r,
        None,
        (Init(acc), Loop(r, (Accumulate(acc, b.load(x, iv * n + rv)),)), Store(y, iv, b.result(acc))),
    )
    data = torch.randn(80, n)
    data[torch.arange(n), torch.arange(n)] = float("nan")
    data[75:78] = -float("inf")
    data[78:] = float("inf")
    data, out = guarded(data), guarded(torch.zeros(80))
    run(kernel, data, out, isa=isa)
    want = data.amax(1) if op == "max" else data.amin(1)
    torch.testing.assert_close(out, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "dtype, name",
    [
        (torch.float32, "f32"),
        (torch.float64, "f64"),
        (torch.int32, "i32"),
        (torch.uint8, "u8"),
        (torch.bool, "bool"),
    ],
)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("columns", [False, True])
def test_arg_extrema_take_the_first_and_nan(op, dtype, name, columns, isa):
    rows, n = 70, 45
    shape = (n, rows) if columns else (rows, n)
    i, iv = var("i", rows)
    r, rv = var("r", n)
    x, y, z = Param("x", name, "in"), Param("y", "i64", "out"), Param("z", name, "out")
    acc = Acc("acc", op, name)
    b = Builder()
    at = rv * rows + iv if columns else iv * n + rv
    body = (
        Init(acc),
        Loop(r, (Accumulate(acc, b.load(x, at), b.position(rv)),)),
        Store(y, iv, b.result(acc, "position")),
        Store(z, iv, b.result(acc)),
    )
    kernel = Kernel((x, y, z), (), (), (i,), i if columns else r, None, body)
    data = torch.randint(0, 4, shape).to(dtype)
    if dtype.is_floating_point:
        flat = data.T if columns else data
        flat[torch.arange(40), torch.arange(40)] = float("nan")
        flat[torch.arange(20), torch.arange(20) + 3] = float("nan")
        flat[50] = -float("inf")
        flat[51] = float("inf")
    data = guarded(data)
    where, value = guarded(torch.zeros(rows, dtype=torch.int64)), guarded(torch.zeros(rows, dtype=dtype))
    run(kernel, data, where, value, isa=isa, cuts=(13,))
    numbers = data.int() if dtype is torch.bool else data
    want = getattr(torch, op)(numbers, 0 if columns else 1)
    assert torch.equal(where, want)
    picked = numbers.T if columns else numbers
    torch.testing.assert_close(
        value, picked[torch.arange(rows), want].to(dtype), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", ["any", "all"])
@pytest.mark.parametrize("n", [3, 16, 50, 200])
def test_any_and_all(op, n, isa):
    i, iv = var("i", 40)
    r, rv = var("r", n)
    x, y = f32("x"), Param("y", "bool", "out")
    acc = Acc("acc", op, "bool")
    b = Builder()
    hit = b.op("gt", b.load(x, iv * n + rv), b.const(0.0, "f32"))
    kernel = Kernel(
        (x, y),
        (),
        (),
        (i,),
        r,
        None,
        (Init(acc), Loop(r, (Accumulate(acc, hit),)), Store(y, iv, b.result(acc))),
    )
    data = torch.full((40, n), -1.0 if op == "any" else 1.0)
    data[torch.arange(30), torch.arange(30) % n] *= -1
    data, out = guarded(data), guarded(torch.zeros(40, dtype=torch.bool))
    run(kernel, data, out, isa=isa)
    assert torch.equal(out, getattr(torch, op)(data > 0, 1))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [7, 16, 64, 1003])
@pytest.mark.parametrize("step", [2, 3, 5])
def test_strided_loads_and_stores_stay_inside(n, step, isa):
    i, iv = var("i", 3)
    j, jv = var("j", n)
    x, y = f32("x"), f32("y", "out")
    b = Builder()
    width = (n - 1) * step + 1
    kernel = Kernel(
        (x, y),
        (),
        (),
        (i, j),
        j,
        None,
        (Store(y, iv * width + (n - 1 - jv) * step, b.op("neg", b.load(x, iv * width + jv * step))),),
    )
    data, out = guarded(torch.randn(3, width)), guarded(torch.zeros(3, width))
    for at_end in (True, False):
        data, out = guarded(data, at_end), guarded(torch.zeros(3, width), at_end)
        run(kernel, data, out, isa=isa, cuts=(n // 2, n + 3))
        assert torch.equal(out[:, ::step], -data[:, ::step].flip(1))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vector", ["row", "index"])
def test_gather_with_checked_index(vector, isa):
    """An embedding: the index is per row (whole rows are copied) or per lane."""
    count, width, table = 23, 37, 50
    i, iv = var("i", count)
    j, jv = var("j", width)
    x, where, y, flag = f32("x"), Param("where", "i64", "in"), f32("y", "out"), Param("flag", "i64", "flag")
    b = Builder()
    axes = (i, j) if vector == "row" else (j, i)
    checked = b.checked(b.load(where, iv), table, flag)
    value = b.load(x, jv, ((checked, ix.as_index(width)),))
    kernel = Kernel((x, where, y, flag), (), (), axes, axes[-1], None, (Store(y, iv * width + jv, value),))
    data = guarded(torch.randn(table, width))
    index = guarded(torch.randint(-table, table, (count,)))
    out, bad = guarded(torch.zeros(count, width)), torch.zeros(1, dtype=torch.int64)
    run(kernel, data, index, out, bad, isa=isa, cuts=(40, 500))
    assert torch.equal(out, data[index]) and bad.item() == 0
    index[11] = table
    run(kernel, data, index, out, bad, isa=isa)
    assert bad.item() == 1


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [5, 16, 30, 100])
def test_guarded_loads_and_stores_pad_and_concatenate(n, isa):
    """cat([pad(x, (3, 2)), y]) along a row, written with guards; the addresses of unused lanes are out of
    bounds."""
    width = n + 5
    i, iv = var("i", 4)
    j, jv = var("j", width + n)
    x, z, y = f32("x"), f32("z"), f32("y", "out")
    b = Builder()
    at = b.position(jv)
    inside = b.op("and", b.op("ge", at, b.const(3, "i64")), b.op("lt", at, b.const(n + 3, "i64")))
    second = b.op("ge", at, b.const(width, "i64"))
    value = b.op(
        "where", second, b.load(z, iv * n + jv - width, (), second), b.load(x, iv * n + jv - 3, (), inside)
    )
    skip = b.op("ne", at, b.const(width + 1, "i64"))
    kernel = Kernel((x, z, y), (), (), (i, j), j, None, (Store(y, iv * (width + n) + jv, value, skip),))
    data, other = guarded(torch.randn(4, n)), guarded(torch.randn(4, n))
    out = guarded(torch.full((4, width + n), 7.0))
    run(kernel, data, other, out, isa=isa)
    want = torch.cat([torch.nn.functional.pad(data, (3, 2)), other], 1)
    want[:, width + 1] = 7
    assert torch.equal(out, want)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name, dtype", [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_half_rows(name, dtype, isa):
    n = 203
    i, iv = var("i", 9)
    r, rv = var("r", n)
    x, w, y = Param("x", name, "in"), f32("w"), Param("y", name, "out")
    acc = Acc("acc", "sum", "f32")
    b = Builder()
    product = b.op("mul", b.load(x, iv * n + rv), b.load(w, rv))
    body = (
        Init(acc),
        Loop(r, (Accumulate(acc, b.op("mul", product, product)),)),
        Loop(r, (Store(y, iv * n + rv, b.op("div", product, b.result(acc))),)),
    )
    kernel = Kernel((x, w, y), (), (), (i,), r, None, body)
    data, weight, out = (
        guarded(torch.randn(9, n).to(dtype)),
        guarded(torch.randn(n)),
        guarded(torch.zeros(9, n, dtype=dtype)),
    )
    run(kernel, data, weight, out, isa=isa)
    p = data.float() * weight
    torch.testing.assert_close(out, (p / p.pow(2).sum(1, keepdim=True)).to(dtype), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("columns", [False, True])
def test_long_sums_are_as_accurate_as_eager(columns, isa):
    n, width = 1_000_003 if not columns else 200_003, 1 if not columns else 19
    i, iv = var("i", width)
    r, rv = var("r", n)
    x, y = f32("x"), f32("y", "out")
    acc = Acc("acc", "sum", "f32")
    b = Builder()
    at = rv * width + iv if columns else rv
    kernel = Kernel(
        (x, y), (), (), (i,) if columns else (), i if columns else r, None,
        (Init(acc), Loop(r, (Accumulate(acc, b.load(x, at)),)), Store(y, iv if columns else 0,
        b.result(acc))),
    )  # fmt: skip
    if not columns:
        kernel = Kernel(
            *[getattr(kernel, f) for f in ("params", "scratch", "sizes")],
            (),
            r,
            None,
            (kernel.body[0], kernel.body[1], Store(y, ix.ZERO, b.result(acc))),
        )
    for data in (torch.rand(n, width), torch.randn(n, width) + 0.1):
        out = torch.zeros(width)
        run(kernel, data, out, isa=isa)
        exact = data.double().sum(0)
        ours, eager = (out - exact).abs().max(), (data.sum(0) - exact).abs().max()
        assert ours <= max(eager * 2, exact.abs().max() * 2e-7)
    data[n // 2] = float("inf")
    run(kernel, data, out, isa=isa)
    assert torch.equal(out, torch.full((width,), float("inf")))
    data[n // 2 + 500] = -float("inf")
    run(kernel, data, out, isa=isa)
    assert out.isnan().all()


@pytest.mark.parametrize("isa", ISAS)
def test_scratch_of_units_that_are_lanes(isa):
    n, rows = 45, 6
    c, cv = var("c", n)
    r, rv = var("r", rows)
    x, y = f32("x"), f32("y", "out")
    acc, row = Acc("acc", "sum", "f32"), Scratch("row", "f32", rows)
    b = Builder()
    body = (
        Init(acc),
        Loop(r, (Store(row, rv, b.op("exp", b.load(x, rv * n + cv))), Accumulate(acc, b.load(row, rv)))),
        Loop(r, (Store(y, rv * n + cv, b.op("div", b.load(row, rv), b.result(acc))),)),
    )
    kernel = Kernel((x, y), (row,), (), (c,), c, None, body)
    data, out = guarded(torch.randn(rows, n)), guarded(torch.zeros(rows, n))
    run(kernel, data, out, isa=isa, cuts=(20,))
    torch.testing.assert_close(out, data.softmax(0), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (7, 128), (2, 0)])
def test_symbolic_sizes(shape, isa):
    m, n = ix.as_index(ix.Size("m")), ix.as_index(ix.Size("n"))
    i, iv = var("i", m)
    r, rv = var("r", n)
    x, y = f32("x"), f32("y", "out")
    acc = Acc("acc", "sum", "f32")
    b = Builder()
    kernel = Kernel(
        (x, y),
        (),
        ("m", "n"),
        (i,),
        r,
        None,
        (Init(acc), Loop(r, (Accumulate(acc, b.load(x, iv * n + rv)),)), Store(y, iv, b.result(acc))),
    )
    data, out = guarded(torch.randn(shape)), guarded(torch.ones(shape[0]))
    run(kernel, data, out, sizes=shape, isa=isa)
    torch.testing.assert_close(out, data.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("cut", [1, 15, 16, 17, 36, 37, 38, 100, 184])
def test_units_may_be_cut_anywhere(cut, isa):
    i, iv = var("i", 5)
    j, jv = var("j", 37)
    x, w, y = f32("x"), f32("w"), f32("y", "out")
    b = Builder()
    kernel = Kernel(
        (x, w, y),
        (),
        (),
        (i, j),
        j,
        None,
        (Store(y, iv * 37 + jv, b.op("add", b.load(x, iv * 37 + jv), b.op("exp", b.load(w, iv)))),),
    )
    data, weight, out = guarded(torch.randn(5, 37)), guarded(torch.randn(5)), guarded(torch.zeros(5, 37))
    run(kernel, data, weight, out, isa=isa, cuts=(cut,))
    torch.testing.assert_close(out, data + weight.exp()[:, None])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [3, 16, 61])
def test_indices_with_division_and_remainder(n, isa):
    """repeat_interleave and tiling along the vector variable."""
    j, jv = var("j", n * 4)
    x, y, z, p = f32("x"), f32("y", "out"), f32("z", "out"), Param("p", "i64", "out")
    b = Builder()
    body = (
        Store(y, jv, b.load(x, jv // 4)),
        Store(z, jv, b.load(x, jv % n)),
        Store(p, jv, b.position((jv // 4) * 3 + 1)),
    )
    kernel = Kernel((x, y, z, p), (), (), (j,), j, None, body)
    data, out, out2, where = (
        guarded(torch.randn(n)),
        guarded(torch.zeros(4 * n)),
        guarded(torch.zeros(4 * n)),
        guarded(torch.zeros(4 * n, dtype=torch.int64)),
    )
    run(kernel, data, out, out2, where, isa=isa)
    assert torch.equal(out, data.repeat_interleave(4)) and torch.equal(out2, data.repeat(4))
    assert torch.equal(where, torch.arange(4 * n) // 4 * 3 + 1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", [(16, 16), (64, 32), (33, 50), (5, 70), (100, 3)])
@pytest.mark.parametrize(
    "dtype, name",
    [(torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.float64, "f64"), (torch.uint8, "u8")],
)
def test_tiles_are_transposed(shape, dtype, name, isa):
    """y = x + z.t() + bias, and the transposed copy of y."""
    rows, n = shape
    t, tv = var("t", rows)
    v, vv = var("v", n)
    x, z, bias, y, yt = (
        Param(k, name, "out" if k.startswith("y") else "in") for k in ("x", "z", "bias", "y", "yt")
    )
    b = Builder()
    at = tv * n + vv
    value = b.op("add", b.op("add", b.load(x, at), b.load(z, vv * rows + tv)), b.load(bias, vv))
    body = (Loop(t, (Loop(v, (Store(y, at, value), Store(yt, vv * rows + tv, value))),)),)
    kernel = Kernel((x, z, bias, y, yt), (), (), (), v, t, body)
    data, other, extra = (
        guarded(torch.randn(s).mul(20).abs().to(dtype)) for s in ((rows, n), (n, rows), (n,))
    )
    out, out_t = guarded(torch.zeros(rows, n).to(dtype)), guarded(torch.zeros(n, rows).to(dtype))
    text = run(kernel, data, other, extra, out, out_t, isa=isa)
    assert "transpose" in text
    wide = torch.float32 if dtype is torch.bfloat16 else dtype
    want = (data.to(wide) + other.t().to(wide) + extra.to(wide)).to(dtype)
    assert torch.equal(out, want) and torch.equal(out_t, want.t())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [256, 300, 1003])
@pytest.mark.parametrize("rows", [8, 63, 203])
def test_wide_column_sums_go_row_by_row(width, rows, isa):
    """Two sums at once in one loop, with a weight a row."""
    c, cv = var("c", width)
    r, rv = var("r", rows)
    x, w, y, z = f32("x"), f32("w"), f32("y", "out"), f32("z", "out")
    first, second = Acc("first", "sum", "f32"), Acc("second", "sum", "f32")
    b = Builder()
    value = b.load(x, rv * width + cv)
    sums = (Accumulate(first, value), Accumulate(second, b.op("mul", value, b.load(w, rv))))
    after = (Store(y, cv, b.op("div", b.result(first), b.const(rows, "f32"))), Store(z, cv, b.result(second)))
    body = (Loop(c, (Init(first), Init(second), Loop(r, sums), *after)),)
    kernel = Kernel((x, w, y, z), (), (), (), c, None, body)
    data, weight = guarded(torch.randn(rows, width)), guarded(torch.randn(rows))
    out, out2 = guarded(torch.zeros(width)), guarded(torch.zeros(width))
    text = run(kernel, data, weight, out, out2, isa=isa)
    assert "two_sum_row" in text
    torch.testing.assert_close(out, data.double().mean(0).float(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(
        out2, (data.double() * weight.double()[:, None]).sum(0).float(), rtol=1e-6, atol=3e-6
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [3, 16, 17, 33, 40, 48, 63, 64, 100, 131])
@pytest.mark.parametrize("dtype, name", [(torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.float64, "f64")])
def test_narrow_columns_are_read_in_few_passes(width, dtype, name, isa):
    """Maxima, plain and long sums of columns: the columns that whole groups of vectors leave are one pass over the rows."""
    rows = 150
    c, cv = var("c", width)
    r, rv = var("r", rows)
    wide = "f64" if name == "f64" else "f32"
    x, w, y, z = Param("x", name, "in"), Param("w", name, "in"), Param("y", name, "out"), Param("z", wide, "out")
    most, total = Acc("most", "max", wide), Acc("total", "sum", wide)
    b = Builder()
    value = b.load(x, rv * width + cv)
    steps = (Accumulate(most, value), Accumulate(total, b.op("mul", value, b.load(w, cv))))
    after = (Store(y, cv, b.result(most)), Store(z, cv, b.result(total)))
    body = (Loop(c, (Init(most), Init(total), Loop(r, steps), *after)),)
    kernel = Kernel((x, w, y, z), (), (), (), c, None, body)
    data, weight = guarded(torch.randn(rows, width).to(dtype)), guarded(torch.randn(width).to(dtype))
    out = guarded(torch.zeros(width, dtype=dtype))
    out2 = guarded(torch.zeros(width, dtype=torch.float64 if name == "f64" else torch.float32))
    text = run(kernel, data, weight, out, out2, isa=isa)
    assert torch.equal(out, data.amax(0))
    torch.testing.assert_close(out2.double(), (data.double() * weight.double()).sum(0), rtol=1e-5, atol=2e-5)
    if isa == "avx512" and width == 40 and name == "f32":
        assert "m_3" in text and "for (; c + " not in text
