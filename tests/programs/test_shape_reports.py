"""Programs whose sizes and numbers vary, after public reports on dynamic shapes of compilers: eager's answer at every size.

Each runs under dynamic=True and with sizes becoming symbolic where they changed, over sizes that include 0, 1 and equal ones.
"""

import math
import operator

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp import config
from tests.support import assert_same, clone_inputs, outcome

SHAPES = [(6, 4), (7, 5), (1, 4), (4, 4), (3, 0), (8, 1), (12, 7), (6, 4)]
INTS = [3, 5, 1, 0, 2, 7, 3]


def run(function, inputs, backend, policy, knobs=None, **options):
    dyncomp.reset()
    fast = dyncomp.optimize(
        function, backend=backend, dynamic=True if policy == "dynamic" else None, recompile_limit=64, **options
    )
    knobs = {"automatic_dynamic": policy == "automatic", **(knobs or {})}
    with torch.no_grad(), config.patch(strict=True, verify_passes=True, **knobs):
        for args in inputs:
            ours, theirs = clone_inputs(args), clone_inputs(args)
            want, want_error = outcome(function, theirs)
            got, got_error = outcome(fast, ours)
            where = [tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in theirs]
            assert type(got_error) is type(want_error), f"{where}: raised {got_error!r} instead of {want_error!r}"
            assert str(got_error) == str(want_error), where
            assert_same(got, want, f"{where}")
            assert_same(ours, theirs, "inputs")
    return dyncomp.stats()


def numbered(count=1):
    """(x, n) for all shapes, with ints beside them."""
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(shape, generator=generator), *[INTS[(i + k) % len(INTS)] for k in range(count)])
        for i, shape in enumerate(SHAPES)
    ]


def halves(x, n):
    half = x.size(0) // 2
    return x[:half], x[half:], x[-half:], x[: -half or None]


def dictionary_by_shape(x, n):
    table = {x.shape: 1, (x.shape[0], 4): 2, tuple(x.shape): 3}
    return x * table[x.shape], len(table), sorted(table.values())


def formatted(x, n):
    return x + 1, f"{x.shape[0]}x{x.shape[1]:>3}", "%d" % n, str(x.shape), "n={}".format(n), repr(n)


def rounded(x, n):
    rows = x.shape[0]
    return (
        x * math.ceil(rows / 2), math.floor(rows / 3), round(rows / 4), int(rows / 3), rows**0.5 + 1, -rows // 4, rows % -3,
        round(rows * 5, -1), divmod(rows, 3), abs(n - rows), rows & 3, rows << 1, rows >> 1, rows ^ n, ~rows,
    )  # fmt: skip


def extremes(x, n):
    return x[: max(x.shape[0], 3)], min(x.shape), max(x.shape, default=1), max(n, x.shape[0], 2), sorted([n, *x.shape]), x.new_zeros(max(n, 3))


def loops(x, n):
    total = x
    for i in range(n):
        total = total + i
    for i in range(0, x.shape[0], 3):
        total = total * 2 + i
    return total, [i for i in range(n) if i % 2], sum(range(x.shape[1]))


def memberships(x, n):
    return x + (n in (1, 2, 3)), n in range(2, 6), x.shape[0] in {4, 6}, n in [x.shape[0], x.shape[1]], n not in {1: 2}


def kinds(x, n):
    return (
        x + isinstance(n, int) + isinstance(x.shape[0], int), isinstance(x.shape, tuple), type(n) is int, isinstance(n, (float, bool)),
        type(x.shape).__name__, operator.index(n), n.bit_length(), int(n), bool(n), float(n), hash(n) == hash(int(n)),
    )  # fmt: skip


def branches(x, n):
    if x.numel() % 2 == 0:
        x = x + 1
    if x.shape == torch.Size([6, 4]) or x.shape == (7, 5):
        x = x * 2
    if not x.shape[1]:
        x = x.new_ones(2)
    if x.shape[0] == n or n > 2 and x.dim() == 2:
        x = x - 3
    return (x, "long") if len(x) > 5 else (x, "short")


def same_shapes(x, n):
    y = x.t()
    return x + (x.shape == y.shape), x.size() == y.size(), x.shape[0] == y.shape[0], x.shape[::-1] == y.shape, x.shape != x.shape


def negative_slices(x, n):
    return x[-n:], x[:-n], x[-n - 1 : -1], x[:, -2:], x[..., :-1], x[n:n], x[-3:n], x[1 : n * 2 : 2], x[slice(None, n)]


def flattened(x, n):
    return x.view(-1), x.reshape(x.shape[0], -1, 1), x.flatten(0, -1) + 1, x.contiguous().view(x.size(0) * x.size(1)), x.ravel()


def expanded(x, n):
    return x.expand(-1, -1), x[None].expand(n + 1, -1, -1), x.unsqueeze(-1).expand(*x.shape, 3), x[:1].expand(n + 1, x.shape[1])


def filled(x, n):
    return torch.full((n,), n), torch.full(x.shape, 1.5), x.new_full((n, 2), n), torch.arange(n) + n, torch.zeros(n, x.shape[0]), torch.eye(n)


def padded(x, n):
    short = -x.shape[0] % 4
    return F.pad(x, (0, 0, 0, short)), F.pad(x, (n, 0), value=n), F.pad(x, (0, -min(n, x.shape[1]))), F.pad(x, (0, short)).shape


def joined(x, n):
    return torch.cat([x, x[:n]]), torch.stack([x] * (n + 1)), torch.cat([x] + [x * i for i in range(n)], 1), torch.cat([x, x.new_empty(0, x.shape[1])])


def repeated(x, n):
    return x.repeat(n, 1), x.repeat_interleave(2, 0), x.tile((n, 2)), torch.cat([x] * n) if n else x, x[[0] * n] if len(x) else x


def cut(x, n):
    size = max(x.shape[0] // 2, 1)
    return x.split(size), x.chunk(3), torch.tensor_split(x, 2), x.split([1, x.shape[0] - 1]), x.unbind(1) if n > 2 else ()


def named_sizes(x, n):
    rows, columns = x.shape
    first, *others = x.shape
    total = 1
    for size in x.shape:
        total *= size
    return x * rows + columns, first, others, total == x.numel(), tuple(x.shape) + (n,), [*x.shape, n], x.shape.numel(), list(enumerate(x.shape))


def of_numpy(x, n):
    return x + np.prod(x.shape).item(), int(np.ceil(x.shape[0] / 2)), x * float(np.sqrt(n)), tuple(np.array(x.shape) * 2)


def averaged(x, n):
    return x.sum() / max(x.shape[0], 1), x.sum(0) / (n + 1), x.mean(0) * x.shape[0], x / math.sqrt(x.shape[1] + 1), x * (1 / (n + 1)), x ** (n % 3)


def positions(x, n):
    place = torch.arange(x.shape[0])
    return place[:, None] < place, torch.arange(n, n + 3), torch.arange(0, x.shape[0], 2), torch.linspace(0, 1, x.shape[0] + 1), torch.triu(torch.ones(n, n), 1)


def written_in_place(x, n):
    x[:n] = 0
    x[:, :1] += n
    x.mul_(x.shape[0])
    return x.sum()


def closures(x, n):
    def scale(y, by=n):
        return y * by + x.shape[0]

    return scale(x), scale(x, by=2), list(map(lambda k: k + n, x.shape))


def raised(x, n):
    if n == 0:
        raise ValueError(f"no rows of {tuple(x.shape)}")
    try:
        y = x.view(n, -1)
    except RuntimeError:
        y = x
    return y + n


def resized(x, n):
    y = x[None, None]
    if x.numel():
        return F.interpolate(y, size=(x.shape[0] * 2, n + 1)), F.interpolate(y, scale_factor=2), F.adaptive_avg_pool2d(y, (n + 1, 1))
    return y


def pooled(x, n):
    y = x.reshape(1, 1, -1)
    size = y.shape[-1] // 2
    return F.avg_pool1d(y, size) if size else y, F.max_pool1d(y, 2, ceil_mode=True) if size > 1 else y


def attention(x, n):
    scores = x @ x.t() / (x.size(-1) + 1) ** 0.5
    mask = torch.ones(x.size(0), x.size(0), dtype=torch.bool).tril(n)
    return scores.masked_fill(~mask, -1.0).softmax(-1) @ x


def windows(x, n):
    y = x.flatten()
    return y.unfold(0, min(2, y.shape[0]), 1), y.roll(n), y.flip(0)[:n], torch.stack([y[i : i + 1] for i in range(min(n, len(y)))]) if n and len(y) else y


def strides(x, n):
    return x.stride(), x.t().is_contiguous(), x.t().reshape(-1), x.t().contiguous().stride(), x[:, ::2].stride(0), x.T.clone(), x[::2].storage_offset()


def keyword_sizes(x, n):
    return torch.zeros(size=(n, x.shape[0]), dtype=torch.int32), torch.ones([n, *x.shape]), x.new_zeros(size=x.shape[1:]), torch.empty(x.shape[0], n).fill_(n)


def compared(x, n):
    return x + (x.shape[0] > x.shape[1]), x.shape[0] <= n < x.shape[1], (x.shape > (5, 3)), x.shape[0] != 4 and n, n or x.shape[0], not n


PROGRAMS = [value for value in list(globals().values()) if callable(value) and getattr(value, "__code__", None) is not None
            and value.__code__.co_varnames[:2] == ("x", "n")]  # fmt: skip


@pytest.mark.parametrize("policy", ["dynamic", "automatic"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_program(function, backend, policy):
    run(function, numbered(), backend, policy)


def test_one_compile_where_nothing_asks_for_the_number():
    def f(x, n):
        return x[: x.size(0) // 2].flatten() * math.ceil(x.shape[1] / 2) + n, x.shape[0] * n

    stats = run(f, [(torch.randn(shape), n) for shape, n in (((6, 4), 3), ((9, 7), 5), ((12, 2), 4))], "eager", "dynamic")
    assert stats.graphs == 1 and stats.graph_breaks == 0


@pytest.mark.parametrize("policy", ["dynamic", "automatic"])
def test_two_tensors_whose_sizes_meet_at_some_calls_only(policy):
    def f(x, y):
        if x.shape == y.shape:
            return x + y
        return x.sum() + y.sum()

    inputs = [(torch.randn(a), torch.randn(b)) for a, b in ((5, 5), (5, 4), (4, 4), (1, 4), (1, 1), (6, 5))]
    run(f, inputs, "aot_eager", policy)


@pytest.mark.parametrize("policy", ["dynamic", "automatic"])
def test_broadcasting_sizes_of_one(policy):
    inputs = [(torch.randn(a, 3), torch.randn(b, 3)) for a, b in ((5, 5), (5, 1), (1, 5), (1, 1), (7, 7), (2, 1))]
    run(lambda x, y: (x * y, torch.where(x > 0, x, y), torch.broadcast_shapes(x.shape, y.shape)), inputs, "aot_eager", policy)


@pytest.mark.parametrize("policy", ["dynamic", "automatic"])
def test_floats_and_ints_change_places(policy):
    inputs = [(torch.ones(3), value) for value in (1, 2, 2.0, 2.5, True, 3, -0.0, 0.0, float("inf"), 7)]
    run(lambda x, n: (x * n, x + n, n * 2, n), inputs, "aot_eager", policy)


@pytest.mark.parametrize("policy", ["dynamic", "automatic"])
def test_lists_of_numbers(policy):
    inputs = [(torch.arange(24.0), sizes) for sizes in ([2, 12], [3, 8], [4, 3, 2], [24], [1, 24], [6, 4])]
    run(lambda x, sizes: (x.view(sizes), x.view(*sizes, 1), torch.tensor(sizes) * 2, sum(sizes)), inputs, "aot_eager", policy)
