"""op: arguments of every kind, results, errors and warnings as eager's."""

from __future__ import annotations

import warnings

import pytest
import torch

from dyncomp._frame import _exec
from tests.frame.executor.exec_support import Slot, alloc, op_plan, plan, same_error

X = torch.randn(4, 6)
S = Slot


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "reference"),
    [
        ("aten::relu", (S(0),), {}, lambda: X.relu()),
        ("aten::relu.default", (S(0),), {}, lambda: X.relu()),
        ("aten::add.Tensor", (S(0), S(0)), {"alpha": 2}, lambda: X + 2 * X),
        ("aten::add.Tensor", (S(0), S(0)), [("alpha", 2.5)], lambda: torch.add(X, X, alpha=2.5)),
        ("aten::mul.Scalar", (S(0), 3), {}, lambda: X * 3),
        ("aten::mul.Scalar", (S(0), 1.5), {}, lambda: X * 1.5),
        ("aten::pow.Tensor_Scalar", (S(0), True), {}, lambda: X.pow(True)),
        ("aten::sum.dim_IntList", (S(0), [1]), {"keepdim": True}, lambda: X.sum(1, keepdim=True)),
        (
            "aten::sum.dim_IntList",
            (S(0), None),
            {"dtype": torch.float64},
            lambda: X.sum(None, dtype=torch.float64),
        ),
        ("aten::cat", ([S(0), S(0)], 1), {}, lambda: torch.cat([X, X], 1)),
        ("aten::cat", ((S(0), torch.ones(1, 6)),), {}, lambda: torch.cat([X, torch.ones(1, 6)])),
        ("aten::index.Tensor", (S(0), [None, torch.tensor([2, 0])]), {}, lambda: X[:, [2, 0]]),
        (
            "aten::gelu",
            (S(0),),
            {"approximate": "tanh"},
            lambda: torch.nn.functional.gelu(X, approximate="tanh"),
        ),
        ("aten::clamp", (S(0),), {"max": 0.5}, lambda: X.clamp(max=0.5)),
        (
            "aten::zeros",
            ([2, 3],),
            dict(dtype=torch.bfloat16, device=torch.device("cpu"), layout=torch.strided),
            lambda: torch.zeros(2, 3, dtype=torch.bfloat16),
        ),
        ("aten::clone", (S(0),), {"memory_format": torch.contiguous_format}, lambda: X.clone()),
        (
            "aten::native_layer_norm",
            (S(0), [6], None, None, 1e-5),
            {},
            lambda: torch.native_layer_norm(X, [6], None, None, 1e-5)[0],
        ),
        ("aten::constant_pad_nd", (S(0), [1, 1]), {}, lambda: torch.constant_pad_nd(X, [1, 1])),
        ("aten::_to_copy", (S(0),), {"dtype": torch.int32}, lambda: X.int()),
        ("aten::slice.Tensor", (S(0), 1, 2, None), {}, lambda: X[:, 2:]),
        (
            "aten::scaled_dot_product_attention",
            (S(0), S(0), S(0)),
            {"is_causal": True},
            lambda: torch.nn.functional.scaled_dot_product_attention(X, X, X, is_causal=True),
        ),
    ],
)
def test_arguments_are_placed_by_the_schema(name, args, kwargs, reference):
    y = op_plan(1, name, args, kwargs)(X)
    want = reference()
    assert y.dtype is want.dtype and y.stride() == want.stride() and torch.equal(y, want)


def test_a_tensor_of_the_call_beside_constants_in_an_index():
    y = op_plan(2, "aten::index.Tensor", (S(0), [None, S(1)]))(X, torch.tensor([1, 1]))
    assert torch.equal(y, X[:, [1, 1]])


def test_registers_among_the_arguments():
    code = [
        ("size", 0, 0, 0),
        ("size", 1, 0, 1),
        ("int", 2, "mul", ("s", 0), ("s", 1)),
        ("op", 0, (S(0), [("s", 2), 1]), {}, (1,)),
        ("op", 1, (S(1), 0, 0, ("s", 0)), {}, (2,)),
    ]
    p = plan(1, code, [("slot", 2)], single=True, ops=[("aten::reshape", ""), ("aten::slice", "Tensor")])
    for sizes in [(2, 3), (5, 4), (1, 1)]:
        x = torch.randn(sizes)
        assert torch.equal(p(x), x.reshape(-1, 1)[: sizes[0]])


def test_several_results_and_dropped_ones():
    code = [
        ("op", 0, (S(0), [6], None, None, 1e-5), {}, (1, None, 2)),
        ("op", 1, (S(0), 2, 1), {}, ((3, None, 4),)),
    ]
    p = plan(
        1,
        code,
        [("slot", i) for i in (1, 2, 3, 4)],
        ops=[("aten::native_layer_norm", ""), ("aten::split", "Tensor")],
    )
    norm, _, rstd = torch.native_layer_norm(X, [6], None, None, 1e-5)
    for got, want in zip(p(X), [norm, rstd, X[:, :2], X[:, 4:]], strict=True):
        assert torch.equal(got, want)


def test_a_sole_list_may_name_its_slots_directly():
    for outs in [(3, None, 4), ((3, None, 4),)]:
        code = [("op", 0, (S(0), 2, 1), {}, outs)]
        first, last = plan(1, code, [("slot", 3), ("slot", 4)], ops=[("aten::split", "Tensor")])(X)
        assert torch.equal(first, X[:, :2]) and torch.equal(last, X[:, 4:])
    for outs in [(), (None,)]:
        assert plan(1, [("op", 0, (S(0), 2, 1), {}, outs)], [], ops=[("aten::split", "Tensor")])(X) == ()


def test_expected_layouts_are_checked_and_restored():
    def transposed(sizes, strides):
        code = [("op", 0, (S(0), 0, 1), {}, (1,)), ("expect", 1, sizes, strides)]
        return plan(1, code, [("slot", 1)], single=True, ops=[("aten::transpose", "int")])

    assert transposed((6, 4), (1, 6))(X).data_ptr() == X.data_ptr()
    y = transposed((6, 4), (4, 1))(X)
    assert torch.equal(y, X.t()) and y.stride() == (4, 1)
    one = torch.randn(1, 3)
    assert transposed((3, 1), (1, 7))(one).data_ptr() == one.data_ptr()
    assert transposed((3, 0), (5, 5))(torch.empty(0, 3)).shape == (3, 0)
    with pytest.raises(RuntimeError, match=r"returned sizes \[6, 4\] where the trace saw sizes \[6, 5\]"):
        transposed((6, 5), (5, 1))(X)
    with pytest.raises(ValueError, match="is an input or a constant, no result"):
        plan(1, [("expect", 0, (6, 4), (1, 6))], [])


def test_an_int_result_fills_a_register():
    code = [("op", 0, (S(0), 1), {}, (("s", 0),)), ("int", 0, "add", ("s", 0), 1)]
    assert plan(1, code, [("s", 0)], single=True, ops=[("aten::size", "int")])(X) == 7


def test_a_list_result_of_another_length_is_an_error():
    p = plan(1, [("op", 0, (S(0), 2, 1), {}, ((3, 4),))], [("slot", 3)], ops=[("aten::split", "Tensor")])
    with pytest.raises(RuntimeError, match="returned 3 tensors where the plan has slots for 2"):
        p(X)


def test_results_that_are_undefined_come_out_as_none():
    grad, mask = torch.randn(4, 6), [True, False, False]
    code = [("op", 0, (S(0), S(1), [6], S(2), S(3), None, None, mask), {}, (4, 5, 6))]
    out, mean, rstd = torch.native_layer_norm(X, [6], None, None, 1e-5)
    p = plan(4, code, [("slot", 4), ("slot", 5), ("slot", 6)], ops=[("aten::native_layer_norm_backward", "")])
    got = p(grad, X, mean, rstd)
    assert got[1] is None and got[2] is None and got[0].shape == X.shape


def test_mutating_operators_work_on_slots():
    code = [alloc(1, 4, 6), ("op", 0, (S(0), S(0)), {"out": S(1)}, ()), ("op", 1, (S(1), 1), {}, (None,))]
    p = plan(1, code, [("slot", 1)], single=True, ops=[("aten::mul", "out"), ("aten::add_", "Scalar")])
    assert torch.equal(p(X), X * X + 1)


@pytest.mark.parametrize(
    ("args", "kwargs", "outs", "message"),
    [
        ((S(0),), {}, (1,), "misses argument 'other'"),
        ((S(0), S(0), 1), {}, (1,), "takes 2 positional arguments"),
        ((S(0), S(0)), {"beta": 1}, (1,), "has no argument 'beta'"),
        ((S(0), S(0)), {"other": 1}, (1,), "got 'other' twice"),
        ((S(0), "x"), {}, (1,), "argument 'other' takes Tensor, not 'x'"),
        ((S(0), S(7)), {}, (1,), "slot 7 is read before"),
        ((S(0), S(0)), {"alpha": S(0)}, (1,), "takes Scalar, not a tensor"),
        ((S(0), S(0)), {}, (1, 2), "returns 1 values, not 2"),
        ((S(0), S(0)), {}, (0,), "is an input"),
        ((S(0), S(0)), {}, ((1,),), "a result must be an int, not tuple"),
    ],
)
def test_mistakes(args, kwargs, outs, message):
    with pytest.raises(ValueError) as caught:
        op_plan(1, "aten::add.Tensor", args, kwargs, outs, outputs=[])
    assert message in str(caught.value)


def test_errors_are_eagers():
    y, index = torch.randn(5, 5), torch.tensor([9])
    same_error(lambda: op_plan(2, "aten::add.Tensor", (S(0), S(1)))(X, y), lambda: X + y)
    same_error(lambda: op_plan(2, "aten::index.Tensor", (S(0), [S(1)]))(X, index), lambda: X[index])
    same_error(
        lambda: op_plan(1, "aten::linalg_inv_ex", (S(0),), outs=(15, None))(X), lambda: torch.linalg.inv_ex(X)
    )
    same_error(
        lambda: op_plan(1, "aten::linalg_inv", (S(0),))(torch.zeros(3, 3)),
        lambda: torch.linalg.inv(torch.zeros(3, 3)),
    )
    same_error(lambda: op_plan(1, "aten::sum.dim_IntList", (S(0), [7]))(X), lambda: X.sum(7))


class Odd(Exception):
    pass


@torch.library.custom_op("dyncomp_test::odd", mutates_args=())
def odd(x: torch.Tensor, fail: bool) -> torch.Tensor:
    if fail:
        raise Odd("from Python")
    return x + 1


def test_operators_written_in_python_run_and_raise():
    good, bad = op_plan(1, "dyncomp_test::odd", (S(0), False)), op_plan(1, "dyncomp_test::odd", (S(0), True))
    for _ in range(3):
        assert torch.equal(good(X), X + 1)
        with pytest.raises(Odd, match="from Python"):
            bad(X)


def test_warnings_reach_python():
    p = op_plan(1, "aten::floor_divide", (S(0), S(0)), outputs=[])
    q = plan(2, [("op", 0, (S(0), S(0)), {"out": S(1)}, ())], [("input", 1)], ops=[("aten::mul", "out")])
    out = torch.empty(3)
    p(X)
    with warnings.catch_warnings(record=True) as ours:
        warnings.simplefilter("always")
        q(X, out)
    with warnings.catch_warnings(record=True) as eagers:
        warnings.simplefilter("always")
        torch.mul(X, X, out=torch.empty(3))
    assert [str(w.message) for w in ours] == [str(w.message) for w in eagers] and len(ours) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="resized"):
            q(X, torch.empty(3))


def test_random_numbers_follow_the_generator():
    p = op_plan(1, "aten::bernoulli", (S(0),))
    probabilities = torch.full((100,), 0.5)
    torch.manual_seed(3)
    want = torch.bernoulli(probabilities)
    torch.manual_seed(3)
    assert torch.equal(p(probabilities), want)
    generator = torch.Generator()
    q = op_plan(1, "aten::bernoulli", (S(0),), {"generator": generator})
    generator.manual_seed(3)
    assert torch.equal(q(probabilities), want)


def test_slots_compare_and_show():
    assert (
        S(3) == S(3)
        and S(3) != S(4)
        and len({S(3), S(3)}) == 1
        and repr(S(3)) == "Slot(3)"
        and S(3).index == 3
    )
    with pytest.raises(ValueError, match="negative slot"):
        _exec.Slot(-1)
