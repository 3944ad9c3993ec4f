"""torch.func's derivatives inside compiled code: one graph with eager's result, differentiable and of any size where eager's is."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

import dyncomp
from dyncomp.fake.levels import depth
from tests.support import check, outcome

_SEED = torch.Generator().manual_seed(3)
X, W = torch.randn(5, 3, generator=_SEED), torch.randn(3, 4, generator=_SEED)
LINEAR = torch.nn.Linear(3, 4)
STATE = {name: value.detach() for name, value in LINEAR.named_parameters()}
MODELS = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()) for _ in range(3)]
STACKED = {name: value.detach() for name, value in stack_module_state(MODELS)[0].items()}


@pytest.fixture(autouse=True)
def nothing_is_left_open():
    yield
    assert depth() == 0 and forward_ad._current_level == -1 and torch._C._is_fwd_grad_enabled()


def loss(w, x):
    return (torch.tanh(x @ w) ** 2).sum()


def pulled_back(w, x):
    out, pull = vjp(lambda w: torch.tanh(x @ w), w)
    return out, pull(torch.ones_like(out)), pull(out)


def adapted(w, x):
    return loss(w - 0.1 * grad(lambda w: loss(w, x))(w), x)


def constant_part(y):
    with torch.no_grad():
        part = y**2
    return (y - part).sum()


def outside(w, x):
    with torch.no_grad():
        return grad(loss)(w, x), hessian(lambda y: (y.sin() * y).sum())(x[0])


def ensemble(params, x):
    return vmap(lambda p: functional_call(MODELS[0], p, (x,)))(params)


def forward_mode(w, x):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        return forward_ad.unpack_dual(dual.sin() @ w).tangent


PROGRAMS = {
    "grad": lambda w, x: grad(loss)(w, x),
    "several arguments": lambda w, x: grad(loss, argnums=(0, 1))(w, x),
    "grad_and_value": lambda w, x: grad_and_value(lambda w, x: (loss(w, x), (x + 1,)), has_aux=True)(w, x),
    "second derivative": lambda w, x: grad(lambda y: grad(lambda z: (z**3).sum())(y).sum())(x),
    "per sample": lambda w, x: vmap(grad(loss), in_dims=(None, 0))(w, x),
    "vjp": pulled_back,
    "jacrev": lambda w, x: vmap(jacrev(lambda row: torch.tanh(row @ w)))(x),
    "jacrev in chunks": lambda w, x: jacrev(torch.sin, chunk_size=2)(x[0]),
    "jvp": lambda w, x: jvp(lambda x, y: (x * y).sum(0), (x, x + 1), (x, x)),
    "jvp of nothing": lambda w, x: jvp(lambda a, b: (a * 2, torch.ones(3)), (x[0], x[1]), (x[0], x[1])),
    "jacfwd": lambda w, x: jacfwd(lambda x: torch.tanh(x @ w).sum(0))(x),
    "hessian": lambda w, x: hessian(lambda y: (y.sin() * y).sum())(x[:, 0]),
    "no_grad inside": lambda w, x: grad(constant_part)(x),
    "unused": lambda w, x: grad(lambda w, x: (x**2).sum())(w, x),
    "in place": lambda w, x: grad(lambda w: w.clone().mul_(w).sum())(w),
    "inner step": adapted,
    "derivative of an inner step": lambda w, x: grad(adapted)(w, x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name):
    check(PROGRAMS[name], W, X)


@pytest.mark.parametrize("name", PROGRAMS)
def test_differentiated_from_outside(name):
    results = []
    for call in (PROGRAMS[name], dyncomp.optimize(PROGRAMS[name], fullgraph=True)):
        w, x = W.clone().requires_grad_(), X.clone().requires_grad_()
        flat, _ = torch.utils._pytree.tree_flatten(call(w, x))
        asking = [t.sin().sum() for t in flat if t.requires_grad]
        if asking:
            sum(asking).backward()
        results.append((flat, len(asking), w.grad, x.grad))
    assert [t.stride() for t in results[1][0]] == [t.stride() for t in results[0][0]]
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ["grad", "per sample", "vjp", "jvp", "jacfwd", "inner step"])
def test_sizes_that_vary(name, dynamic):
    dyncomp.reset()
    fast = dyncomp.optimize(PROGRAMS[name], dynamic=dynamic)
    for rows in (5, 6, 9, 2, 30):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(fast(W, x), PROGRAMS[name](W, x))
    assert dyncomp.stats().graphs <= (2 if dynamic is None else 1)
    assert not dyncomp.stats().fallbacks


def test_state_from_outside():
    check(outside, W, X)
    with torch.no_grad():
        check(lambda x: hessian(lambda y: (y**3).sum())(x[0]), X)
    with torch.inference_mode():
        check(lambda x: grad(lambda y: (y**2).sum())(x), X)


def test_functional_calls():
    check(lambda w, x: functional_call(LINEAR, {"weight": w.T}, (x,)), W, X)
    check(lambda p, x: grad(lambda p: functional_call(LINEAR, p, (x,)).pow(2).sum())(p), STATE, X)
    check(lambda p, x: vmap(grad(lambda p, r: functional_call(LINEAR, p, (r,)).sum()), (None, 0))(p, x), STATE, X)
    check(ensemble, STACKED, X)


def test_infinities_beside_tangents_that_are_not_there():
    check(lambda x: jvp(grad(lambda y: (y.sin() * y * torch.inf).sum()), (x,), (x,)), X)
    check(lambda x: jvp(lambda a, b: torch.dot(a, b.detach() * torch.inf), (x[0], x[1]), (x[0] * 0, x[1])), X)


def test_forward_mode_by_hand():
    check(forward_mode, W, X)


def test_dual_tensors_from_outside_keep_their_tangents():
    def function(x):
        return x.sin() * 2

    fast = dyncomp.optimize(function)
    fast(X)
    for compiled in (fast, dyncomp.optimize(function)):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(X, torch.ones_like(X))
            for given in (dual, dual[0]):
                want, got = (forward_ad.unpack_dual(f(given)).tangent for f in (function, compiled))
                torch.testing.assert_close(got, want)
        torch.testing.assert_close(compiled(X), function(X))
    entry = fast.cache.entries()[-1]
    with forward_ad.dual_level():
        told = entry.guards.explain(function, (forward_ad.make_dual(X, torch.ones_like(X)),))
        assert "dual tensor" in told[2]
    (got,), (want,) = (jvp(f, (X,), (X,))[1:] for f in (fast, function))
    torch.testing.assert_close(got, want)


class Cubed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 7 * ctx.saved_tensors[0]


def hooked(y):
    y.register_hook(lambda g: g * 2)
    return (y * y).sum()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda w, x: grad(lambda x: x @ w)(x), "exception"),
        (lambda w, x: grad(lambda i: i.sum())(torch.arange(3)), "eager-error"),
        (lambda w, x: grad(lambda w: (w**2).sum() if w.sum() > 0 else w.sum())(w), "data-dependent-branch"),
        (lambda w, x: grad(hooked)(w), "autograd"),
        (lambda w, x: grad(lambda y: Cubed.apply(y).sum())(x), "autograd"),
        (lambda w, x: torch.func.functionalize(torch.sin)(x), "function-transform"),
    ],
)
def test_what_breaks_breaks_at_the_call(function, reason):
    dyncomp.reset()
    for _ in range(2):
        want, want_error = outcome(function, (W, X))
        got, got_error = outcome(dyncomp.optimize(function), (W, X))
        assert type(got_error) is type(want_error)
        torch.testing.assert_close(got, want)
    assert set(dyncomp.stats().break_reasons) == {reason}


def test_two_threads():
    import threading

    fast, results = dyncomp.optimize(PROGRAMS["per sample"]), []
    threads = [threading.Thread(target=lambda: results.append(fast(W, X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        torch.testing.assert_close(result, PROGRAMS["per sample"](W, X))
    assert len(results) == 4
