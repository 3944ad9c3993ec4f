"""Python's random numbers in compiled code: new in each call, from the same stream as in eager, which is left as eager leaves it."""

import copy
import math
import random

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dyncomp
from dyncomp.interp import streams
from tests.support import assert_same, outcome

BACKENDS = ("eager", "codegen")
X = torch.arange(32.0).reshape(4, 8)
OTHER = random.Random(3)
STATE = random.Random(9).getstate()


@pytest.fixture(autouse=True)
def own_stream():
    state, other = random.getstate(), OTHER.getstate()
    yield
    random.setstate(state)
    OTHER.setstate(other)


def alike(function, *args, graphs=1, breaks=0, calls=5, **options):
    """Both get copies of the arguments in each call; results, what was written to the arguments, and all streams are compared."""
    runs = []
    before = dyncomp.stats()
    for one in (function, dyncomp.optimize(function, **options)):
        random.seed(1)
        OTHER.seed(4)
        torch.manual_seed(2)
        run = []
        for _ in range(calls):
            given = copy.deepcopy(args)
            result, error = outcome(one, given)
            states = list(map(hash, (random.getstate(), OTHER.getstate()))), torch.get_rng_state()
            run.append((result, None if error is None else (type(error).__name__, str(error)), given, states))
        runs.append(run)
    assert_same(runs[1], runs[0])
    after = dyncomp.stats()
    assert (after.graphs - before.graphs, after.graph_breaks - before.graph_breaks) == (graphs, breaks), after.break_reasons
    return [row[0] for row in runs[1]]


def plain(x):
    return x * random.random() + random.random()


def returned(x):
    first = random.random()
    return x * 2, first, random.randint(0, 3), first * 2 + 1


def whole_numbers(x):
    return x + random.randint(0, 10) - random.randrange(5) * random.randrange(2, 20, 3) + random.getrandbits(8)


def of_sizes(x):
    return x + random.randrange(x.shape[0]) + x[random.randrange(len(x))]


def as_index(x):
    return x[random.randint(0, 3)] * 2, x[:, random.randint(-3, -1)], x[: random.randint(1, 4)].sum()


def as_size(x):
    n = random.randint(1, 3)
    return x.new_zeros(n), torch.arange(n) + 1, torch.nn.functional.pad(x, (n, 0)).sum()


def floats(x):
    total = random.uniform(0.5, 1.5) + random.gauss(0, 1) + random.normalvariate(1, 2) + random.lognormvariate(0, 0.5)
    total += random.expovariate(1.5) + random.betavariate(1, 2) + random.gammavariate(2, 1) + random.paretovariate(3)
    return x * total + random.weibullvariate(1, 2) + random.vonmisesvariate(0, 4) + random.triangular(0, 1, 0.5)


def items(x):
    several = random.choices([1.0, 2.0, 3.0], weights=[1, 2, 3], k=2)
    return several, x * random.choice((1, 2, 3)), random.sample([1, 2, 3], k=2), random.choice(range(10))


def shuffled(x):
    order = list(range(4))
    random.shuffle(order)
    return x[order] * 2, order


def picked_columns(x):
    return x[:, random.sample(range(8), 2)] * 2


def seeded(x):
    random.seed(7)
    return x * random.random()


def state_kept(x):
    state = random.getstate()
    first = x * random.random()
    random.setstate(state)
    return first, random.random(), state


def state_from_outside(x):
    random.setstate(STATE)
    return x * random.random()


def own_stream_made(x):
    made = random.Random(7)
    return x * made.random() + made.randint(0, 5) * random.random()


def two_streams(x):
    return x * OTHER.random() * random.random() + OTHER.randint(0, 3)


def arithmetic(x):
    number = random.random()
    return x * (1 / (number + 1)), math.sqrt(number), int(number * 10), round(number * 9), max(number, 0.5), abs(-number)


def with_torchs(x):
    return torch.rand(4) * random.random() + torch.nn.functional.dropout(x[:, :4], 0.5) * random.random()


def literal(x):
    return x + torch.tensor(random.random()), torch.full((2,), random.uniform(1, 2)), torch.tensor([random.random(), 1.0])


def in_a_generator(x):
    def numbers():
        while True:
            yield random.random()

    made = numbers()
    return x * next(made) + sum(random.random() for _ in range(3)) + next(made)


def by_another_name(x):
    draw = random.random
    return x * draw() + sum(map(lambda _: draw(), range(2)))


def large(x):
    return x + 1, random.getrandbits(60) * 1024


def caught(x):
    number = random.random()
    try:
        y = x[torch.tensor([99])] * number
    except IndexError:
        return x * random.random()
    return y


def raises_late(x):
    y = x * random.random()
    return y[torch.tensor([99])] * random.random()


def raises_in_block(x):
    with torch.no_grad():
        return torch.linalg.cholesky(-torch.eye(2)) * random.random()


ONE_GRAPH = [
    plain, returned, whole_numbers, of_sizes, as_index, as_size, floats, items, shuffled, picked_columns, seeded, state_kept,
    state_from_outside, own_stream_made, two_streams, arithmetic, with_torchs, literal, in_a_generator, by_another_name, large, caught,
    raises_late, raises_in_block,
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_one_graph(function, backend):
    alike(function, X, backend=backend)


def test_numbers_are_new_in_each_call():
    found = alike(plain, X)
    assert len({float(y.sum()) for y in found}) == len(found)


def branches(x):
    if random.random() < 0.5:
        x = x.relu() - 1
    if random.uniform(0, 1) < 0.5:
        x = x + random.random()
    return x * 2


def test_branches_break_and_draw_as_eager():
    alike(branches, X, graphs=3, breaks=3, calls=12)


def chooses_text(x):
    return x * 2 if random.choice(["a", "b"]) == "a" else x + random.random()


def test_choice_of_other_things_breaks():
    alike(chooses_text, X, graphs=2, breaks=1, calls=12)


def breaks_between(x):
    first = random.random()
    print(end="")
    return x * first * random.random()


def test_break_between_draws():
    alike(breaks_between, X, graphs=2, breaks=1)


def empty_range(x):
    try:
        return x + random.randint(5, 1)
    except ValueError as error:
        return x * random.random(), str(error)


def nothing_to_choose(x):
    return x * random.random() + random.choice([])


@pytest.mark.parametrize("function", (empty_range, nothing_to_choose), ids=lambda f: f.__name__)
def test_wrong_arguments(function):
    alike(function, X, graphs=0 if function is empty_range else 1, breaks=1)


class Counted:
    calls = 0


def overflows_now_and_then(x):
    Counted.calls += 1
    y = x * random.random()
    return y * random.lognormvariate(0, 800)


def test_a_draw_that_raises_now_and_then():
    runs = []
    for one in (overflows_now_and_then, dyncomp.optimize(overflows_now_and_then)):
        random.seed(1)
        Counted.calls = 0
        run = []
        for _ in range(30):
            result, error = outcome(one, (X,))
            run.append((result, repr(error), Counted.calls, random.random()))
        runs.append(run)
    assert len({error for _, error, *_ in runs[0]}) == 2
    assert_same(runs[1], runs[0])


def between_arguments(x, low, high):
    return x * random.uniform(low, high) + random.randint(0, int(high))


def test_numbers_of_the_call_as_arguments():
    fast = dyncomp.optimize(between_arguments)
    for high in (1.5, 2.5, 3.5, 4.5):
        random.seed(5)
        want = between_arguments(X, 0.5, high)
        state = random.getstate()
        random.seed(5)
        assert_same(fast(X, 0.5, high), want)
        assert random.getstate() == state


def test_range_of_a_size_that_is_empty_in_a_later_call():
    def last(x):
        y = x * random.random()
        return y + random.randrange(x.shape[0] - 3)

    fast = dyncomp.optimize(last, dynamic=True)
    for size in (8, 9, 3, 10, 3):
        x = torch.ones(size)
        random.seed(2)
        want, error = outcome(last, (x,))
        state = random.getstate()
        random.seed(2)
        got, got_error = outcome(fast, (x,))
        assert str(got_error) == str(error) and type(got_error) is type(error)
        assert_same(got, want)
        assert random.getstate() == state


def test_gradients():
    w = torch.ones(8, 3, requires_grad=True)

    def loss(x):
        return ((x @ w).relu() * random.random()).sum() * random.uniform(1, 2)

    fast = dyncomp.optimize(loss)
    for seed in range(4):
        grads = []
        for function in (loss, fast):
            random.seed(seed)
            w.grad = None
            function(X).backward()
            grads.append((w.grad, random.random()))
        assert_same(grads[1], grads[0])


class DrawsLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.scale = random.random()
        return x * ctx.scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.scale * random.random()


def custom(x):
    return DrawsLater.apply(x).sum() * random.random()


def checkpointed(x):
    return checkpoint(lambda t: (t * random.random()).sin(), x, use_reentrant=False).sum()


def hooked(x):
    y = x * 2
    y.register_hook(lambda gradient: gradient * random.random())
    return (y * random.random()).sum()


def transformed(x):
    y = torch.func.grad(lambda t: (t * random.random()).sum())(x) * random.random()
    return (x * y).sum() + torch.vmap(lambda t: t * random.random())(x).sum()


@pytest.mark.parametrize("function", (custom, checkpointed, hooked, transformed), ids=lambda f: f.__name__)
def test_what_runs_in_the_backward_draws_then(function):
    runs = []
    for one in (function, dyncomp.optimize(function)):
        random.seed(3)
        run = []
        for _ in range(3):
            x = torch.arange(4.0).requires_grad_()
            y = one(x)
            between = random.random()
            y.backward()
            run.append((y.detach(), between, x.grad, random.random()))
        runs.append(run)
    assert_same(runs[1], runs[0])


def test_a_replaced_function_is_noticed(monkeypatch):
    fast = dyncomp.optimize(plain)
    fast(X)
    monkeypatch.setattr(random, "random", lambda: 0.25)
    assert_same(fast(X), X * 0.25 + 0.25)


def test_a_subclass_runs_as_python():
    class Fixed(random.Random):
        def random(self):
            return 0.5

    made = Fixed(1)
    fast = dyncomp.optimize(lambda x: x * made.random() * made.uniform(1, 3))
    for _ in range(2):
        assert_same(fast(X), X * 0.5 * 2.0)


def test_an_operation_in_python_keeps_its_place():
    """It may draw from the same stream, so later draws wait for it."""

    @torch.library.custom_op("dyncomp_random::noisy", mutates_args=())
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x * random.random()

    noisy.register_fake(lambda x: torch.empty_like(x))
    fast = dyncomp.optimize(lambda x: noisy(x * random.random()) + random.random())
    for seed in range(3):
        random.seed(seed)
        first, second, third = random.random(), random.random(), random.random()
        random.seed(seed)
        assert_same(fast(X), X * first * second + third)


def test_nothing_is_drawn_while_compiling():
    random.seed(11)
    state = random.getstate()
    dyncomp.explain(plain)(X)
    assert random.getstate() != state  # it runs the function once
    random.seed(11)
    plain(X)
    once = random.getstate()
    random.seed(11)
    dyncomp.optimize(plain)(X)
    assert random.getstate() == once


def test_frames_without_tensors_are_left_alone():
    def number():
        return random.random() * 2 + 1

    before = dyncomp.stats()
    random.seed(3)
    want = [number() for _ in range(3)]
    random.seed(3)
    fast = dyncomp.optimize(number)
    assert [fast() for _ in range(3)] == want
    assert dyncomp.stats().graphs == before.graphs


@pytest.mark.parametrize("copies", (True, False))
def test_streams_are_put_back(copies, monkeypatch):
    monkeypatch.setattr(streams, "_COPIES", copies)
    stream = random.Random(5)
    for draws in range(0, 1300, 97):
        for _ in range(draws):
            stream.random()
        stream.gauss(0, 1)
        before = stream.getstate()
        kept = streams.keep(stream)
        numbers = [stream.gauss(0, 1) for _ in range(5)]
        streams.put_back(kept)
        assert stream.getstate() == before
        assert [stream.gauss(0, 1) for _ in range(5)] == numbers
