"""Symbolic sizes through a frame: one compile for many sizes, with eager's results each time."""

import math

import pytest
import torch

import dyncomp
from dyncomp import config
from dyncomp.errors import DyncompError
from tests.support import assert_same, clone_inputs, outcome


def run(function, *calls, compiles=1, dynamic=True, backend="aot_eager", **options):
    """As eager in every call, with this many compiles. Returns the compiled function."""
    before = dyncomp.stats()
    fast = dyncomp.optimize(function, dynamic=dynamic, backend=backend, **options)
    with torch.no_grad(), config.patch(strict=True, verify_passes=True):
        for args in calls:
            ours, theirs = clone_inputs(args), clone_inputs(args)
            want, want_error = outcome(function, theirs)
            got, got_error = outcome(fast, ours)
            assert type(got_error) is type(want_error), repr(got_error)
            assert_same(got, want)
            assert_same(ours, theirs, "inputs")
    after = dyncomp.stats()
    assert after.frames - before.frames == compiles, f"{after.frames - before.frames} compiles"
    assert after.graph_breaks == before.graph_breaks, after.break_reasons
    return fast


def tensors(*shapes):
    return [(torch.randn(shape),) for shape in shapes]


MANY = tensors((6, 4), (7, 5), (9, 3), (4, 8), (3, 2))

PROGRAMS = [
    lambda x: torch.cat([x, x]),
    lambda x: x.view(-1).sum() * x.shape[0],
    lambda x: x.reshape(x.shape[1], -1) + 1,
    lambda x: (x * 2, x.shape[0] * x.size(1) + 3, x.numel()),
    lambda x: x[: x.shape[0] // 2, -1],
    lambda x: x[1:].t(),
    lambda x: torch.zeros(x.shape[0], x.shape[1] + 1) + x.mean(),
    lambda x: x.expand(2, *x.shape) * len(x),
    lambda x: x.new_ones(min(x.shape), max(x.size(0), 3)),
    lambda x: x.unsqueeze(0).repeat(1, 1, x.dim()),
    lambda x: torch.arange(x.size(0))[:, None] + x,
    lambda x: x.clone().add_(x.shape[1]),
    lambda x: (x @ x.t()).softmax(-1) * (x.shape[0] ** 2),
    lambda x: {"n": x.shape[0], "x": x + 1, "pair": [x.shape[1], x.shape]},
    lambda x: x + round(x.shape[0] * 10, -1),
    lambda x: x * (x.shape[0] > 1) + int(x.shape[1]) + abs(-x.shape[0]),
    lambda x: x[: int((x.shape[0] + 4) / 2)] + math.ceil(x.shape[1] / 3) + math.floor(math.sqrt(x.shape[0])),
    lambda x: torch.full((x.shape[0],), x.shape[1]),
    lambda x: x.flatten().view(x.shape).transpose(0, 1).contiguous(),
    lambda x: x + sum(x.shape) + divmod(x.shape[0], 2)[0],
    lambda x: torch.nn.functional.pad(x, (0, x.shape[0])),
    lambda x: x.mul_(2)[1:],
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_one_compile_for_all_sizes(number, backend):
    run(PROGRAMS[number], *MANY, backend=backend)


def test_ints_of_the_call_vary():
    def f(x, n, pair):
        return x[:n] * n + pair[0], n + pair[1], x.sum(0)

    calls = [(torch.randn(20, 3), n, (a, b)) for n, a, b in ((5, 7, 9), (8, 2, 4), (11, 30, 3))]
    run(f, *calls)


def test_branches_on_sizes_are_guarded():
    def f(x):
        return x + 1 if x.shape[0] > 5 else x - 1

    run(f, *tensors((7, 2), (9, 2), (3, 2), (4, 2), (20, 2)), compiles=2)


def test_one_is_special():
    run(lambda x: x * x.shape[0], *tensors((7, 2), (1, 2), (4, 2), (1, 2)), compiles=2)


def test_a_loop_over_a_size_is_unrolled_and_pinned():
    def f(x):
        for i in range(x.shape[0]):
            x = x + i
        return x

    run(f, *tensors((3, 5), (3, 7), (4, 6)), compiles=2)


def test_equal_numbers_that_differ_in_kind_are_told_apart():
    weight = torch.randn(3, 3, 2, 2)

    def f(x):
        return torch.nn.functional.conv2d(x, weight)

    run(f, *tensors((3, 3, 8, 9), (5, 3, 10, 7)))


def test_sizes_of_dictionaries_and_lists():
    def f(batch, more):
        return batch["x"] + more[0], [t.shape[0] for t in more]

    run(f, *[({"x": torch.randn(n, 3)}, [torch.randn(n, 3), torch.randn(m, 2)]) for n, m in ((4, 7), (6, 9))])


def test_modules_keep_their_own_sizes():
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6), torch.nn.GELU(), torch.nn.Linear(6, 3))
    run(model.eval(), *tensors((5, 6), (2, 6), (6, 6)), compiles=1, fullgraph=True)


def test_formatting_a_size_keeps_it_open():
    run(lambda x: (x + 1, f"{x.shape[0]}"), *tensors((3, 2), (3, 4), (5, 4)), compiles=1)


def test_floats_of_sizes_vary_too():
    run(lambda x: x / math.sqrt(x.shape[-1]) * float(x.shape[0]) + x.shape[1] / 2, *tensors((3, 4), (5, 4), (5, 9)))


def test_checks_are_facts():
    def f(x, n):
        torch._check(n < x.shape[0])
        torch._check(n >= 0, lambda: "negative")
        return x[n:]

    run(f, (torch.randn(9, 2), 4), (torch.randn(7, 2), 3))
    with pytest.raises(RuntimeError):
        dyncomp.optimize(f, dynamic=True, backend="eager")(torch.randn(4, 2), 6)


def test_graph_shows_sizes():
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm

    run(lambda x: torch.cat([x, x]), *tensors((4, 5), (6, 5)), backend=backend)
    node = next(n for n in seen[0].graph.nodes if n.op == "call_function")
    assert str(node.meta["example_value"].shape[0]) == "2*s0"


# -- policy and marks
def test_only_what_changed_becomes_symbolic():
    with config.patch(automatic_dynamic=True):
        fast = run(
            lambda x: x + 1, *tensors((3, 8), (5, 8), (9, 8), (4, 8), (6, 7), (8, 5), (2, 9)), dynamic=None, compiles=3
        )
    assert fast is not None


def test_static_means_one_compile_a_size():
    run(lambda x: x + 1, *tensors((3, 8), (5, 8), (3, 8)), dynamic=False, compiles=2)


def marked(shape, dim=0, **bounds):
    tensor = torch.randn(shape)
    dyncomp.mark_dynamic(tensor, dim, **bounds)
    return tensor


def test_mark_dynamic():
    fast = dyncomp.optimize(lambda x: x * 2, backend="eager")
    before = dyncomp.stats().frames
    for tensor in (marked((4, 3)), torch.randn(7, 3), torch.randn(9, 3)):
        assert torch.equal(fast(tensor), tensor * 2)
    assert dyncomp.stats().frames - before == 1


def test_a_mark_that_cannot_be_kept_names_the_line():
    def f(x):
        return x + 1 if x.shape[0] == 4 else x

    with pytest.raises(DyncompError, match=r"L\['x'\].size\(0\).*test_dynamic.py:\d+"):
        dyncomp.optimize(f, backend="eager")(marked((4, 3)))
    with pytest.raises(DyncompError, match="0 and 1 are always special"):
        dyncomp.optimize(f, backend="eager")(marked((1, 3)))
    with pytest.raises(DyncompError, match="from 5 to 9, but it is 4"):
        dyncomp.optimize(f, backend="eager")(marked((4, 3), min=5, max=9))


def test_mark_static():
    tensor = torch.randn(4, 3)
    dyncomp.mark_static(tensor, 0)
    fast = dyncomp.optimize(lambda x: x * 2, backend="eager", dynamic=True)
    before = dyncomp.stats().frames
    fast(tensor), fast(torch.randn(4, 5)), fast(torch.randn(6, 5))
    assert dyncomp.stats().frames - before == 2


def test_mark_unbacked_has_no_special_sizes():
    tensor = torch.randn(4, 3)
    dyncomp.mark_unbacked(tensor, 0)
    fast = dyncomp.optimize(lambda x: x * 2 + 1, backend="eager")
    before = dyncomp.stats().frames
    for other in (tensor, torch.randn(1, 3), torch.randn(0, 3), torch.randn(8, 3)):
        assert torch.equal(fast(other), other * 2 + 1)
    assert dyncomp.stats().frames - before == 1


@pytest.mark.parametrize("wrong", [dict(dim=5), dict(dim=0, min=4, max=2)])
def test_wrong_marks(wrong):
    with pytest.raises(DyncompError):
        dyncomp.mark_dynamic(torch.randn(3, 2), **wrong)


LITERALS = [
    lambda x: torch.tensor(2.5) * x.shape[0] + x,
    lambda x: torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8, 9])[: x.shape[1]] + x,
    lambda x: torch.tensor([1.0, 2]).expand(x.shape[1], 2) + 1,
    lambda x: torch.tensor([[1.0], [2.0]]).repeat(x.shape[0], x.shape[1]),
    lambda x: torch.tensor([3, 1, 2]) + x.shape[0],
]


@pytest.mark.parametrize("number", range(len(LITERALS)))
def test_literals_and_sizes(number):
    """The value of a literal is known, that of a literal and a size is followed without pinning the size."""
    run(LITERALS[number], *MANY)


def test_asking_for_the_value_of_a_literal_and_a_size_pins_it():
    def item(x):
        return torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9])[x.shape[1] - 1].item() + x

    def listed(x):
        return torch.tensor([5, 6, 7, 8, 9, 10, 11, 12])[: x.shape[1]].tolist(), x + 1

    for function in (item, listed):
        run(function, *MANY, compiles=5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("grad", [False, True])
def test_sizes_that_equal_what_only_other_tensors_tell(grad, backend):
    """The graph works on `x` alone, whose size was found to be a function of sizes of tensors that it does not work on."""

    def remainder(x, y, n):
        return x.reshape(-1) * 2 if x.shape[0] == y.shape[0] % 3 else x

    def total(y, n, x):
        return (x.reshape(-1) * 2).t() if x.shape[0] == y.shape[0] + n.shape[0] else x

    def product(y, n, x):
        return x.reshape(-1) * 2 if x.shape[0] == y.shape[0] // 2 * n else x

    rows = [
        (remainder, [(torch.randn(2, 4), torch.ones(5), 1), (torch.randn(2, 3), torch.ones(8), 1), (torch.randn(5, 3), torch.ones(4), 1)]),
        (total, [(torch.ones(2), torch.ones(3), torch.randn(5, 2)), (torch.ones(4), torch.ones(2), torch.randn(6, 3))]),
        (product, [(torch.ones(4), 3, torch.randn(6, 2)), (torch.ones(7), 2, torch.randn(6, 3))]),
    ]
    for function, arguments in rows:
        fast = dyncomp.optimize(function, backend=backend, dynamic=True)
        for args in arguments:
            args = [a.requires_grad_(grad) if isinstance(a, torch.Tensor) and a.dim() == 2 else a for a in args]
            assert_same(fast(*args), function(*args))
            if grad:
                (x,) = [a for a in args if isinstance(a, torch.Tensor) and a.dim() == 2]
                assert_same(torch.autograd.grad(fast(*args).sum(), x), torch.autograd.grad(function(*args).sum(), x))
