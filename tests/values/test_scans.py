"""associative_scan in compiled code: one node for any length in inference, eager's operations where gradients are wanted."""

import pytest
import torch
from torch._higher_order_ops import associative_scan, map, scan, while_loop

import dyncomp
from dyncomp.values.scan_node import PROGRAMS
from tests.support import check

_SEED = torch.Generator().manual_seed(3)
X = torch.rand(4, 7, 3, generator=_SEED)
GAIN = torch.rand(3, generator=_SEED)


def recurrence(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


def product(left, right):
    return left * right


PROGRAMS_OF = {
    "one leaf": lambda x: associative_scan(product, x, 0, combine_mode="generic"),
    "two leaves": lambda x: associative_scan(recurrence, (x, x + 1), dim=1, combine_mode="generic"),
    "a list": lambda x: associative_scan(lambda a, b: [a[0] + b[0]], [x.mT], dim=2, combine_mode="generic"),
    "backwards": lambda x: associative_scan(product, x, 1, reverse=True, combine_mode="generic"),
    "a tensor from outside": lambda x: associative_scan(lambda a, b: a + b * (GAIN * 0 + 1), x, 0, combine_mode="generic"),
    "the right one": lambda x: associative_scan(lambda a, b: b, x, 0, combine_mode="generic"),
    "reductions inside": lambda x: associative_scan(lambda a, b: a @ b, x[:, :3].softmax(-1), 0, combine_mode="generic"),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("name", PROGRAMS_OF)
def test_one_node(name, backend):
    known = len(PROGRAMS)
    check(PROGRAMS_OF[name], X, backend=backend)
    assert len(PROGRAMS) == known + 1
    assert all((program.compiled is not None) == (backend == "codegen") for program in list(PROGRAMS.values())[known:])


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ["two leaves", "backwards"])
def test_any_length(name, dynamic):
    dyncomp.reset()
    fast = dyncomp.optimize(PROGRAMS_OF[name], dynamic=dynamic)
    for length in (7, 8, 2, 31, 12):
        x = torch.rand(4, length, 3)
        torch.testing.assert_close(fast(x), PROGRAMS_OF[name](x))
    assert dyncomp.stats().graphs <= (2 if dynamic is None else 1)
    assert not dyncomp.stats().fallbacks
    torch.testing.assert_close(fast(X[:, :1]), PROGRAMS_OF[name](X[:, :1]))


def test_gradients():
    results = []
    for call in (PROGRAMS_OF["two leaves"], dyncomp.optimize(PROGRAMS_OF["two leaves"], fullgraph=True)):
        x = X.clone().requires_grad_()
        y = call(x)
        sum(t.square().sum() for t in y).backward()
        results.append((*y, x.grad))
    torch.testing.assert_close(results[1], results[0])


def counting(x):
    calls = []
    associative_scan(lambda a, b: (calls.append(1), a + b)[1], x, 0, combine_mode="generic")
    return x + len(calls)


def renaming(x):
    calls = 0

    def combine(a, b):
        nonlocal calls
        calls += 1
        return a + b

    return associative_scan(combine, x, 0, combine_mode="generic"), calls


@pytest.mark.parametrize("function", [counting, renaming])
def test_changes_of_what_the_program_made(function):
    check(function, X)


CALLS = []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (associative_scan(lambda a, b: (CALLS.append(1), a + b)[1], x, 0, combine_mode="generic"), CALLS.clear())[0],
        lambda x: associative_scan(lambda a, b: a + b * torch.rand(()), x, 0, combine_mode="generic"),
        lambda x: associative_scan(lambda a, b: (a + b).double(), x, 0, combine_mode="generic"),
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
        lambda x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x)),
        lambda x: scan(lambda c, y: (c + y, c * y), torch.zeros(7, 3), x),
        lambda x: map(lambda row, w: row @ w, x, torch.ones(3, 2)),
    ],
)
def test_what_breaks_by_name(function):
    dyncomp.reset()
    check(lambda x: function(x * 2), X, graphs=None, breaks=None, calls=1)
    assert set(dyncomp.stats().break_reasons) == {"unsupported-call"}
