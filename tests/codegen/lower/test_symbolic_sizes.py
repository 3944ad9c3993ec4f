"""Kernels with symbolic sizes: one compile, and eager's results at every size, in every layout and type."""

import functools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dyncomp
from dyncomp import config
from tests.support import assert_same, clone_inputs, examples

FIRST = (6, 35)
FIXED = [(2, 3), (3, 2), (16, 17), (33, 64), (70, 5), (5, 1031), (257, 48)]


def turned(*shape):
    return torch.randn(*reversed(shape)).permute(*reversed(range(len(shape))))


def strided(*shape):
    return torch.randn(*shape[:-1], shape[-1] * 2)[..., ::2]


def spread(*shape):
    return torch.randn(1, *shape[1:]).expand(shape)


def ints(low, high, *shape, dtype=torch.int64):
    return torch.randint(low, high, shape, dtype=dtype)


def typed(dtype):
    def make(n, m):
        values = torch.randn(n, m) * 5
        return (
            (values > 0,)
            if dtype is torch.bool
            else (values.abs().to(dtype) if dtype is torch.uint8 else values.to(dtype),)
        )

    return make


def one(n, m):
    return (torch.randn(n, m),)


def two(n, m):
    return torch.randn(n, m), torch.randn(n, m)


# name: (function, inputs for two sizes, how many operations may be ATen's own)
PROGRAMS = {
    "pointwise": (lambda x: torch.sin(torch.cos(x)), one),
    "flat": (lambda x: x.tanh() * 2, lambda n, m: (torch.randn(n * m),)),
    "turned": (lambda x, y: x + y.t().relu(), lambda n, m: (torch.randn(n, m), torch.randn(m, n))),
    "turned input": (lambda x, y: x * y + 1, lambda n, m: (turned(n, m), torch.randn(n, m))),
    "strided input": (lambda x, y: x * y + 1, lambda n, m: (strided(n, m), torch.randn(n, m))),
    "spread input": (lambda x, y: x * y + 1, lambda n, m: (spread(n, m), torch.randn(n, m))),
    "row and column": (lambda x, r, c: x * r + c, lambda n, m: (torch.randn(n, m), torch.randn(m), torch.randn(n, 1))),
    "outer": (lambda r, c: r * c.unsqueeze(1), lambda n, m: (torch.randn(m), torch.randn(n))),
    "channels last": (
        lambda x: F.relu(x * 2) + 1,
        lambda n, m: (torch.randn(2, 3, n, m).to(memory_format=torch.channels_last),),
    ),
    "size as a number": (lambda x: x * x.shape[0] + x.shape[1], one),
    "half": (lambda x: (x * 2 + 1).tanh() - x, typed(torch.bfloat16)),
    "float16": (lambda x: (x * 2 + 1).tanh() - x, typed(torch.float16)),
    "double": (lambda x: x.exp() - x, typed(torch.float64)),
    "ints": (lambda x: x * 3 - (x >> 1), typed(torch.int64)),
    "short": (lambda x: x * 3 + 1, typed(torch.int16)),
    "bytes": (lambda x: x + 7, typed(torch.uint8)),
    "truths": (lambda x: ~x | (x & True), typed(torch.bool)),
    "mixed": (lambda x, y: x.to(torch.int32) + y, lambda n, m: (torch.randn(n, m), ints(0, 9, n, m, dtype=torch.int8))),
    "sum of rows": (lambda x: x.sum(-1), one),
    "sum of columns": (lambda x: x.sum(0), one),
    "sum of all": (lambda x: x.sum(), one),
    "sum of turned": (lambda x: (x.sum(0), x.sum(1)), lambda n, m: (turned(n, m),)),
    "mean": (lambda x: (x.mean(0), x.mean(1, keepdim=True), x.mean()), one),
    "variance": (lambda x: (x.var(1), x.std(0, unbiased=False)), one),
    "extrema": (lambda x: (x.amax(0), x.amin(1), x.max()), one),
    "places": (lambda x: (x.argmax(1), x.argmin(0), x.max(1)), one),
    "truth of rows": (lambda x: ((x > 2).any(0), (x > -2).all(1)), one),
    "product": (lambda x: (x * 0.3 + 1).prod(1), one),
    "norm": (lambda x: x.norm(dim=1), one),
    "sum of half": (lambda x: (x.float() * 2).pow(2).sum(-1), typed(torch.bfloat16)),
    "sum of ints": (lambda x: (x.sum(0), x.sum()), typed(torch.int32)),
    "three dims": (lambda x: x.sum((0, 2)) + x.amax((0, 2)), lambda n, m: (torch.randn(n, 3, m),)),
    "softmax": (lambda x: torch.softmax(x, -1), one),
    "softmax of columns": (lambda x: torch.softmax(x, 0), one),
    "softmax of half": (lambda x: torch.softmax(x, -1), typed(torch.bfloat16)),
    "log_softmax": (lambda x: torch.log_softmax(x * 3, 1), one),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), one),
    "masked softmax": (
        lambda x, mask: torch.softmax(x.masked_fill(mask, -1e9), -1),
        lambda n, m: (torch.randn(n, 3, m), torch.rand(n, 1, m) > 0.5),
    ),
    "layer norm": (
        lambda x, w, b: F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)),
        lambda n, m: (torch.randn(n, m), torch.randn(m), torch.randn(m)),
    ),
    "layer norm, known width": (
        lambda x: F.layer_norm(x + 1, (48,)),
        lambda n, m: (torch.randn(n, m, 48),),
    ),
    "rms norm": (lambda x: F.rms_norm(x, (x.shape[-1],), eps=1e-6), one),
    "group norm": (lambda x: F.group_norm(x, 2), lambda n, m: (torch.randn(n, 4, m),)),
    "batch norm": (
        lambda x, mean, var: F.batch_norm(x, mean, var, training=False),
        lambda n, m: (torch.randn(n, 5, m), torch.randn(5), torch.rand(5) + 0.5),
    ),
    "embedding": (
        lambda w, i: F.embedding(i, w) * 2,
        lambda n, m: (torch.randn(n, m), ints(0, n, m, 3)),
    ),
    "index_select": (lambda x, i: x.index_select(1, i) + 1, lambda n, m: (torch.randn(n, m), ints(0, m, n))),
    "gather": (lambda x, i: x.gather(1, i), lambda n, m: (torch.randn(n, m), ints(0, m, n, m))),
    "indexed": (lambda x, i, j: x[i, j], lambda n, m: (torch.randn(n, m), ints(-n, n, m), ints(-m, m, m))),
    "cat": (
        lambda x, y: (torch.cat([x, y], 1) * 2, torch.cat([x, x], 0)),
        lambda n, m: (torch.randn(n, m), torch.randn(n, m + 3)),
    ),
    "stack": (lambda x, y: torch.stack([x, y], 1) + 1, two),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 3), value=7.0), one),
    "flip": (lambda x: x.flip(0) + x.flip(1), one),
    "roll": (lambda x: torch.roll(x, 2, 0) + torch.roll(x, (-1,), (1,)), one),
    "repeat": (lambda x: x.repeat(2, 3) + 1, one),
    "triangle": (lambda x: torch.tril(x) + torch.triu(x, 1), one),
    "where": (lambda x, y: torch.where(x > 0, x, y), two),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), one),
    "range": (lambda x: torch.arange(x.shape[0]).unsqueeze(1) + x, one),
    "filled": (lambda x: torch.zeros(x.shape) + torch.full((x.shape[1],), 2.0) + torch.ones_like(x) * x, one),
    "view": (lambda x: x.view(-1, 4) * 2, lambda n, m: (torch.randn(n, 4 * m),)),
    "heads": (
        lambda x: (x.view(x.shape[0], x.shape[1], 4, 8).transpose(1, 2) * 2).reshape(x.shape[0] * 4, x.shape[1], 8),
        lambda n, m: (torch.randn(n, m, 32),),
    ),
    "merged heads": (
        lambda x: (x + 1).transpose(1, 2).reshape(x.shape[0], x.shape[2], -1) * 2,
        lambda n, m: (torch.randn(n, 3, m, 5),),
    ),
    "flatten": (lambda x: x.flatten(0, 1).sum(-1), lambda n, m: (torch.randn(n, m, 7),)),
    "square view": (lambda x: x.reshape(x.shape[1], x.shape[0]) + 1, one),
    "slices": (lambda x: x[1:] * 2 + x[:-1], lambda n, m: (torch.randn(n + 1, m),)),
    "last column": (lambda x: x[:, -1] * 2, one),
    "step": (lambda x: x[:, ::2] * 2, lambda n, m: (torch.randn(n, 2 * m),)),
    "select": (lambda x: x[0] + x[-1], one),
    "split": (lambda x: torch.cat(x.split(3, 0)[::-1]), lambda n, m: (torch.randn(6, m),)),
    "chunks": (lambda x: x.chunk(2, -1)[0] * x.chunk(2, -1)[1].sigmoid(), lambda n, m: (torch.randn(n, m, 10),)),
    "unbind": (lambda x: sum(x.unbind(0)), lambda n, m: (torch.randn(3, n, m),)),
    "diagonal": (lambda x: x.diagonal() * 2, lambda n, m: (torch.randn(n, n),)),
    "expand": (lambda x: x.unsqueeze(0).expand(3, -1, -1) * 2, one),
    "matmul between": (lambda x, y: ((x + 1) @ (y * 2)).relu(), lambda n, m: (torch.randn(n, m), torch.randn(m, 9))),
    "two products": (
        lambda x, w: torch.softmax((x @ w).tanh() @ w.t(), -1) * x,
        lambda n, m: (torch.randn(n, m), torch.randn(m, 11)),
    ),
    "attention": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k) + 1,
        lambda n, m: (torch.randn(2, n, 8), torch.randn(2, m, 8)),
    ),
    "in place": (lambda x: x.add_(1).mul(2), one),
    "view of result": (lambda x: (x + 1).t(), one),
    "many results": (lambda x, y: (x + y, x.shape[0], (x * y).sum(0), x), two),
    "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda n, m: (torch.randn(2, 3, n + 3, n + m + 5),)),
}
EXACT = {"ints", "short", "bytes", "truths", "mixed", "sum of ints", "cat", "stack", "pad", "flip", "roll", "gather"}
# Left to ATen with symbolic sizes, each counted by name.


@functools.cache
def compiled(name):
    """Compiled once, at sizes that equal no other number of the program."""
    function, make = PROGRAMS[name]
    fast = dyncomp.optimize(function, dynamic=True, fullgraph=True)
    before = dyncomp.stats()
    with torch.no_grad(), config.patch(verify_passes=True, strict=True):
        fast(*make(*FIRST))
    after = dyncomp.stats()
    new = {k for k, count in after.fallbacks.items() if count > before.fallbacks.get(k, 0)}
    return fast, {k for k in new if k.startswith("symbolic-sizes")}


def compare(name, *sizes):
    function, make = PROGRAMS[name]
    fast, left = compiled(name)
    assert not left
    before = dyncomp.stats().frames
    for n, m in sizes:
        args = make(n, m)
        ours, theirs = clone_inputs(args), clone_inputs(args)
        tolerance = 0 if name in EXACT else 2e-5
        half = any(isinstance(t, torch.Tensor) and t.dtype in (torch.bfloat16, torch.float16) for t in args)
        with torch.no_grad():
            got, want = fast(*ours), function(*theirs)
        assert_same(got, want, f"{n}x{m}", rtol=1.6e-2 if half else tolerance, atol=1e-2 if half else tolerance * 5)
        assert_same(ours, theirs, "inputs")
    assert dyncomp.stats().frames == before, "compiled again"


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compile_serves_all_sizes(name):
    torch.manual_seed(0)
    compare(name, *FIXED)


@pytest.mark.parametrize("name", PROGRAMS)
@given(st.lists(st.tuples(st.integers(2, 70), st.integers(2, 70)), min_size=1, max_size=4))
@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_size(name, sizes):
    compare(name, *sizes)


@pytest.mark.parametrize(
    "name", ["pointwise", "sum of rows", "sum of columns", "softmax", "layer norm", "turned", "cat"]
)
def test_large_sizes(name):
    compare(name, (3, 70001), (4099, 33), (20011, 2), (511, 513))


def test_sizes_that_varied_may_be_zero_and_one():
    """Without marks nothing is promised of a size that varies: rows that do not exist, and rows that stand alone."""

    def f(x):
        parts = torch.cat([x, x], 0), x.t().contiguous() * 2, x[:, 1:].exp()
        return torch.softmax(x, -1), x.sum(0), x.sum(-1), x.mean(-1), F.layer_norm(x, (3,)), *parts

    with torch.no_grad(), config.patch(automatic_dynamic=True, strict=True, verify_passes=True):
        fast = dyncomp.optimize(f)
        for n in (5, 7, 1, 0, 3, 2, 64, 0, 1):
            x = torch.randn(n, 3)
            assert_same(fast(x), f(x), str(n), rtol=2e-5, atol=1e-4)


def test_training_with_symbolic_sizes():
    """Forward, backward and their saved numbers: one graph each for all sizes."""
    torch.manual_seed(0)
    ours = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    theirs.load_state_dict(ours.state_dict())
    fast = dyncomp.optimize(ours, dynamic=True)
    before = dyncomp.stats().graphs
    for n, m in ((5, 7), (9, 3), (2, 33)):
        x = torch.randn(n, m, 6)
        for model in (fast, theirs):
            model.zero_grad()
            torch.softmax(model(x), -1).pow(2).mean().backward()
        for mine, want in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, want.grad, rtol=1e-4, atol=1e-5)
    assert dyncomp.stats().graphs == before + 1
