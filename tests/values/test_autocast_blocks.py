"""Programs with autocast blocks that end in every way a block can end: what is cast, what torch's state is afterwards, and that a
weight which was changed between two calls is never used as it was before.

Autocast keeps the casts of weights until its outermost block ends, which it knows by counting blocks; see `values/saved_state.py`.
"""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from tests.support import assert_same, outcome

BF16 = torch.bfloat16


def nesting():
    count = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return count


@dyncomp.disable
def cast_by_eager(y, w):
    return y.float() @ w, nesting()


NAMES = {"torch": torch, "cast_by_eager": cast_by_eager, "BF16": BF16}

LINES = st.sampled_from(
    [
        "y = y.float() @ w",
        "y = torch.nn.functional.linear(y.float(), w, b)",
        "y = torch.relu(y)",
        "log.append((y.dtype, torch.is_autocast_enabled('cpu'), torch.get_autocast_dtype('cpu')))",
        "print(end='')",
        "y, n = cast_by_eager(y, w); log.append(n)",
        "y = y[i]",
        "if stop: raise ValueError('asked for')",
        "if not stop: return y, log",
    ]
)
BLOCKS = st.sampled_from(
    [
        "with torch.autocast('cpu', dtype=BF16):",
        "with torch.autocast('cpu', dtype=BF16, cache_enabled=False):",
        "with torch.autocast('cpu', enabled=False):",
        "with torch.no_grad():",
        "try:",
        "for _ in range(2):",
    ]
)
BODIES = st.recursive(
    st.lists(LINES, min_size=1, max_size=3),
    lambda inner: st.lists(st.one_of(LINES, st.tuples(BLOCKS, inner)), min_size=1, max_size=3),
    max_leaves=8,
)


def source(body, indent=1):
    pad = "    " * indent
    lines = []
    for part in body:
        if isinstance(part, str):
            lines.append(pad + part)
            continue
        header, inner = part
        lines += [pad + header, source(inner, indent + 1)]
        if header == "try:":
            lines += [f"{pad}except (ValueError, IndexError) as error:", f"{pad}    log.append(type(error).__name__)"]
    return "\n".join(lines)


def program(body):
    text = f"def program(y, w, b, i, stop):\n    log = []\n{source(body)}\n    return y, log\n"
    namespace = dict(NAMES)
    exec(compile(text, "<program>", "exec"), namespace)
    return namespace["program"]


def weights():
    torch.manual_seed(1)
    return torch.nn.Parameter(torch.randn(4, 4)), torch.nn.Parameter(torch.randn(4))


def run(function, around):
    """Calls with weights written in between: everything that can be seen."""
    w, b = weights()
    x = torch.arange(12.0).reshape(3, 4) / 8
    seen = []
    for rows, index, stop in ((3, 1, False), (3, 1, True), (3, 9, False), (2, 0, True), (3, 1, False)):
        with torch.autocast("cpu", dtype=BF16, enabled=around == "autocast") if around else torch.enable_grad():
            result, error = outcome(function, (x[:rows], w, b, torch.tensor([index]), stop))
        state = nesting(), torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled(), torch.is_grad_enabled()
        if error is None and result[0].requires_grad:
            result[0].float().sum().backward()
        # Eager adds the gradients of one weight in bfloat16 where its uses share a cast; graphs on two sides of a break do not.
        grads = [None if p.grad is None else p.grad / p.grad.abs().max().clamp(min=1e-6) for p in (w, b)]
        with torch.no_grad():
            w.mul_(0.5)
        with torch.autocast("cpu", dtype=BF16):
            fresh = (x @ w).detach()  # a cast that is left over would be used here
        seen.append([result, type(error).__name__, str(error), list(state), grads, fresh])
    return seen


@pytest.mark.parametrize("around", ["", "autocast", "disabled"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@settings(deadline=None, max_examples=40)
@given(body=BODIES)
def test_programs(backend, around, body):
    function = program(body)
    want = run(function, around)
    dyncomp.reset()
    got = run(dyncomp.optimize(function, backend=backend), around)
    assert_same(got, want, rtol=2e-2, atol=2e-2)
    assert nesting() == 0


def test_programs_with_kernels():
    def function(y, w, b, i, stop):
        log = []
        with torch.autocast("cpu", dtype=BF16):
            y, n = cast_by_eager(y, w)
            y = torch.nn.functional.linear(y.float(), w, b)
            try:
                with torch.autocast("cpu", enabled=False):
                    y = y.float()[i]
            except IndexError as error:
                log.append(str(error))
            if stop:
                raise ValueError("asked for")
        return y, [*log, n]

    want = run(function, "")
    assert_same(run(dyncomp.optimize(function), ""), want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_the_cache_is_cleared_where_a_block_ends_after_a_break(backend):
    def f(x, w):
        with torch.autocast("cpu", dtype=BF16):
            y, _ = cast_by_eager(x, w)
            return y, x @ w

    fast = dyncomp.optimize(f, backend=backend)
    x, (w, _) = torch.randn(3, 4), weights()
    for _ in range(3):
        assert_same(fast(x, w), f(x, w), rtol=2e-2, atol=2e-2)
        assert nesting() == 0
        with torch.no_grad():
            w.mul_(2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_code_made_inside_a_block_clears_the_cache_when_it_runs_outside_of_one(backend):
    def f(x, w):
        with torch.autocast("cpu", dtype=BF16):
            return x @ w

    fast = dyncomp.optimize(f, backend=backend)
    x, (w, _) = torch.randn(3, 4), weights()
    with torch.autocast("cpu", enabled=False):
        fast(x, w)
    for _ in range(3):
        assert_same(fast(x, w), f(x, w), rtol=2e-2, atol=2e-2)
        with torch.no_grad():
            w.mul_(2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_a_program_that_clears_the_cache_clears_it_for_eager_code_too(backend):
    def f(x, w):
        torch.clear_autocast_cache()
        return x + 1

    fast = dyncomp.optimize(f, backend=backend)
    x, (w, _) = torch.randn(3, 4), weights()
    with torch.autocast("cpu", dtype=BF16):
        for _ in range(3):
            want = x @ w.detach()
            assert_same((x @ w).detach(), want)
            with torch.no_grad():
                w.mul_(2)
            fast(x, w)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_a_graph_that_raises_inside_blocks(backend):
    def f(x, w, i):
        with torch.autocast("cpu", dtype=BF16), torch.no_grad():
            return (x @ w)[i]

    def training(x, w, i):
        with torch.autocast("cpu", dtype=BF16):
            return (x @ w)[i]

    x, (w, _) = torch.randn(3, 4), weights()
    for function in (f, training):
        fast = dyncomp.optimize(function, backend=backend)
        for _ in range(2):
            with pytest.raises(IndexError):
                fast(x, w, torch.tensor([7]))
            assert nesting() == 0
            assert torch.is_grad_enabled()
            assert not torch.is_autocast_enabled("cpu")
            with torch.no_grad():
                w.mul_(2)
            assert_same(fast(x, w, torch.tensor([1])), function(x, w, torch.tensor([1])), rtol=2e-2, atol=2e-2)


def test_a_backward_that_runs_again_leaves_no_cast_behind():
    def f(x, w):
        with torch.autocast("cpu", dtype=BF16):
            return (x @ w).float().sin()

    fast = dyncomp.optimize(f)
    for function in (f, fast):
        x, (w, _) = torch.randn(3, 4, generator=torch.Generator().manual_seed(3)), weights()
        results = []
        for _ in range(3):
            (grad,) = torch.autograd.grad(function(x, w).sum(), w, create_graph=True)
            (second,) = torch.autograd.grad(grad.square().sum(), w)
            results.append((grad.detach(), second))
            with torch.no_grad():
                w.mul_(0.5)
        if function is f:
            want = copy.deepcopy(results)
    assert nesting() == 0
    assert_same(results, want, rtol=5e-2, atol=5e-2)
