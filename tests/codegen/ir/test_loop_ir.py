"""The verifier refuses malformed kernels, printed kernels read back, the interpreter gives their meaning."""

import pytest
import torch

from dyncomp.codegen.ir.index import Var, as_index, const, minimum
from dyncomp.codegen.ir.interpret import interpret
from dyncomp.codegen.ir.nodes import Acc, Accumulate, Builder, Init, Kernel, Loop, Param, Scratch, Store
from dyncomp.codegen.ir.printer import print_kernel, run
from dyncomp.codegen.ir.verify import verify
from dyncomp.errors import InternalError

X, Y = Param("x", "f32", "in"), Param("y", "f32", "out")
ROW, COLUMN = Var("i", const(4)), Var("j", const(6))


def softmax():
    b = Builder()
    place = ROW * 6 + COLUMN
    peak, total, row = Acc("peak", "max", "f32"), Acc("total", "sum", "f32"), Scratch("row", "f32", 6)
    loaded = b.load(X, place)
    power = b.op("exp", b.op("sub", loaded, b.result(peak)))
    body = (
        Init(peak),
        Loop(COLUMN, (Accumulate(peak, loaded),)),
        Init(total),
        Loop(COLUMN, (Accumulate(total, power), Store(row, as_index(COLUMN), power))),
        Loop(COLUMN, (Store(Y, place, b.op("div", b.load(row, as_index(COLUMN)), b.result(total))),)),
    )
    return Kernel((X, Y), (row,), (), (ROW,), COLUMN, None, body, "softmax")


def test_print_reads_back():
    kernel = softmax()
    text = print_kernel(kernel)
    assert text.startswith("# softmax")
    assert print_kernel(run(text), notes=False) == print_kernel(kernel, notes=False)
    verify(run(text))


def test_interpret_softmax():
    x, y = torch.randn(4, 6), torch.zeros(4, 6)
    interpret(softmax(), [x.flatten(), y.view(-1)])
    torch.testing.assert_close(y, torch.softmax(x, -1))


def test_interpret_ragged_blocks():
    block = Var("block", const(3))
    inner = Var("inner", minimum(4, const(10) - block * 4))
    b = Builder()
    place = block * 4 + inner
    body = (Loop(inner, (Store(Y, place, b.op("neg", b.load(X, place))),)),)
    x, y = torch.randn(10), torch.zeros(10)
    kernel = Kernel((X, Y), (), (), (block,), inner, None, body)
    verify(kernel)
    interpret(kernel, [x, y])
    assert torch.equal(y, -x)


def _kernel(body, **fields):
    parts = dict(params=(X, Y), scratch=(), sizes=(), axes=(ROW,), vector=None, tile=None, body=body) | fields
    return Kernel(**parts)


def broken_kernels():
    b = Builder()
    value, row = b.load(X, as_index(ROW)), Scratch("row", "f32", 4)
    total = Acc("total", "sum", "f32")
    yield "not bound", _kernel((Store(Y, as_index(COLUMN), value),))
    yield "only read", _kernel((Store(X, as_index(ROW), value),))
    yield "before Init", _kernel((Accumulate(total, value),))
    yield "read before", _kernel((Store(Y, as_index(ROW), b.result(total)),))
    yield "inside itself", _kernel((Loop(ROW, (Store(Y, as_index(ROW), value),)),))
    yield "store of bool", _kernel((Store(Y, as_index(ROW), b.op("isnan", value)),))
    yield "vector variable", _kernel((Store(Y, as_index(ROW), value),), vector=COLUMN)
    yield "not unique", _kernel((Store(Y, as_index(ROW), value),), params=(X, X))
    yield "unknown buffer", _kernel((Store(row, as_index(ROW), value),))
    yield "leaves", _kernel((Store(row, ROW * 2, value),), scratch=(row,))
    yield "is not bool", _kernel((Store(Y, as_index(ROW), value, value),))


@pytest.mark.parametrize("text,kernel", [pytest.param(t, k, id=t) for t, k in broken_kernels()])
def test_verifier_names_the_broken_rule(text, kernel):
    with pytest.raises(InternalError, match=text):
        verify(kernel)


def test_builder_interns_and_checks_types():
    b = Builder()
    assert b.load(X, as_index(ROW)) is b.load(X, as_index(ROW))
    assert b.const(0.0, "f32") is not b.const(-0.0, "f32")
    with pytest.raises(TypeError):
        b.op("add", b.const(1, "i64"), b.const(1.0, "f32"))
