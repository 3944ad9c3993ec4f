"""Every elementwise operation over pairs of dtypes: eager's result, or eager's error."""

from __future__ import annotations

import itertools

import pytest
import torch

import dyncomp
from dyncomp.fake import FakeMode
from dyncomp.fake.registry import ELEMENTWISE
from tests.support import check

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64]
NUMBERS = {"number": 1, "int": 1, "float": 1.0}


def cases(op):
    """Arguments of the operation without those that have a default: tensors of each pair of dtypes."""
    kinds = [str(a.type) for a in op._schema.arguments if not a.has_default_value()]
    if not set(kinds) <= {"Tensor", *NUMBERS}:
        return
    count = kinds.count("Tensor")
    for dtypes in itertools.product(DTYPES, repeat=min(count, 2)):
        left = iter([*dtypes, *dtypes[-1:] * (count - len(dtypes))])
        yield [torch.ones(2, 3, dtype=next(left)) if kind == "Tensor" else NUMBERS[kind] for kind in kinds]


def told(function, *args):
    try:
        results = function(*args)
    except Exception as error:  # noqa: BLE001 - what is compared
        return type(error)
    return [(t.dtype, t.shape, t.stride()) for t in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("part", range(4))
def test_elementwise(part):
    operations = sorted(ELEMENTWISE, key=str)[part::4]
    assert len(operations) > 20
    for op in operations:
        for args in cases(op):
            mode = FakeMode()
            fakes = [mode.from_real(a) if isinstance(a, torch.Tensor) else a for a in args]
            want, got = told(op, *args), told(lambda: mode.run(op, tuple(fakes)))  # noqa: B023
            assert got == want, (op, [getattr(a, "dtype", a) for a in args])


@pytest.mark.parametrize(
    "program",
    [torch.abs, torch.ceil, lambda x: x.int() - x, lambda x: torch.zeros(3) - x, lambda x: x - 1, torch.frac],
    ids=["abs", "ceil", "sub", "sub-float", "sub-number", "frac"],
)
def test_compiled_programs_raise(program):
    """Kernels of ours would compute what eager's do not."""
    x = torch.tensor([True, False, True])
    want = pytest.raises(RuntimeError, program, x).value
    got = pytest.raises(type(want), dyncomp.optimize(program), x).value
    assert str(got) == str(want)


WRITES = [
    pytest.param(lambda x: x.mul_(1.5), id="mul_ number"),
    pytest.param(lambda x: x.mul_(torch.full((2,), 1.5)), id="mul_ tensor"),
    pytest.param(lambda x: torch.mul(x, torch.full((2,), 1.5), out=x), id="mul out"),
    pytest.param(lambda x: x.add_(0.5), id="add_"),
    pytest.param(lambda x: x.div_(2), id="div_"),
    pytest.param(lambda x: x.pow_(0.5), id="pow_"),
    pytest.param(lambda x: x.addcmul_(torch.full((2,), 0.5), torch.ones(2)), id="addcmul_"),
    pytest.param(lambda x: x.lerp_(torch.ones(2), 0.5), id="lerp_"),
    pytest.param(lambda x: x.clamp_(0.5), id="clamp_"),
    pytest.param(lambda x: x.__imul__(1.5), id="__imul__"),
    pytest.param(lambda x: torch._foreach_mul_([x], 1.5), id="foreach"),
    pytest.param(lambda x: x.mul_(1 + 2j), id="complex"),
    pytest.param(lambda x: x.eq_(1.5), id="eq_"),
    pytest.param(lambda x: x.fill_(2.5), id="fill_"),
    pytest.param(lambda x: x.copy_(torch.full((2,), 2.5)), id="copy_"),
    pytest.param(lambda x: x.masked_fill_(x > 1, 2.5), id="masked_fill_"),
]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32], ids=str)
@pytest.mark.parametrize("function", WRITES)
def test_writes_of_a_wider_kind(function, dtype):
    check(function, torch.tensor([1, 2]).to(dtype), graphs=None, breaks=None)


def test_foreach_functions_return_their_list():
    def function(x, tensors):
        given = (x,)
        returned = torch._foreach_add_(given, 0.5)
        return torch._foreach_mul_(tensors, 2.0) is tensors, returned is given, returned[0] + tensors[0]

    check(function, torch.ones(2), [torch.ones(2)])


DRAWS = [
    pytest.param(lambda x: x.bernoulli_(0.3), id="bernoulli_"),
    pytest.param(lambda x: x.geometric_(0.5), id="geometric_"),
    pytest.param(lambda x: x.random_(), id="random_"),
]


@pytest.mark.parametrize("function", DRAWS)
def test_random_writes_draw_once(function):
    check(function, torch.zeros(50, dtype=torch.int64), graphs=None, breaks=None)


def test_a_custom_write_of_a_wider_kind_runs_once():
    ran = []

    @torch.library.custom_op("dyncomp_tests::write_wider", mutates_args=("x",))
    def write_wider(x: torch.Tensor, factor: float) -> None:
        ran.append(factor)
        x.copy_((x * factor).to(x.dtype))

    x = torch.arange(4)
    fast = dyncomp.optimize(lambda x: write_wider(x, 1.5))
    fast(x)
    assert ran == [1.5] and x.tolist() == [0, 1, 3, 4]
