"""Gradients through compiled functions: which outputs, which inputs, which memory they share."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.train.train_checks import check_function, check_module, compare_grads, leaves

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])


def r(*shape, grad=True):
    return torch.randn(*shape, requires_grad=grad)


def two_views(x):
    y = x * 2
    return y[0], y, y.detach()


def view_of_input(x, w):
    return x.view(-1), x[0], x.detach(), (x * w).sum(0)


def with_integers(x):
    values, where = x.max(dim=-1)
    return values, where, x.argmin()


def no_grad_inside(x, w):
    y = x * w
    with torch.no_grad():
        scale = y.abs().max()
    return y / scale, scale


def in_place_on_views(x):
    y = x.clone()
    y[0].mul_(3)
    y[:, 1:] += y[:, :1]
    z = y.t()
    z.add_(1)
    return y.sin() * z.t()


def detached_aliases(x, w):
    y = x * w
    d = y.detach()
    d.mul_(2)
    return d, x + w


def unused_input(x, w):
    return x * 2


def same_twice(x):
    y = x.exp()
    return y, y, x


def constants(x):
    return x * torch.tensor([1.0, 2.0, 3.0]), 5, None


def splits(x):
    a, b = x.split(2, dim=1)
    first, *rest = b.unbind(0)
    return a * 2, first.cos(), rest[-1]


def dropouts(x, w):
    return F.dropout(x, 0.4).sum(0) + F.dropout(w, 0.3) * F.dropout(x[0], 0.5)


FUNCTIONS = [
    (lambda x, w: torch.relu(x @ w), (r(3, 4), r(4, 5))),
    (lambda x, w: ((torch.relu(x @ w)).sin().exp() * 2).sum(), (r(3, 4), r(4, 5))),
    (lambda x, w: F.layer_norm(x, (4,), w) + x.softmax(-1), (r(3, 4), r(4))),
    (lambda x: F.gelu(x).cumsum(0), (r(3, 4),)),
    (lambda x, y: torch.where(x > 0, x, y) * torch.cat([x, y]).mean(), (r(4), r(4))),
    (two_views, (r(3, 4),)),
    (view_of_input, (r(3, 4), r(4))),
    (with_integers, (r(3, 4),)),
    (no_grad_inside, (r(3, 4), r(3, 4))),
    (in_place_on_views, (r(3, 4),)),
    (detached_aliases, (r(3), r(3))),
    (unused_input, (r(3), r(3))),
    (same_twice, (r(3),)),
    (constants, (r(3),)),
    (splits, (r(3, 4),)),
    (dropouts, (r(3, 4), r(4))),
    (lambda x: x[torch.tensor([0, 0, 2])] ** 3, (r(3, 4),)),
    (lambda x, i: F.embedding(i, x, padding_idx=0), (r(6, 3), torch.tensor([[1, 2], [0, 2]]))),
    (lambda x, t: F.cross_entropy(x, t, ignore_index=-1), (r(4, 5), torch.tensor([1, -1, 0, 4]))),
    (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (r(2, 2, 5, 4), r(2, 2, 5, 4), r(2, 2, 5, 4)),
    ),
    (lambda x, w: F.conv2d(x, w, padding=1), (r(2, 3, 5, 5), r(4, 3, 3, 3))),
    (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), (r(2, 3, 4, 4),)),
    (lambda x: x.expand(3, 4) + 0, (r(3, 1),)),
    (lambda x, w: x * w, (r(3, grad=False), r(3))),
    (lambda x, w: (x.bfloat16() @ w.bfloat16()).float(), (r(3, 4), r(4, 2))),
    (lambda x: torch.linalg.norm(x.prod(-1)) + x.var() + x.std(0).sum(), (r(3, 4),)),
]


@BACKENDS
@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_function(number, backend):
    torch.manual_seed(number)
    function, inputs = FUNCTIONS[number]
    check_function(function, *inputs, backend=backend)


@BACKENDS
def test_any_subset_of_the_outputs_may_get_a_gradient(backend):
    def f(x, w):
        return (x * w).sum(), x.exp(), w.sin() * 2

    x, w = r(3), r(3)
    for which in ([0], [1], [2], [0, 1], [1, 2]):
        check_function(f, x, w, backend=backend, which=which, steps=3, fallbacks=("backward-",))


@BACKENDS
def test_a_gradient_that_never_comes_is_none_and_not_zero(backend):
    def f(x, w):
        return x.log(), w * 2

    fast = dyncomp.optimize(f, backend=backend)
    for _ in range(3):
        x, w = torch.zeros(3, requires_grad=True), r(3)
        first, second = fast(x, w)
        second.sum().backward()
        assert x.grad is None and torch.equal(w.grad, torch.full((3,), 2.0))


@BACKENDS
def test_incoming_gradients_of_any_layout(backend):
    fast = dyncomp.optimize(lambda x: x * x, backend=backend)
    for gradient in (torch.ones(()).expand(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]):
        x = r(3, 4)
        fast(x).backward(gradient)
        torch.testing.assert_close(x.grad, 2 * x.detach() * gradient)


@BACKENDS
def test_second_backward_raises_as_in_eager(backend):
    def f(x):
        return (x * x).exp()

    messages = []
    for function in (f, dyncomp.optimize(f, backend=backend)):
        y = function(r(3))
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        with pytest.raises(RuntimeError) as error:
            y.sum().backward()
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@BACKENDS
def test_retain_graph_accumulates(backend):
    fast = dyncomp.optimize(lambda x: (x * x).sum(), backend=backend)
    x = torch.ones(3, requires_grad=True)
    y = fast(x)
    for count in range(1, 4):
        y.backward(retain_graph=True)
        torch.testing.assert_close(x.grad, torch.full((3,), 2.0 * count))


@BACKENDS
def test_writes_between_forward_and_backward_raise_where_eager_does(backend):
    def f(x, w):
        return x * w, torch.relu(x)

    for write_first in (True, False):
        for function in (f, dyncomp.optimize(f, backend=backend)):
            x, w = r(3), r(3)
            product, _ = function(x, w)
            with torch.no_grad():
                (x if write_first else w).add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                product.sum().backward()


@BACKENDS
def test_writes_to_what_eager_does_not_keep_are_harmless(backend):
    def f(x):
        y = torch.relu(x * 2)
        return y + 1

    for function in (f, dyncomp.optimize(f, backend=backend)):
        x = torch.ones(3, requires_grad=True)
        y = function(x)
        with torch.no_grad():
            x.zero_()
            y.zero_()
        y.sum().backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


@BACKENDS
def test_double_backward(backend):
    def f(x, w):
        return (x**3 * w).sum() + x.sin().sum()

    fast = dyncomp.optimize(f, backend=backend)
    results = []
    for function in (f, fast, fast):
        x, w = leaves((torch.linspace(0.1, 1, 4).requires_grad_(), torch.linspace(1, 2, 4).requires_grad_()))
        (first,) = torch.autograd.grad(function(x, w), x, create_graph=True)
        first.pow(2).sum().backward()
        results.append([first.detach(), x.grad, w.grad])
    compare_grads(results[1], results[0])
    compare_grads(results[2], results[0])


@BACKENDS
def test_double_backward_sees_the_same_dropout_mask(backend):
    def f(x):
        return (F.dropout(x, 0.5) ** 3).sum()

    results = []
    for function in (f, dyncomp.optimize(f, backend=backend)):
        torch.manual_seed(3)
        x = torch.linspace(1, 2, 8).requires_grad_()
        y = function(x)
        torch.rand(3)
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        first.sum().backward()
        results.append([first.detach(), x.grad, torch.get_rng_state()])
    compare_grads(results[1], results[0])


@BACKENDS
def test_hooks_run(backend):
    fast = dyncomp.optimize(lambda x, w: (x * w).tanh(), backend=backend)
    x, w = r(3), r(3)
    seen = []
    y = fast(x, w)
    y.register_hook(lambda g: seen.append("output"))
    x.register_hook(lambda g: g * 2)
    w.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    y.grad_fn.register_hook(lambda *a: seen.append("node"))
    y.sum().backward()
    assert sorted(seen) == ["accumulated", "node", "output"]
    plain = (x * w).tanh()
    (want,) = torch.autograd.grad(plain.sum(), x)
    torch.testing.assert_close(x.grad, want)


@BACKENDS
def test_saved_tensor_hooks_see_what_is_kept(backend):
    fast = dyncomp.optimize(lambda x, w: (x @ w).tanh(), backend=backend)
    x, w = r(3, 4), r(4, 2)
    packed = []

    def pack(t):
        packed.append(t.shape)
        return t * 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = fast(x, w)
    y.sum().backward()
    assert packed
    (want,) = torch.autograd.grad((x @ w).tanh().sum(), w)
    torch.testing.assert_close(w.grad, want)


@BACKENDS
def test_requires_grad_may_change_between_calls(backend):
    def f(x, w):
        return (x * w).sum()

    fast = dyncomp.optimize(f, backend=backend)
    for wx, ww in ((True, True), (False, True), (True, False), (False, False)):
        x, w = r(3, grad=wx), r(3, grad=ww)
        y = fast(x, w)
        assert y.requires_grad == (wx or ww)
        if y.requires_grad:
            y.backward()
        assert (x.grad is not None) == wx and (w.grad is not None) == ww
    with torch.no_grad():
        assert not fast(r(3), r(3)).requires_grad


@BACKENDS
def test_outputs_may_be_written_in_place_afterwards(backend):
    def f(x):
        y = x * 2
        return y.view(-1), x * 3

    results = []
    for function in (f, dyncomp.optimize(f, backend=backend)):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        first, second = function(x)
        first.mul_(4)
        second[0].add_(1)
        (first.sum() + (second * second).sum()).backward()
        results.append([first.detach(), second.detach(), x.grad])
    compare_grads(results[1], results[0])


@BACKENDS
def test_mutated_inputs(backend):
    def buffer(x, b):
        with torch.no_grad():
            b.mul_(0.9).add_(x.mean())
        return x * b

    check_function(buffer, r(3), torch.zeros(3), backend=backend)

    def grad_flows(x, w):
        y = x * 1
        y.mul_(w)
        return y

    check_function(grad_flows, r(3), r(3), backend=backend)


@BACKENDS
def test_in_place_on_an_input_with_a_gradient_is_as_in_eager(backend):
    def f(v, w):
        v.mul_(w)
        return v.sum()

    results = []
    for function in (f, dyncomp.optimize(f, backend=backend)):
        x, w = torch.arange(4.0).requires_grad_(), torch.full((2,), 3.0, requires_grad=True)
        base = x * 1
        function(base[::2], w)
        base.pow(2).sum().backward()
        results.append([base.detach(), x.grad, w.grad])
    compare_grads(results[1], results[0])
    for function in (f, dyncomp.optimize(f, backend=backend)):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            function(torch.ones(2, requires_grad=True), torch.ones(2))


@BACKENDS
def test_anomaly_mode(backend):
    fast = dyncomp.optimize(lambda x: x.sqrt(), backend=backend)
    with torch.autograd.set_detect_anomaly(True, check_nan=True), pytest.warns(UserWarning):
        with pytest.raises(RuntimeError, match="nan"):
            x = torch.tensor([-1.0], requires_grad=True)
            fast(x).backward()


MODULES = [
    (lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.randn(2, 3, 8),)),
    (
        lambda: torch.nn.TransformerDecoderLayer(8, 2, 16, activation="gelu"),
        (torch.randn(2, 3, 8), torch.randn(4, 3, 8)),
    ),
    (
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        ),
        (torch.randn(2, 3, 8, 8),),
    ),
    (lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval(), (torch.randn(2, 3, 8, 8),)),
    (
        lambda: torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2)
        ),
        (r(5, 4),),
    ),
    (
        lambda: torch.nn.Sequential(
            torch.nn.Conv1d(2, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.SiLU(), torch.nn.AdaptiveAvgPool1d(2)
        ),
        (r(2, 2, 9),),
    ),
]


@BACKENDS
@pytest.mark.parametrize("number", range(len(MODULES)))
def test_module(number, backend):
    torch.manual_seed(number)
    make, inputs = MODULES[number]
    check_module(make(), *inputs, backend=backend, steps=3)
