"""What a call keeps alive for its backwards: no input that eager would let go of; and backwards that are differentiated, or that run
after others, when inputs are gone or were written since."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp._frame import _exec
from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
SECOND = ("double-backward-eager",)
_WEIGHT = torch.nn.Parameter(torch.tensor([[0.5, -1.0, 0.25], [1.5, 0.75, -0.5], [0.1, 0.2, -0.3]]))


def breaks(x, d):
    h = F.linear(x, _WEIGHT).tanh()
    print(end="")
    return (h * 2).exp() + d


def masked(x, d):
    return (x[x > d] * 2).exp() * 3


def in_place(x, d):
    y = x * 1.0
    y.add_(d).relu_()
    return y


FUNCTIONS = {
    "add": lambda x, d: x + 1,
    "add both": lambda x, d: x + d,
    "mul": lambda x, d: x * d,
    "exp of a multiple": lambda x, d: (x * 2).exp(),
    "tanh of a sum": lambda x, d: (x + d).tanh() * 2,
    "sin": lambda x, d: x.sin(),
    "relu": lambda x, d: x.relu(),
    "gelu": lambda x, d: F.gelu(x + d),
    "softmax": lambda x, d: (x + d).softmax(-1),
    "linear": lambda x, d: F.linear(x, _WEIGHT),
    "residual": lambda x, d: x + F.linear(F.gelu(F.linear(x, _WEIGHT)), _WEIGHT),
    "layer norm": lambda x, d: F.layer_norm(x + d, (3,)),
    "mask": lambda x, d: x.masked_fill(d > 0, 0.0),
    "dropout": lambda x, d: F.dropout((x * 2).exp(), 0.4),
    "max": lambda x, d: x.max(1, keepdim=True)[0] * d.exp(),
    "views": lambda x, d: x.t().reshape(-1)[1:] * 3,
    "mean": lambda x, d: x - x.mean(0),
    "index": lambda x, d: x[d[0].abs().long() % 3],
    "in place": in_place,
    "two results": lambda x, d: ((x + d).exp(), (x * d).sum()),
    "break": breaks,
    "powers": lambda x, d: (x * 2).pow(3) + (x - 1).square(),
    "logsumexp": lambda x, d: torch.logsumexp(x + d, 1),
}


def r(*shape, grad=True):
    return torch.randn(*shape, requires_grad=grad)


def first(result):
    return result if isinstance(result, torch.Tensor) else result[0]


def alive(**tensors):
    """A function that tells the names of those tensors that are still there."""
    kept = {name: weakref.ref(tensor) for name, tensor in tensors.items()}
    return lambda: [name for name, one in kept.items() if one() is not None]


def life(f):
    """The names of tensors that are alive at several points of a program."""
    seen = []
    for how in ("plain", "retained", "parts", "never"):
        leaf, d = r(3, 3), torch.randn(3, 3)
        x = leaf + 0
        now = alive(x=x, d=d)
        leaf.register_hook(lambda g, now=now: seen.append(now()))
        y = f(x, d)
        if how == "parts":
            torch.autograd.grad(first(y).sum(), x)
            del x, d
            seen.append(now())
            continue
        del x, d
        seen.append(now())
        if how == "never":
            del y
        else:
            total = first(y).sum()
            del y
            seen.append(now())
            if how == "retained":
                total.backward(retain_graph=True)
                seen.append(now())
            total.backward()
        seen.append(now())
    return seen


@BACKENDS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_inputs_live_no_longer_than_in_eager(name, backend):
    want, fast = life(FUNCTIONS[name]), dyncomp.optimize(FUNCTIONS[name], backend=backend)
    life(fast)  # while it compiles, objects of the compiler may hold on to tensors
    gc.collect()
    for _ in range(2):
        for place, (got, wanted) in enumerate(zip(life(fast), want, strict=True)):
            assert set(got) <= set(wanted), f"at point {place}"


@BACKENDS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_differentiated_backward_without_the_inputs(name, backend):
    """The values that eager keeps are enough for it, so they are for ours."""

    def story(compiled):
        fast, told = compiled(FUNCTIONS[name]), []
        for _ in range(2):
            leaf, d = r(3, 3), torch.randn(3, 3)
            y = first(fast(leaf + 0, d))
            del d
            (slope,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
            told.append(slope.detach())
            if slope.requires_grad:
                slope.square().sum().backward()
            told.append(leaf.grad)
        return told

    same_story(story, backend, fallbacks=SECOND, rtol=1e-4)


@BACKENDS
def test_chain_of_calls_each_optimised(backend):
    def story(compiled):
        blocks = [torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()), torch.nn.Softplus(), torch.nn.LayerNorm(3)]
        fast, told = [compiled(block.double()) for block in blocks], []
        for _ in range(2):
            x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
            h = x
            for block in fast:
                h = block(h * 2)
            (slope,) = torch.autograd.grad(h.square().sum(), x, create_graph=True)
            slope.norm().backward()
            told += [x.grad, [p.grad.clone() for block in blocks for p in block.parameters()]]
        return told

    same_story(story, backend, fallbacks=SECOND, rtol=1e-4)


@BACKENDS
def test_sizes_that_vary(backend):
    def story(compiled):
        fast, told = compiled(lambda x, d: (x * 2 + d).exp() * x.shape[0]), []
        for n in (2, 3, 5, 2, 7):
            leaf = r(n, 3)
            y = fast(leaf + 0, torch.randn(3))
            (slope,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
            slope.square().sum().backward()
            told += [slope.detach(), leaf.grad]
        return told

    same_story(story, backend, fallbacks=SECOND)


@BACKENDS
def test_inputs_written_since(backend):
    """What eager does not keep may be written; what it keeps may not."""

    def story(compiled):
        told = []
        for f in (lambda x, d: (x * 2).exp() + d, lambda x, d: (x + d).tanh(), lambda x, d: x.sin() + d):
            fast = compiled(f)
            for which in (0, 1, 1):
                leaf = r(3, 3)
                inputs = leaf + 0, torch.randn(3, 3)
                y = fast(*inputs)
                with torch.no_grad():
                    inputs[which].add_(1)
                try:
                    (slope,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
                    slope.square().sum().backward()
                    told += [slope.detach(), leaf.grad]
                except RuntimeError as error:
                    told.append("modified by an inplace operation" in str(error))
        return told

    same_story(story, backend, fallbacks=SECOND)


@BACKENDS
def test_written_input_that_the_result_depends_on(backend):
    def f(x, buffer):
        buffer.mul_(0.5).add_(x.detach())
        return (x * 2 + buffer).exp()

    def story(compiled):
        fast, told, buffer = compiled(f), [], torch.ones(3)
        for _ in range(3):
            x = r(3)
            (slope,) = torch.autograd.grad(fast(x, buffer).sum(), x, create_graph=True)
            slope.square().sum().backward()
            told += [slope.detach(), x.grad, buffer.clone()]
        return told

    same_story(story, backend, fallbacks=SECOND)


@BACKENDS
def test_differentiated_backward_after_another(backend):
    """What needs no kept values can be asked for again; what needs them raises, also in the graph that the first one leads to."""

    def story(compiled):
        one = compiled(lambda a, w, b: (a * w).sum() + b.sum())
        two = compiled(lambda a, w, b: ((a * w).sum(), (b + a).sum()))
        told = []

        def tell(make):
            try:
                told.append([g.detach() for g in make()])
            except RuntimeError as error:
                told.append(str(error))

        for _ in range(2):
            a, w, b = r(3), r(3), r(3)
            loss = one(a, w, b)
            loss.backward()
            for wanted in (b, a, w, (b, a)):
                tell(lambda: torch.autograd.grad(loss, wanted, create_graph=True))  # noqa: B023
            tell(lambda: torch.autograd.grad(loss, b))  # noqa: B023
            tell(lambda: torch.autograd.grad(loss, a))  # noqa: B023
            first, second = two(a, w, b)
            first.backward()
            tell(lambda: torch.autograd.grad(second, (a, b), create_graph=True))  # noqa: B023
            tell(lambda: torch.autograd.grad(first, w, create_graph=True))  # noqa: B023
            told += [a.grad.clone(), w.grad.clone(), b.grad.clone()]
        return told

    same_story(story, backend, fallbacks=(*SECOND, "backward-eager"))


@BACKENDS
def test_functions_that_look_at_values_hold_their_inputs(backend):
    def story(compiled):
        fast, told = compiled(lambda x: torch.linalg.cholesky(x @ x.t() + torch.eye(3)).sum()), []
        for _ in range(2):
            leaf = r(3, 3)
            (slope,) = torch.autograd.grad(fast(leaf + 0), leaf, create_graph=True)
            slope.square().sum().backward()
            told += [slope.detach(), leaf.grad]
        return told

    same_story(story, backend, fallbacks=SECOND, rtol=1e-3, atol=1e-3)


@BACKENDS
def test_input_written_with_its_history(backend):
    def f(x, w):
        x.mul_(w)
        return x.sin(), x * 2

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            leaf, w = r(3), r(3)
            x = leaf + 0
            first, second = fast(x, w)
            (slope,) = torch.autograd.grad(first.sum() + second.sum() + x.exp().sum(), leaf, create_graph=True)
            slope.square().sum().backward()
            told += [slope.detach(), leaf.grad, w.grad, x.detach()]
        return told

    same_story(story, backend, fallbacks=SECOND)


@BACKENDS
def test_gradients_that_are_handed_on_keep_their_strides(backend):
    def story(compiled):
        one, two, told = compiled(lambda x: x + 1), compiled(lambda x, y: (x.clone() - y, y + 2)), []
        for _ in range(2):
            x, y = r(3, 4), r(3, 4)
            told += torch.autograd.grad(one(x).sum(), x)  # expanded
            a, b = two(x, y)
            told += torch.autograd.grad(a.sum(), (x, y))
            a, b = two(x, y)
            told += torch.autograd.grad(b.t().sum(1).sum(), y)
        return told

    same_story(story, backend)


@BACKENDS
def test_errors_name_what_was_written(backend):
    def story(compiled):
        told = []
        for f in (lambda x: x.exp(), lambda x: (x * 2).softmax(-1), lambda x: (x.tanh(), x * 2)):
            y = first(compiled(f)(r(3)))
            with torch.no_grad():
                y.add_(1)
            try:
                y.sum().backward()
            except RuntimeError as error:
                told.append(str(error))
        return told

    same_story(story, backend)


@BACKENDS
def test_sizes_that_depend_on_values(backend):
    def story(compiled):
        options = {"capture_dynamic_output_shape_ops": True}
        fast = dyncomp.optimize(masked, backend=backend, options=options) if compiled(masked) is not masked else masked
        told = []
        for _ in range(3):
            leaf = r(3, 3)
            y = fast(leaf + 0, torch.randn(3, 3))
            (slope,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
            slope.square().sum().backward()
            told += [slope.detach(), leaf.grad]
        return told

    same_story(story, backend, fallbacks=(*SECOND, "training-graph-eager", "aot: "))


@BACKENDS
def test_random_numbers_do_not_move(backend):
    def story(compiled):
        fast, told = compiled(lambda x: F.dropout((x * 2).exp(), 0.5)), []
        for _ in range(2):
            leaf = r(8)
            y = fast(leaf + 0)
            (slope,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
            told += [slope.detach(), torch.rand(2), *torch.autograd.grad(slope.sum(), leaf)]
        return told

    same_story(story, backend, fallbacks=SECOND)


def test_memory_of_a_chain():
    """As many bytes as in eager, between calls and while the backward runs."""
    n = 512
    weight = torch.randn(n, n, requires_grad=True)
    layers = [lambda x: (x * 2).relu() + 1, lambda x: F.linear(x, weight).tanh(), lambda x: (x + 1).sigmoid() * 0.5]

    def run(functions):
        seen, before = [], _exec.pool_stats()["live_bytes"]

        def tell(*_):
            seen.append((_exec.pool_stats()["live_bytes"] - before) / (4 * n * n))

        leaf = torch.randn(n, n, requires_grad=True)
        h = leaf + 0
        for function in functions:
            h = function(h)
            h.register_hook(tell)
            tell()
        total = h.sum()
        del h
        tell()
        total.backward()
        tell()
        weight.grad = None
        return seen

    fast = [dyncomp.optimize(layer) for layer in layers]
    for _ in range(2):
        run(layers), run(fast)  # the pool is in use from then on, by both
    for got, want in zip(run(fast), run(layers), strict=True):
        assert got <= want + 0.1
