"""Custom autograd functions whose backward is captured with them: one graph, and what eager's own gives."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.support import assert_same

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
pytestmark = pytest.mark.usefixtures("fresh")


def r(*shape):
    torch.manual_seed(sum(shape))
    return torch.randn(*shape, requires_grad=True)


class Scaled(torch.autograd.Function):
    """Keeps an input, a result, something in between and a number; its gradient is not autograd's own."""

    @staticmethod
    def forward(ctx, x, w, power, name="scaled"):
        middle = x @ w
        y = middle.tanh()
        ctx.save_for_backward(x, y, middle, None)
        ctx.power, ctx.shape, ctx.kept = power, x.shape, (w, 2)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y, middle, nothing = ctx.saved_tensors
        assert nothing is None
        w, times = ctx.kept
        g = g * (1 - y * y) * ctx.power * times * middle
        return (g @ w.t()).view(ctx.shape) * 10, x.t() @ g if ctx.needs_input_grad[1] else None, None, None


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.factor, None


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, label):
        values, where = x.max(-1)
        ctx.mark_non_differentiable(where)
        ctx.save_for_backward(x)
        return values, where, x.exp(), label

    @staticmethod
    def backward(ctx, g, g_where, g_exp, g_label):
        (x,) = ctx.saved_tensors
        assert g_label is None
        return g[:, None] * 5 + g_exp * x.exp() * 2 + g_where.sum(), None


class Apart(torch.autograd.Function):
    @staticmethod
    def forward(x, k):
        return x * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k * ctx.saved_tensors[0], None


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * 7


class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Identity.apply(x * 2)

    @staticmethod
    def backward(ctx, g):
        return ctx.saved_tensors[0] * g


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bits):
        return (x * 2**bits).round() / 2**bits

    @staticmethod
    def backward(ctx, g):
        return g, None


SCALE = torch.tensor([2.0, 3.0, 4.0])


class ReadsGlobal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * SCALE

    @staticmethod
    def backward(ctx, g):
        return g * SCALE * SCALE


PROGRAMS = {
    "saves": lambda x, w: Scaled.apply(x.sin(), w, 3) + w.sum(),
    "frozen": lambda x, w: Scaled.apply(x, w.detach(), 3),
    "view": lambda x, w: Reversal.apply(x, 0.5).exp() @ w,
    "input": lambda x, w: (Identity.apply(x) * 2 + x) @ w,
    "several": lambda x, w: Several.apply(x, "label")[::2],
    "only-the-second": lambda x, w: Several.apply(x, "label")[2] * w,
    "setup-context": lambda x, w: Apart.apply(x @ w, 3).cos(),
    "once": lambda x, w: Once.apply(x) * w,
    "nested": lambda x, w: Nested.apply(x).sum() * w,
    "chained": lambda x, w: Scaled.apply(Once.apply(Reversal.apply(x, 2.0)), Once.apply(w), 2),
    "twice-the-same": lambda x, w: Scaled.apply(x, x, 2),
    "quantised": lambda x, w: F.linear(StraightThrough.apply(x, 4), StraightThrough.apply(w, 4)),
    "global-tensor": lambda x, w: ReadsGlobal.apply(x @ w),
    "in-place-after": lambda x, w: StraightThrough.apply(x, 4).mul_(2).add_(w),
    "no-grad-inside": lambda x, w: Scaled.apply(x, w, 1) + torch.no_grad()(lambda: Once.apply(x))(),
}


def play(function, inputs, times=2, finish=lambda loss, inputs: loss.backward()):
    told = []
    for _ in range(times):
        given = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
        results = function(*given)
        flat = results if isinstance(results, tuple) else (results,)
        finish(sum((y * torch.arange(1.0, y.numel() + 1).view(y.shape).cos()).sum() for y in flat), given)
        told.append(([y.detach() for y in flat], [t.grad for t in given]))
    return told


@BACKENDS
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_and_eagers_gradients(name, backend):
    inputs = [r(3, 3), r(3, 3)]
    want = play(PROGRAMS[name], inputs)
    assert_same(play(dyncomp.optimize(PROGRAMS[name], backend=backend, fullgraph=True), inputs), want)
    assert dyncomp.stats().graphs == 1


class Cast(torch.autograd.Function):
    """Computes in the type that autocast chose, backward too."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g * 2


class CastToFloat(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g * 2


@BACKENDS
@pytest.mark.parametrize("function", [Cast, CastToFloat])
@pytest.mark.parametrize("outside", [False, True])
def test_under_autocast(function, outside, backend):
    def inner(x, w):
        return function.apply(torch.nn.functional.linear(x, w), w).float() * 2

    def f(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return inner(x, w)

    def story(compiled):
        if not outside:
            return play(compiled(f), [r(3, 3), r(3, 3)])
        fast = compiled(inner)

        def call(x, w):
            with torch.autocast("cpu", torch.bfloat16):
                return fast(x, w)

        return play(call, [r(3, 3), r(3, 3)])

    want = story(lambda f: f)
    assert_same(story(lambda f: dyncomp.optimize(f, backend=backend, fullgraph=True)), want, rtol=0.02, atol=0.02)
    assert dyncomp.stats().graphs == 1


@pytest.mark.parametrize("dynamic", [None, True])
def test_many_sizes_need_no_more_graphs(dynamic):
    def f(x, w):
        return Scaled.apply(x, w, 3).exp(), Several.apply(x, None)[0]

    fast = dyncomp.optimize(f, dynamic=dynamic, fullgraph=True)
    for n in (4, 7, 2, 9):
        inputs = [r(n, 3), r(3, 5)]
        assert_same(play(fast, inputs), play(f, inputs))
    assert dyncomp.stats().graphs == (1 if dynamic else 2)


@BACKENDS
def test_second_derivatives_go_through_the_backward(backend):
    def penalty(loss, inputs):
        (grad,) = torch.autograd.grad(loss, inputs[:1], create_graph=True)
        (loss + grad.pow(2).sum()).backward()

    for name in ("saves", "view", "setup-context", "several"):
        inputs = [r(3, 3), r(3, 3)]
        want = play(PROGRAMS[name], inputs, finish=penalty)
        assert_same(play(dyncomp.optimize(PROGRAMS[name], backend=backend), inputs, finish=penalty), want)


@BACKENDS
def test_what_raises_in_eager_raises(backend):
    def twice_differentiated(loss, inputs):
        (grad,) = torch.autograd.grad(loss, inputs[:1], create_graph=True)
        grad.sum().backward()

    def saved_and_written(x, w):
        v = x * 1
        y = Scaled.apply(v, w, 3)
        v.mul_(2)
        return y

    def written_view(x, w):
        return Reversal.apply(x * 1, 2.0).mul_(2) + w

    cases = [(PROGRAMS["once"], twice_differentiated), (saved_and_written, None)]
    if backend == "eager":  # elsewhere a view that comes out of a graph may be written to in a resumed frame
        cases.append((written_view, None))
    for function, finish in cases:
        messages = []
        for call in (function, dyncomp.optimize(function, backend=backend)):
            with pytest.raises(RuntimeError) as caught:
                play(call, [r(3, 3), r(3, 3)], **({"finish": finish} if finish else {}))
            messages.append(str(caught.value)[:40])
        assert messages[0] == messages[1]


def test_changed_code_and_globals_are_seen():
    class Local(torch.autograd.Function):
        factor = 2

        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g * Local.factor

    def f(x, w):
        return Local.apply(x) + w

    fast = dyncomp.optimize(f)
    for factor in (2, 5):
        Local.factor = factor
        assert_same(play(fast, [r(2, 3), r(2, 3)]), play(f, [r(2, 3), r(2, 3)]))
    Local.backward = staticmethod(lambda ctx, g: g * 100)
    assert_same(play(fast, [r(2, 3), r(2, 3)]), play(f, [r(2, 3), r(2, 3)]))


LOG = []


def custom(backward, forward=lambda ctx, x: x * 1):
    return type("Custom", (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def fills(ctx, x):
    ctx.count = 0
    ctx.box = []
    return x * 1


def logs(ctx, g):
    LOG.append(1)
    return g * 2


def counts(ctx, g):
    ctx.count += 1
    return g * ctx.count


def boxes(ctx, g):
    ctx.box.append(g)
    return g * len(ctx.box)


def keeps_count(ctx, g):
    ctx.box.append(1)
    return g * len(ctx.box)


def sets_grad_mode(ctx, g):
    with torch.no_grad():
        sign = g.sign()
    return g * sign


def raises(ctx, g):
    raise ValueError("no gradient")


BREAKS = {
    "effect": custom(logs),
    "ctx-written": custom(counts, fills),
    "object-on-ctx": custom(boxes, fills),
    "list-of-constants-on-ctx": custom(keeps_count, fills),
    "function-inside": custom(lambda ctx, g: Identity.apply(g) * 2),
    "random": custom(lambda ctx, g: g * torch.rand(3)),
    "layout": custom(lambda ctx, g: g * 2 if g.is_contiguous() else g * 3),
    "data": custom(lambda ctx, g: g * 2 if g.sum() > 0 else g * 3),
    "grad-mode-read": custom(lambda ctx, g: g * (3 if torch.is_grad_enabled() else 2)),
    "grad-mode-set": custom(sets_grad_mode),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_cannot_be_told_beforehand_breaks(name):
    def f(x):
        return BREAKS[name].apply(x * 2) + x

    stories = []
    for call in (f, dyncomp.optimize(f)):
        LOG.clear()
        torch.manual_seed(0)
        stories.append((play(call, [r(3)]), list(LOG)))
    assert_same(stories[1], stories[0])
    assert "autograd" in dyncomp.stats().break_reasons or "data-dependent-branch" in dyncomp.stats().break_reasons


def test_a_backward_that_raises_does_so_when_it_runs():
    function = custom(raises)
    fast = dyncomp.optimize(lambda x: function.apply(x) + 1)
    x = r(3)
    y = fast(x)
    with pytest.raises(ValueError, match="no gradient"):
        y.sum().backward()
    assert dyncomp.stats().break_reasons == {"autograd": 1}


def test_a_training_step_of_a_module_with_custom_functions():
    class Gelu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0]
            t = torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
            return (0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + t)) * g

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

        def forward(self, x):
            return self.b(F.dropout(Gelu.apply(self.a(x)), 0.3, self.training))

    stories = []
    for optimised in (False, True):
        torch.manual_seed(0)
        net = Net()
        call = dyncomp.optimize(net, fullgraph=True) if optimised else net
        optimiser = torch.optim.SGD(net.parameters(), 0.1)
        story = []
        for _ in range(4):
            loss = call(torch.randn(5, 4)).pow(2).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            story += [loss.detach(), *[p.detach().clone() for p in net.parameters()]]
        stories.append(story)
    assert_same(stories[1], stories[0])
    assert dyncomp.stats().graphs == 1
