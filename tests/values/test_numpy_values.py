"""NumPy's numbers, and arrays made while tracing, against eager."""

import itertools
import math
import operator

import numpy as np
import pytest
import torch

import dyncomp
from tests.support import assert_same, check, outcome

NUMBERS = [
    np.float64(1.5), np.float32(1.1), np.float16(0.3), np.int64(3), np.int32(-2), np.uint8(7), np.int8(5), np.bool_(True),
    np.complex64(1 + 2j), np.float64("nan"), np.float32(-0.0),
]  # fmt: skip
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]
OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.and_,
    operator.eq, operator.lt, operator.ge, operator.iadd, operator.imul,
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: f"{type(n).__name__}({n})")
def test_with_a_tensor(number):
    """Whatever eager gives or raises, for every operator on either side and every dtype."""
    wrong = []
    for dtype, op, left in itertools.product(DTYPES, OPERATORS, (True, False)):
        x = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)

        def function(x, op=op, left=left):
            return op(x, number) if left else op(number, x)

        want, want_error = outcome(function, (x.clone(),))
        got, got_error = outcome(dyncomp.optimize(function), (x.clone(),))
        try:
            assert type(got_error) is type(want_error), f"{got_error!r} instead of {want_error!r}"
            assert_same(got, want)
        except AssertionError as error:
            wrong.append(f"{op.__name__} {dtype} {'tensor first' if left else 'number first'}: {error}")
        dyncomp.reset()
    assert not wrong, "\n".join(wrong)


SCALE = np.float64(2.0)


def _rates(x):
    return [x * float(rate) for rate in np.linspace(0, 0.5, 4)]


def _by_index(x):
    steps = np.arange(4)
    return x[steps[1]], x[int(steps[-1])], len(steps), steps.tolist(), steps.shape


PROGRAMS = [
    pytest.param(lambda x: x / np.sqrt(x.shape[-1]), id="sqrt of a size"),
    pytest.param(lambda x: x * np.prod(x.shape), id="prod of a shape"),
    pytest.param(lambda x: x * np.prod([1, 2, 3.5]), id="prod of a list"),
    pytest.param(lambda x: (x + np.log(2), np.log(2)), id="result"),
    pytest.param(lambda x: (x * SCALE, SCALE), id="global"),
    pytest.param(lambda x: x.reshape(-1)[: np.int64(3)], id="slice"),
    pytest.param(lambda x: x.reshape(np.int64(3), -1), id="size"),
    pytest.param(lambda x: x[np.int64(2)] + x[np.int32(0)], id="index"),
    pytest.param(lambda x: x.reshape(-1)[: int(np.ceil(x.numel() / 5))], id="int"),
    pytest.param(lambda x: [x * i for i in range(np.int64(3))], id="range"),
    pytest.param(lambda x: torch.zeros(np.int64(3)) + x.sum(), id="zeros"),
    pytest.param(lambda x: torch.full((2,), np.float32(1.5)) + x.sum(), id="full of a float"),
    pytest.param(lambda x: (torch.full((2,), np.int64(1)), x + 1), id="full of an int"),
    pytest.param(lambda x: (torch.tensor(np.float32(1.1)), torch.tensor(np.float64(1.1)), torch.tensor(np.int32(3)), x + 1), id="tensor"),
    pytest.param(lambda x: (torch.tensor([np.float64(1.1), 2]), torch.tensor([np.int32(3)], dtype=torch.float32), x + 1), id="tensor of a list"),
    pytest.param(lambda x: (torch.as_tensor(np.float16(1.1)), x.new_tensor(np.int64(3)), x + 1), id="as_tensor"),
    pytest.param(lambda x: torch.clamp(x, np.float32(0.5), np.float64(3)), id="clamp"),
    pytest.param(lambda x: torch.add(x, 1, alpha=np.float32(0.5)), id="alpha"),
    pytest.param(lambda x: (np.float32(3).item(), np.float32(3).dtype == np.float32, np.int64(3) // 2, x + 1), id="attributes"),
    pytest.param(lambda x: (math.sqrt(np.float64(2)), abs(np.int64(-2)), round(np.float64(1.26), 1), x + 1), id="math"),
    pytest.param(lambda x: x * (2 if np.isclose(1.0, 1.0 + 1e-12) else 3), id="branch"),
    pytest.param(lambda x: x + 1 if isinstance(np.float64(2), float) and not isinstance(np.float32(2), float) else x, id="isinstance"),
    pytest.param(lambda x: (f"{np.float64(1.5):.2f} {np.int64(3)}", x + 1), id="text"),
    pytest.param(lambda x: ({np.int64(3): x}[3], {3: x + 1}[np.int64(3)]), id="key"),
    pytest.param(lambda x: x.to(torch.float64 if np.dtype("float64") == np.float64 else torch.int32), id="dtype"),
    pytest.param(lambda x: x * np.max([1, 2]) + np.float64(3) ** 2 - np.int64(2), id="mixed"),
    pytest.param(lambda x: (np.float64(2) * np.array([1, 2]))[1] * x, id="array times number"),
    pytest.param(_rates, id="linspace"),
    pytest.param(_by_index, id="arange"),
    pytest.param(lambda x: (torch.from_numpy(np.arange(3)), x + torch.tensor(np.array([1.0, 2.0, 3.0]))), id="from_numpy"),
    pytest.param(lambda x: x + torch.as_tensor(np.eye(3), dtype=torch.float32)[0], id="as_tensor of an array"),
    pytest.param(lambda x: x.split(list(np.diff([0, 1, 4])), 0), id="split"),
    pytest.param(lambda x: (np.arange(6).reshape(2, 3)[1].sum(), x + 1), id="views"),
    pytest.param(lambda x: (torch.from_numpy(np.arange(4.0)).add_(1), x + 1), id="written copy"),
    pytest.param(lambda x: [a.tolist() for a in np.meshgrid([1, 2], [3, 4])] + [x + 1], id="meshgrid"),
]  # fmt: skip


@pytest.mark.parametrize("function", PROGRAMS)
def test_programs(function):
    x = torch.arange(12.0).reshape(4, 3)
    want, error = outcome(function, (x,))
    assert error is None
    before = dyncomp.stats()
    fast = dyncomp.optimize(function)
    for _ in range(3):
        _same_with_numpy(fast(x), want)
    assert dyncomp.stats().graph_breaks == before.graph_breaks
    assert dyncomp.stats().graphs == before.graphs + 1


def _same_with_numpy(got, want):
    if isinstance(want, np.generic):
        assert type(got) is type(want) and got.tobytes() == want.tobytes()
    elif isinstance(want, list | tuple):
        assert type(got) is type(want) and len(got) == len(want)
        for mine, theirs in zip(got, want, strict=True):
            _same_with_numpy(mine, theirs)
    else:
        assert_same(got, want)


class Holder:
    def __init__(self, number):
        self.number = number


def test_a_number_of_the_caller_is_guarded():
    def function(x, holder):
        return x * holder.number

    fast = dyncomp.optimize(function)
    x = torch.ones(3, dtype=torch.float64)
    numbers = [np.float64(2), np.float32(1.1), np.float64(2), np.int64(2), 2.0, np.float64(0.0), np.float64(-0.0), np.float64("nan")]
    for number in numbers:
        got, want = fast(x, Holder(number)), function(x, Holder(number))
        assert_same(got, want)
        assert torch.equal(torch.signbit(got), torch.signbit(want))
    made = dyncomp.stats().graphs
    for number in numbers:
        assert_same(fast(x, Holder(number)), function(x, Holder(number)))
    assert dyncomp.stats().graphs == made


def test_an_unused_number_is_not_guarded():
    def function(x, holder):
        return x + 1, holder.number

    before = dyncomp.stats().graphs
    fast = dyncomp.optimize(function)
    for i in range(4):
        number = np.float64(i)
        assert fast(torch.ones(2), Holder(number))[1] is number
    assert dyncomp.stats().graphs == before + 1


def test_arrays_over_a_break():
    def function(x, seen):
        steps = np.arange(3) * 2.0
        y = x + float(steps[1])
        seen.append(y.sum().item())
        steps[0] = 5  # plain Python by now, or a break
        return y * float(steps[0]), steps

    want_seen, got_seen = [], []
    want = function(torch.ones(2), want_seen)
    fast = dyncomp.optimize(function)
    for _ in range(2):
        got_seen.clear()
        got = fast(torch.ones(2), got_seen)
        assert got_seen == want_seen
        assert_same(got[0], want[0])
        assert got[1].tolist() == want[1].tolist() and got[1].strides == want[1].strides


def test_views_over_a_break():
    def function(x):
        whole = np.zeros(3)
        part = whole[1:]
        y = x + float(part[0])
        print(end="")
        part[0] = 7.0
        return y * float(whole[1]), whole

    want = function(torch.ones(2))
    fast = dyncomp.optimize(function)
    for _ in range(2):
        got = fast(torch.ones(2))
        assert_same(got[0], want[0])
        assert got[1].tolist() == want[1].tolist()


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x * np.log(np.float64(0)), id="division by zero"),
        pytest.param(lambda x: x * (np.float32(3e38) * np.float32(10)), id="overflow"),
        pytest.param(lambda x: np.int8(100) + np.int8(100) + x, id="integer overflow"),
    ],
)
def test_what_warns_stays_python(function):
    x = torch.ones(2)
    fast = dyncomp.optimize(function)
    for _ in range(2):
        with pytest.warns(RuntimeWarning):
            want = function(x)
        with pytest.warns(RuntimeWarning):
            got = fast(x)
        assert_same(got, want)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        fast(x)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x + np.arange(3)[5], id="IndexError"),
        pytest.param(lambda x: x + np.int64(2) @ np.int64(2), id="matmul"),
        pytest.param(lambda x: x if np.arange(3) else x + 1, id="truth of an array"),
        pytest.param(lambda x: np.float64(1) + "a", id="text"),
        pytest.param(lambda x: {np.arange(3): x}, id="array as a key"),
        pytest.param(lambda x: torch.from_numpy(np.array(["a"])), id="from_numpy of text"),
        pytest.param(lambda x: np.float64(1)(x), id="call"),
        pytest.param(lambda x: np.arange(3) @ np.arange(4), id="shapes"),
    ],
)
def test_errors(function):
    check(function, torch.ones(3), graphs=None, breaks=None)


def test_arrays_of_tensors_and_of_the_caller_stay_python():
    given = np.array([1.0, 2.0])
    functions = [
        lambda x: torch.from_numpy(np.tanh(x.numpy())),
        lambda x: x + torch.from_numpy(given),
        lambda x: np.mean(given) * x,
    ]
    before = dyncomp.stats().graph_breaks
    for function in functions:
        x = torch.ones(2, dtype=torch.float64)
        fast = dyncomp.optimize(function)
        assert_same(fast(x), function(x))
        np.add(given, 1, out=given)
        assert_same(fast(x), function(x))
    assert dyncomp.stats().graph_breaks > before
