"""Numbers that only the running program gives: `.item()`, `nonzero`, boolean indices, captured when the knobs say so."""

import pytest
import torch

import dyncomp
from dyncomp import config
from dyncomp.errors import FullGraphError
from tests.support import assert_same, clone_inputs, outcome

BACKENDS = ["eager", "aot_eager", "codegen"]
CAPTURE = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


def calls():
    """(5, 4) tensors with many, no, one and all positive rows, and an int tensor; fresh ones each time."""
    generator = torch.Generator().manual_seed(0)
    x = [torch.randn(5, 4, generator=generator) for _ in range(6)]
    x[3] = -x[3].abs()
    x[4] = torch.cat([x[4][:1].abs() + 1, -x[4][1:].abs()])
    x[5] = x[5].abs() + 1
    return [(a, torch.tensor(n)) for a, n in zip(x, (3, 2, 4, 1, 0, 5), strict=True)]


def run(function, backend="eager", breaks=0, graphs=1, dynamic=False, inputs=None, **knobs):
    """As eager in every call: results, inputs, errors and random numbers. Returns the statistics."""
    dyncomp.reset()
    fast = dyncomp.optimize(function, backend=backend, dynamic=dynamic)
    with torch.no_grad(), config.patch(strict=True, verify_passes=True, **{**CAPTURE, **knobs}):
        for args in inputs or calls():
            ours, theirs = clone_inputs(args), clone_inputs(args)
            seed = torch.get_rng_state()
            want, want_error = outcome(function, theirs)
            state = torch.get_rng_state()
            torch.set_rng_state(seed)
            got, got_error = outcome(fast, ours)
            assert type(got_error) is type(want_error), f"raised {got_error!r} instead of {want_error!r}"
            assert str(got_error) == str(want_error)
            assert_same(got, want)
            assert_same(ours, theirs, "inputs")
            assert torch.equal(state, torch.get_rng_state())
    made = dyncomp.stats()
    assert made.graph_breaks == breaks, made.break_reasons
    assert graphs is None or made.graphs == graphs, made.graphs
    return made


def two_masks(x, n):
    return x[x > 0] + x[x > 0] * 2, x[x > 0].shape[0]


def masked_model(x, n):
    y = x[x[:, 0] > 0]
    return torch.nn.functional.layer_norm(torch.relu(y @ x.t()), (x.shape[0],)).softmax(-1)


def sizes_of_lists(x, n):
    first, second = torch.stack([n, n + 1]).tolist()
    return torch.zeros(first, second), first * second


def split_by_list(x, n):
    return x.split(torch.stack([n, x.shape[0] - n]).tolist())


def checked_slices(x, n):
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return x[:k].sum(0), x[k:]


def statistics(x, n):
    count = (x > 0).sum().item()
    return x.sum() / (count + 1), count / 2, count // 2, count % 3, max(count, 2), -count


def written(x, n):
    x.add_(n.item())
    x[: n.item()] = 0
    return x.sum()


def random_after(x, n):
    return torch.rand(n.item()), torch.rand(2), torch.randn(3)


def counted(x, n):
    row = (x[:, 0] > 0).long()
    return torch.bincount(row * n), torch.bincount(row, x[:, 1]), x[:, 0].repeat_interleave(row + 1)


def unique_values(x, n):
    rounded = x.round()
    pair = torch.unique(rounded, return_inverse=True, return_counts=True)
    return *pair, torch.unique_consecutive(rounded), torch.unique(rounded)


def same_number_twice(x, n):
    return torch.ones(n.item()) + torch.zeros(n.item()), int(n) + int(n), float(n), int(x[0, 0] > 0)


def views(x, n):
    y = x[x[:, 0] > 0]
    return y.t(), y.unsqueeze(0).expand(2, -1, -1), y.reshape(-1), y.view(-1, 2), y[1:], y.flatten()[: y.shape[0]]


PROGRAMS = [
    lambda x, n: x * n.item() + 1,
    lambda x, n: x * x.sum().item() + float(n),
    lambda x, n: torch.zeros(n.item()) + 1,
    lambda x, n: torch.arange(n.item()) * 2,
    lambda x, n: torch.full((2, n.item()), x.sum().item()),
    lambda x, n: x.nonzero(),
    lambda x, n: ((x > 0).nonzero() + 1, (x > 0).nonzero()[:, 0], torch.argwhere(x > 0)),
    lambda x, n: x[x > 0] * 2,
    lambda x, n: x[x[:, 0] > 0] @ x.t(),
    lambda x, n: (x[:, x[0] > 0], x[x[:, 0] > 0, 1], x[None, x > 0]),
    lambda x, n: x.masked_select(x > 0.5).sort()[0],
    lambda x, n: torch.where(x > 0),
    lambda x, n: torch.where(x > 0, x, n.item()),
    lambda x, n: x[: n.item()],
    lambda x, n: (x[n:], x[:-n], x[n - 1 :: 2], x[..., :n]),
    lambda x, n: (x[n], x[n, 1], x[..., n - 2]),
    lambda x, n: x[0].expand(n.item(), -1),
    lambda x, n: torch.nn.functional.pad(x, (0, n.item())),
    lambda x, n: torch.cat([x[x[:, 0] > 0], x]),
    lambda x, n: (x[x > 1e9].sum(), x[x > 1e9], (x > 1e9).nonzero()),
    lambda x, n: {"n": n.item(), "both": [n.item() * 2, x + n.item()]},
    two_masks, masked_model, sizes_of_lists, split_by_list, checked_slices, statistics, written, random_after, counted,
    unique_values, same_number_twice, views,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_one_graph(number, backend, dynamic):
    run(PROGRAMS[number], backend, dynamic=dynamic)


def test_off_by_default():
    made = run(lambda x, n: x * n.item(), breaks=1, graphs=None, capture_scalar_outputs=False)
    assert made.break_reasons == {"data-dependent-value": 1}
    made = run(lambda x, n: x[x > 0] * 2, breaks=1, graphs=None, capture_dynamic_output_shape_ops=False)
    assert made.break_reasons == {"data-dependent-shape": 1}


def test_the_break_names_the_knob():
    explained = dyncomp.explain(lambda x, n: x * n.item(), backend="eager")(*calls()[0])
    assert "capture_scalar_outputs" in str(explained)
    explained = dyncomp.explain(lambda x, n: x[x > 0] * 2, backend="eager")(*calls()[0])
    assert "capture_dynamic_output_shape_ops" in str(explained)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_question_nobody_can_answer_is_a_named_break(backend):
    def branch(x, n):
        k = n.item()
        return x * 2 if k > 3 else x

    made = run(branch, backend, breaks=1, graphs=None)
    assert list(made.break_reasons) == ["data-dependent-branch"]


def test_the_number_in_a_text():
    made = run(lambda x, n: (x + 1, f"{n.item()}"), breaks=1, graphs=None)
    assert list(made.break_reasons) == ["data-dependent-value"]


def test_the_break_tells_who_asked_and_the_cure():
    def branch(x, n):
        k = n.item()
        return x * 2 if k > 3 else x

    with torch.no_grad(), config.patch(**CAPTURE), pytest.raises(FullGraphError) as raised:
        dyncomp.optimize(branch, fullgraph=True, backend="eager")(*calls()[0])
    text = str(raised.value)
    line = branch.__code__.co_firstlineno
    assert f"{__file__}:{line + 2}" in text and f"{__file__}:{line + 1}" in text and "torch._check(" in text


def test_what_was_checked_answers_later_questions():
    def f(x, n):
        k = n.item()
        torch._check(k < 10)
        return x + 1 if k < 20 else x - 1

    run(f)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("check, error", [
    (lambda n: torch._check(n < 4, lambda: "too large"), RuntimeError),
    (lambda n: torch._check(n < 4), RuntimeError),
    (lambda n: torch._check_value(n < 4, lambda: "too large"), ValueError),
    (lambda n: torch._check_index(n < 4), IndexError),
    (lambda n: torch._check_type(n < 4), TypeError),
    (lambda n: torch.sym_constrain_range_for_size(n, min=2, max=4), RuntimeError),
])  # fmt: skip
def test_a_failing_check_is_eagers_error(backend, check, error):
    def f(x, n):
        k = n.item()
        check(k)
        return x * k

    made = run(f, backend)
    assert made.fallbacks["graph-raised"] >= 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_checks_inside_try(backend):
    def f(x, n):
        try:
            torch._check(n.item() < 4, lambda: "too large")
            return x + 1
        except RuntimeError as error:
            return x, str(error)

    run(f, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_zero_and_one_are_no_special_case(backend):
    """What was assumed of a size is checked, and where it does not hold plain Python runs."""
    inputs = [(torch.tensor([1.0] * k + [-1.0] * (4 - k)), torch.tensor(k)) for k in (3, 2, 1, 0, 4)]

    def f(x, n):
        y = x[x > 0]
        return y[:, None] * y, torch.outer(y, y).t() + 1, y.expand(2, -1), y.sum(), y.mean()

    run(f, backend, inputs=inputs)


def test_bounds_of_masks_are_known():
    def f(x, n):
        count = x[x > 0].shape[0]
        return x + 1 if 0 <= count <= x.numel() else x - 1

    run(f)


def test_side_effects_of_a_frame_that_runs_again_come_once():
    seen = []

    def f(x, n):
        seen.append(len(seen))
        k = n.item()
        torch._check(k != 4)
        return x * k

    dyncomp.reset()
    fast = dyncomp.optimize(f, backend="eager")
    with config.patch(strict=True, **CAPTURE):
        for args in calls():
            outcome(fast, args)
    assert seen == list(range(6))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend):
    """Graphs with such numbers train under eager's autograd."""

    def f(x, n):
        return (x[x > 0] * n.item()).sum()

    dyncomp.reset()
    fast = dyncomp.optimize(f, backend=backend)
    with config.patch(strict=True, **CAPTURE):
        for x, n in calls():
            ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
            got, want = fast(ours, n), f(theirs, n)
            assert_same(got, want)
            got.backward()
            want.backward()
            assert_same(ours.grad, theirs.grad)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int32, torch.float64, torch.float16, torch.bfloat16, torch.bool]
)
def test_items_of_every_dtype(dtype):
    inputs = [(torch.ones(2), torch.tensor(value).to(dtype)) for value in (1, 0, 7)]
    run(lambda x, n: (x * float(n), int(n), x + int(n)), inputs=inputs)


def test_more_than_one_element_is_eagers_error():
    def f(x, n):
        try:
            return x + x.item()
        except RuntimeError as error:
            return str(error)

    run(f, graphs=0)


def test_the_knobs_as_options():
    fast = dyncomp.optimize(lambda x, n: x * n.item(), options={"capture_scalar_outputs": True}, fullgraph=True)
    x, n = calls()[0]
    with torch.no_grad():
        assert_same(fast(x, n), x * n.item())


@pytest.mark.parametrize("backend", BACKENDS)
def test_mark_unbacked_sizes_zero_and_one(backend):
    def f(x):
        return x.t() + 1, x * 2, x.reshape(-1), x.sum(0)

    dyncomp.reset()
    fast = dyncomp.optimize(f, backend=backend)
    with torch.no_grad(), config.patch(strict=True):
        for rows in (5, 3, 1, 0, 7):
            x = torch.randn(rows, 4)
            dyncomp.mark_unbacked(x, 0)
            assert_same(fast(x), f(x))
    assert dyncomp.stats().graphs == 1


def checked_slice(x, n):
    x.add_(1)
    count = n.item()
    torch._check(count >= 0, lambda: "too few")
    return x[:count] * 2


def allocated(x, n):
    x.add_(1)
    return torch.zeros(n.item()) + x.sum()


def selected(x, n):
    x.add_(1)
    return x[n.item()] * 2


def masked_writes(x, n):
    out = torch.zeros_like(x)
    for k in range(3):
        chosen = (x > k - 1) & (n != 0)
        out[chosen] = x[chosen] * n
    return out


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [checked_slice, allocated, selected, masked_writes], ids=lambda f: f.__name__)
def test_a_check_that_fails_after_a_write(function, backend, grad):
    """Where the graph runs node by node, what was written stays written: the frame must not run again, and the error is eager's."""
    dyncomp.reset()
    fast = dyncomp.optimize(function, backend=backend, recompile_limit=64)
    knobs = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch.set_grad_enabled(grad), config.patch(strict=True, **knobs):
        for number in (3, -1, -10, 2, 0):
            start = torch.arange(5.0, requires_grad=grad)
            ours, theirs = start * 1, start * 1
            want, want_error = outcome(function, (theirs, torch.tensor(number)))
            got, got_error = outcome(fast, (ours, torch.tensor(number)))
            assert (type(got_error), str(got_error)) == (type(want_error), str(want_error)), number
            assert_same(got, want, f"{number}")
            assert_same(ours, theirs, "input")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x[:, :1][x[:, 0] > 0] + 1,
        lambda x, n: x[:, :1][x[:, 1] > 0].cos() * x[0],
        lambda x, n: x.t()[:1][:, x[:, 0] > 0].sin(),
        lambda x, n: x[:, None, :1][x[:, 0] > 0],
    ],
)
def test_masks_of_rows_of_one(function, backend):
    """How the result lies in memory hangs on a size of 1 beside one that is not known: no question that nothing answers."""
    run(function, backend)
