"""Positions along the lanes against a number that all lanes share."""

import operator

import pytest
import torch

from dyncomp.codegen.ir.index import Var, as_index, const
from dyncomp.codegen.ir.nodes import Builder, Kernel, Loop, Param, Store
from tests.codegen.emit.kernel_harness import available_isas, guarded, run

NUMBERS = [0, 1, -1, 5, 16, 17, 30, 36, 37, 38, 2**40, -(2**40), 2**63 - 1, -(2**63)]
COMPARE = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def kernel_of(write, width, outs):
    """For each number: the statements that `write` gives for a row of positions."""
    row, column = Var("row", const(len(NUMBERS))), Var("column", const(width))
    b = Builder()
    numbers = Param("numbers", "i64", "in")
    stores = write(b, b.load(numbers, as_index(row)), as_index(row) * width + column, as_index(column))
    return Kernel((numbers, *outs), (), (), (row,), column, None, (Loop(column, stores),))


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("width", [16, 37, 130])
@pytest.mark.parametrize("name", COMPARE)
@pytest.mark.parametrize("dtype, torch_dtype", [("bool", torch.bool), ("f32", torch.float32), ("f64", torch.float64)])
def test_every_comparison_on_both_sides(isa, width, name, dtype, torch_dtype):
    left, right = Param("left", dtype, "out"), Param("right", dtype, "out")

    def write(b, number, at, column):
        position = b.position(column - 7)
        values = [b.op(name, position, number), b.op(name, number, position)]
        return tuple([Store(p, at, b.cast(v, dtype)) for p, v in zip((left, right), values, strict=True)])

    numbers = guarded(torch.tensor(NUMBERS))
    first, second = (guarded(torch.zeros(len(NUMBERS), width, dtype=torch_dtype)) for _ in range(2))
    text = run(kernel_of(write, width, (left, right)), numbers, first, second, isa=isa)
    assert "lanes_before" in text and "I64" not in text.replace("typedef", "")
    positions = torch.arange(width) - 7
    compare = COMPARE[name]
    assert torch.equal(first.bool(), compare(positions[None], numbers[:, None]))
    assert torch.equal(second.bool(), compare(numbers[:, None], positions[None]))


@pytest.mark.parametrize("isa", available_isas())
def test_positions_that_are_computed_with_are_held_in_lanes(isa):
    out, sums = Param("out", "f32", "out"), Param("sums", "i64", "out")

    def write(b, number, at, column):
        position = b.position(column)
        chosen = b.op("where", b.op("ge", position, b.const(0, "i64")), b.const(2.0, "f32"), b.const(3.0, "f32"))
        inside = b.op("lt", b.position(column * 2), number)
        return (
            Store(out, at, b.op("where", inside, chosen, b.const(-1.0, "f32"))),
            Store(sums, at, b.op("add", position, number)),
        )

    numbers = guarded(torch.tensor(NUMBERS))
    values = guarded(torch.zeros(len(NUMBERS), 37))
    added = guarded(torch.zeros(len(NUMBERS), 37, dtype=torch.int64))
    run(kernel_of(write, 37, (out, sums)), numbers, values, added, isa=isa)
    positions = torch.arange(37)
    assert torch.equal(values, torch.where(positions[None] * 2 < numbers[:, None], 2.0, -1.0))
    assert torch.equal(added, positions[None] + numbers[:, None])
