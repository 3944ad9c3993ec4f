"""torch.vmap inside compiled code: one graph with eager's result, and nothing left open where it cannot be captured."""

import collections
import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from dyncomp.fake.levels import depth
from tests.support import check, examples

_SEED = torch.Generator().manual_seed(3)
X, W = torch.randn(5, 3, generator=_SEED), torch.randn(3, 4, generator=_SEED)
LINEAR, NORM = torch.nn.Linear(3, 4), torch.nn.LayerNorm(3)
FIRST_TWO = functools.partial(torch.narrow, dim=0, start=0, length=2)
Point = collections.namedtuple("Point", "a b")
POINTWISE = torch.vmap(lambda row: row.exp() - row.sum())


@pytest.fixture(autouse=True)
def no_level_is_left():
    yield
    assert depth() == 0


def setting_items(row):
    row = row.clone()
    row[0] = row[1]
    row[1:] += 1
    return row


def counting(x):
    calls = []
    y = torch.vmap(lambda row: (calls.append(len(calls)), row * 2)[1])(x)
    return y, calls


def catching(x):
    def raises(row):
        raise KeyError("inside")

    try:
        torch.vmap(raises)(x)
    except KeyError as error:
        return x + 1, error.args[0]


def catching_torchs_own(x):
    try:
        return torch.vmap(lambda row: 3)(x)
    except ValueError as error:
        return str(error)


def names(x):
    def gauss(row):
        return (-row * row).exp()

    mapped = torch.vmap(gauss)
    return mapped.__name__, mapped.__wrapped__ is gauss, mapped(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: torch.vmap(lambda row: torch.sin(row) @ w)(x),
        lambda x, w: torch.vmap(torch.nn.functional.linear, in_dims=(0, None))(x, w.T),
        lambda x, w: torch.vmap(lambda row, v: {"a": row @ v, "b": (row,)}, (0, None), {"a": 1, "b": 0})(x, w),
        lambda x, w: torch.vmap(lambda row: row @ w, chunk_size=2)(x),
        lambda x, w: torch.vmap(torch.vmap(lambda a, b: a * b, (None, 0)), (0, None))(x, w.T),
        lambda x, w: torch.vmap(torch.vmap(lambda a: a * 2, randomness="different"), in_dims=1, out_dims=-1)(x),
        lambda x, w: torch.vmap(lambda p: Point(p.a + 1, p.b * 2))(Point(x, x)),
        lambda x, w: torch.vmap(lambda p: p["a"] + p["b"], in_dims=({"a": 0, "b": None},))({"a": x, "b": x[0]}),
        lambda x, w: torch.vmap(lambda row, *, factor: row * factor)(x, factor=x),
        lambda x, w: torch.vmap(lambda row: (row, 5), out_dims=(0, None))(x),
        lambda x, w: torch.vmap(lambda row: torch.zeros(2) + torch.arange(2) + row[:2])(x),
        lambda x, w: torch.vmap(lambda row: row.view(1, -1).expand(2, -1)[:, 1:].t())(x),
        lambda x, w: torch.vmap(lambda row: row)(x),
        lambda x, w: torch.vmap(lambda row: row * row.dim() + row.numel() + row.shape[0] + row.stride(0))(x),
        lambda x, w: torch.vmap(lambda row: row.cumsum(0).sort().values.topk(2))(x),
        lambda x, w: torch.vmap(lambda row, i: row[i])(x, torch.tensor([0, 1, 2, 0, 1])),
        lambda x, w: torch.vmap(lambda row: row.mul_(2))(x),
        lambda x, w: torch.vmap(lambda row: torch.where(row > 0, row, -row).softmax(-1))(x[:0]),
        lambda x, w: (torch.vmap(LINEAR)(x), torch.vmap(NORM)(x), torch.vmap(FIRST_TWO)(x)),
        lambda x, w: torch.vmap(torch.autocast("cpu", torch.bfloat16)(lambda row: (row @ w).tanh()))(x),
        lambda x, w: POINTWISE(x),
        lambda x, w: torch.vmap(setting_items)(x),
        lambda x, w: counting(x),
        lambda x, w: names(x),
        lambda x, w: catching(x),
    ],
)
def test_one_graph(function):
    check(function, X, W)
    with torch.no_grad():
        check(function, X.clone().requires_grad_(), W)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_streams(randomness):
    def noisy(x, w):
        drop = functools.partial(torch.nn.functional.dropout, p=0.4)
        return torch.vmap(lambda row: drop(row @ w) + torch.rand(4), randomness=randomness)(x)

    check(noisy, X, W)
    check(noisy, X.clone().requires_grad_(), W)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.vmap(lambda row: row * torch.rand(3))(x), "eager-error"),
        (lambda x: torch.vmap(lambda row: row if row.sum() > 0 else -row)(x), "eager-error"),
        (lambda x: torch.vmap(lambda row: row.sum().item())(x), "eager-error"),
        (lambda x: torch.vmap(lambda row: x[0].add_(row))(x), "eager-error"),
        (lambda x: torch.vmap(torch.sin)(), "exception"),
        (lambda x: torch.vmap(torch.sin, in_dims=3)(x), "exception"),
        (lambda x: torch.vmap(lambda row: (row, row), out_dims=(0, 0, 0))(x), "exception"),
        (lambda x: torch.vmap(lambda row: (print("row"), row + 1)[1])(x), "side-effect"),
        (lambda x: torch.vmap(Doubled.apply)(x), "autograd"),
    ],
)
def test_what_breaks_breaks_at_the_call(function, reason, capsys):
    dyncomp.reset()
    check(lambda x: function(x * 2), X, graphs=None, breaks=None)
    assert set(dyncomp.stats().break_reasons) == {reason}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


def test_a_tensor_that_leaks_out_of_its_level():
    def leak(x):
        kept = []
        y = torch.vmap(lambda row: (kept.append(row), row + 1)[1])(x)
        return y, len(kept), torch._C._functorch.is_batchedtensor(kept[0])

    check(leak, X)

    def keeps(x, kept):
        return torch.vmap(lambda row: (kept.append(row), row + 1)[1])(x)

    kept = []
    torch.testing.assert_close(dyncomp.optimize(keeps)(X, kept), X + 1)
    assert torch._C._functorch.is_batchedtensor(kept[0])


def test_the_returned_function_is_compiled_itself():
    mapped = torch.vmap(lambda row: row.exp() / row.exp().sum())
    check(mapped, X)
    assert dyncomp.optimize(mapped).__name__ == mapped.__name__


def test_compiled_functions_are_mapped():
    compiled = dyncomp.optimize(lambda row: row.exp() + 1)
    check(lambda x: torch.vmap(compiled)(x), X)


@pytest.mark.parametrize("dynamic", [None, True])
def test_batches_of_any_size(dynamic):
    def mapped(x, w):
        return torch.vmap(lambda row: torch.softmax(row.sin() @ w, -1) * row.shape[0])(x)

    dyncomp.reset()
    fast = dyncomp.optimize(mapped, dynamic=dynamic)
    for rows in (5, 6, 7, 9, 30, 12):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(fast(x, W), mapped(x, W))
    assert dyncomp.stats().graphs <= (2 if dynamic is None else 1)
    assert not dyncomp.stats().fallbacks


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_backends_and_errors_that_depend_on_data(backend):
    fast = dyncomp.optimize(lambda x, i: torch.vmap(lambda row, k: row[k] * 2)(x, i), backend=backend)
    assert torch.equal(fast(X, torch.tensor([0, 1, 2, 0, 1])), X[torch.arange(5), torch.tensor([0, 1, 2, 0, 1])] * 2)
    with pytest.raises(IndexError):
        fast(X, torch.tensor([0, 1, 7, 0, 1]))
    assert depth() == 0


def test_gradients_go_through():
    def loss(x, w):
        return torch.vmap(torch.vmap(lambda a, b: (a * b).sum().tanh(), (None, 0)), (0, None))(x, w.T)

    dyncomp.reset()
    results = []
    for call in (loss, dyncomp.optimize(loss, fullgraph=True)):
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        y = call(x, w)
        y.square().sum().backward()
        results.append((y, x.grad, w.grad))
    torch.testing.assert_close(results[1], results[0])
    assert not dyncomp.stats().fallbacks


UNARY = {
    "sin": torch.sin, "sum": lambda t: t.sum(0, keepdim=True), "flip": lambda t: t.flip(0), "square": lambda t: t * t,
    "roll": lambda t: t.roll(1, 0), "mean": lambda t: t - t.mean(), "index": lambda t: t[:1], "stack": lambda t: torch.stack([t, t]),
    "clone": lambda t: t.clone().add_(1), "cumsum": lambda t: t.cumsum(0), "outer": lambda t: torch.cat([t, t.new_ones(t.shape)]),
}  # fmt: skip


@settings(max_examples=examples(25), deadline=None)
@given(
    steps=st.lists(st.sampled_from(sorted(UNARY)), max_size=4),
    in_dim=st.integers(-3, 2),
    out_dim=st.integers(-1, 0),
    chunk=st.sampled_from([None, 1, 2]),
    nested=st.booleans(),
)
def test_random_programs(steps, in_dim, out_dim, chunk, nested):
    def body(t):
        for step in steps:
            t = UNARY[step](t)
        return t

    def program(x):
        inner = torch.vmap(body, out_dims=out_dim) if nested else body
        return torch.vmap(inner, in_dims=in_dim, out_dims=out_dim, chunk_size=chunk)(x)

    check(program, torch.randn(3, 4, 2), calls=1)
