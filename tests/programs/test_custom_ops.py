"""Operations of torch.library: effects happen as often and in the order of eager, writes and autocast are seen."""

import pytest
import torch
from torch.library import custom_op

import dyncomp

pytestmark = pytest.mark.usefixtures("fresh")
calls = []


@custom_op("dyncomp_tests::write", mutates_args=("x",))
def write(x: torch.Tensor, k: float) -> None:
    calls.append("write")
    x.add_(k)


@write.register_fake
def _(x, k):
    return None


@custom_op("dyncomp_tests::tell", mutates_args=())
def tell(x: torch.Tensor) -> torch.Tensor:
    calls.append(round(float(x.sum()), 2))
    return x.clone()


@tell.register_fake
def _(x):
    return torch.empty_like(x)


@custom_op("dyncomp_tests::product", mutates_args=())
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ y).float()


@product.register_fake
def _(x, y):
    return x.new_empty(x.shape[0], y.shape[1])


@custom_op("dyncomp_tests::unshaped", mutates_args=())
def unshaped(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


def write_inside(x):
    y = x * 2
    torch.ops.dyncomp_tests.write(y, 1.5)
    return y + 1


def write_through_view(x):
    y = x * 2
    torch.ops.dyncomp_tests.write(y[0], 1.5)
    return y


def write_input(x):
    torch.ops.dyncomp_tests.write(x, 1.5)
    return x + 1


def tell_often(x):
    torch.ops.dyncomp_tests.tell(x)
    total = torch.ops.dyncomp_tests.tell(x + 1) + torch.ops.dyncomp_tests.tell(x + 1)
    torch.ops.dyncomp_tests.tell(x * 3)
    return total


def product_under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.ops.dyncomp_tests.product(x, x) + torch.mm(x, x)


def without_fake(x):
    return torch.ops.dyncomp_tests.unshaped(x * 2).sum()


def out_of_view(x):
    out = torch.zeros(2, 4, 4)
    torch.add(x, 1, out=out[1])
    return out


def out_input(x):
    torch.mul(x, 2, out=x)
    return x + 1


PROGRAMS = [
    write_inside, write_through_view, write_input, tell_often, product_under_autocast, without_fake, out_of_view,
    out_input,
]  # fmt: skip


@pytest.mark.parametrize("backend", ["codegen", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_as_eager(program, backend):
    x = torch.arange(16.0).view(4, 4) / 8 - 1
    ours, theirs = x.clone(), x.clone()
    compiled = dyncomp.optimize(program, backend=backend)
    for _ in range(2):
        calls.clear()
        want = program(theirs)
        wanted_calls = calls.copy()
        calls.clear()
        got = compiled(ours)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(ours, theirs)
        assert got.stride() == want.stride() and calls == wanted_calls
    assert "eager-error" not in dyncomp.stats().break_reasons


@custom_op("dyncomp_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def test_a_size_from_data_breaks_by_that_name():
    x = torch.arange(16.0) - 4
    assert dyncomp.optimize(lambda x: positive(x) + 1)(x).tolist() == (positive(x) + 1).tolist()
    assert list(dyncomp.stats().break_reasons) == ["data-dependent-shape"]
