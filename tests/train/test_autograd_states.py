"""Everything around a backward: hooks, accumulation, modes, several backwards, frozen parameters, anomaly mode."""

import pytest
import torch
import torch.nn.functional as F

from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])


def r(*shape, grad=True):
    return torch.randn(*shape, requires_grad=grad)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def grads(module):
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


@BACKENDS
def test_gradients_accumulate(backend):
    def story(compiled):
        net = Net()
        fast, told = compiled(net), []
        for step in range(4):
            fast(r(5, 4, grad=False)).sum().backward()
            told.append(grads(net))
            if step == 2:
                net.zero_grad()
        return told

    same_story(story, backend)


@BACKENDS
def test_frozen_parameters_switched_between_steps(backend):
    def story(compiled):
        net = Net()
        fast, told = compiled(net), []
        for frozen in (False, True, False, True, False):
            net.first.requires_grad_(not frozen)
            net.zero_grad()
            fast(r(5, 4, grad=False)).sum().backward()
            told.append(grads(net))
        net.requires_grad_(False)
        told.append(fast(r(5, 4, grad=False)).requires_grad)
        x = r(5, 4)
        fast(x).sum().backward()
        told.append(x.grad)
        return told

    same_story(story, backend)


@BACKENDS
def test_modes_between_steps(backend):
    def story(compiled):
        net = Net()
        fast, told = compiled(net), []
        for mode in (None, torch.no_grad, None, torch.inference_mode, None, torch.no_grad):
            x = r(5, 4, grad=False)
            if mode is None:
                fast(x).sum().backward()
            else:
                with mode():
                    y = fast(x)
                told.append((y.requires_grad, y.is_inference(), y.clone()))
            told.append(grads(net))
        return told

    same_story(story, backend)


@BACKENDS
def test_views_that_require_grad_through_their_base(backend):
    """The view says so itself only when asked through its class, whether it was made before or inside a no_grad block."""

    def story(compiled):
        fast, told = compiled(lambda x: torch.sin(x) * 2), []
        scale, base = r(6), torch.ones(6)
        view = base[1:5]
        told.append(fast(view).requires_grad)
        base.mul_(scale)
        result = fast(view)
        result.sum().backward()
        told += [result, scale.grad]
        weight = torch.nn.Parameter(torch.ones(4, 3))

        def broken(first, rows):
            rows = rows.long()
            part = weight[first.item() :]
            return (part.t() @ part + rows[0]).exp()

        with torch.no_grad():
            part = weight.view(3, 4)
            told += [part.requires_grad, fast(part), compiled(broken)(torch.tensor(1), torch.ones(3))]
        return told

    same_story(story, backend)


@BACKENDS
def test_inference_tensors_as_inputs(backend):
    def story(compiled):
        net = Net()
        fast, told = compiled(net), []
        with torch.inference_mode():
            x = torch.randn(5, 4)
        for _ in range(2):
            try:
                fast(x).sum().backward()
            except RuntimeError as error:
                told.append(str(error))
            told.append(grads(net))
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: "))


@BACKENDS
def test_grad_mode_set_inside(backend):
    def f(x, w):
        with torch.set_grad_enabled(False):
            scale = (x * w).sum()
        torch.set_grad_enabled(False)
        other = w * 3
        torch.set_grad_enabled(True)
        return x * scale + other, scale, other

    def only_inside(x, w):
        with torch.enable_grad():
            y = x * w
        return y, x + w

    def story(compiled):
        told = []
        fast, inside = compiled(f), compiled(only_inside)
        for _ in range(2):
            x, w = r(3), r(3)
            results = fast(x, w)
            told.append([t.requires_grad for t in results])
            results[0].sum().backward()
            told += [x.grad, w.grad]
            x, w = r(3), r(3)
            with torch.no_grad():
                y, z = inside(x, w)
            told.append((y.requires_grad, z.requires_grad))
            y.sum().backward()
            told += [x.grad, w.grad, torch.is_grad_enabled()]
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: gradients that are switched on"))


@BACKENDS
def test_hooks_on_tensors_and_modules(backend):
    def story(compiled):
        net, told = Net(), []
        fast = compiled(net)
        fast(r(2, 4, grad=False)).sum().backward()
        net.zero_grad()
        handles = [
            net.first.register_full_backward_hook(lambda m, gi, go: told.append(("full", go[0].clone())) or None),
            net.second.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,)),
            net.first.weight.register_hook(lambda g: g * 3),
            net.second.bias.register_post_accumulate_grad_hook(lambda p: told.append(("post", p.grad.clone()))),
            net.register_forward_hook(lambda m, args, out: out * 2),
        ]
        for _ in range(2):
            x = r(2, 4)
            y = fast(x)
            y.register_hook(lambda g: told.append(("tensor", g.clone())))
            y.sin().sum().backward()
            told.append((x.grad, grads(net)))
        for handle in handles:
            handle.remove()
        net.zero_grad()
        fast(r(2, 4, grad=False)).sum().backward()
        told.append(grads(net))
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: "))


@BACKENDS
def test_optimiser_in_the_post_accumulate_hook(backend):
    """Parameters change while the backward still runs: what it saved must not."""

    def story(compiled):
        net, told = Net(), []
        fast = compiled(net)

        def update(p):
            with torch.no_grad():
                p.data.sub_(0.1 * p.grad)
            p.grad = None

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(update)
        for _ in range(3):
            fast(r(2, 4, grad=False)).sum().backward()
            told.append([p.detach().clone() for p in net.parameters()])
        return told

    same_story(story, backend)


@BACKENDS
def test_several_backwards(backend):
    def f(x, w):
        return (x * w).sum(), (x.exp() * w).sum(), x * 2

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(3):
            x, w = r(3), r(3)
            a, b, c = fast(x, w)
            a.backward(retain_graph=True)
            told.append((x.grad.clone(), w.grad.clone()))
            b.backward(retain_graph=True)
            told.append((x.grad.clone(), w.grad.clone()))
            (a + b).backward(retain_graph=True)
            told.append((x.grad.clone(), w.grad.clone()))
            told.append(torch.autograd.grad(c, x, torch.ones(3), retain_graph=True))
            told.append(torch.autograd.grad((a, c), (x, w), (torch.tensor(2.0), torch.ones(3)), retain_graph=True))
            told.append(torch.autograd.grad(b, w))
        return told

    same_story(story, backend, fallbacks=("backward-",))


@BACKENDS
def test_two_forwards_then_two_backwards(backend):
    def story(compiled):
        net, told = Net(), []
        fast = compiled(net)
        for _ in range(2):
            first, second = fast(r(2, 4, grad=False)), fast(r(2, 4, grad=False))
            second.sum().backward()
            told.append(grads(net))
            first.sin().sum().backward()
            told.append(grads(net))
            (fast(fast(r(3, 4, grad=False)).repeat(1, 2)[:, :4])).sum().backward()
            told.append(grads(net))
        return told

    same_story(story, backend)


@BACKENDS
def test_a_saved_tensor_that_changed(backend):
    """Parameters, inputs and outputs changed before the backward: an error where eager raises one, else the same gradient."""

    def f(x, w):
        return torch.sigmoid(x) * w, x.exp(), x + w

    def story(compiled):
        fast, told = compiled(f), []
        for which in ("x", "w", "first", "second", "third", "none"):
            x, w = r(3), r(3)
            first, second, third = fast(x, w)
            with torch.no_grad():
                for name, tensor in (("x", x), ("w", w), ("first", first), ("second", second), ("third", third)):
                    if name == which:
                        tensor.detach().add_(1)
            for result in (first, second, third):
                try:
                    result.sum().backward(retain_graph=True)
                except RuntimeError as error:
                    told.append((which, str(error).partition(":")[0]))
            told.append(None if x.grad is None else x.grad.shape)
        return told

    # The graph has one node for all results, so an error that eager raises for one of them is compared for that one alone.
    def one(number):
        def told_of_one(compiled):
            fast, told = compiled(lambda x, w: f(x, w)[number]), []
            for which in ("x", "w", "result", "none"):
                x, w = r(3), r(3)
                result = fast(x, w)
                with torch.no_grad():
                    {"x": x, "w": w, "result": result}.get(which, torch.zeros(1)).detach().add_(1)
                try:
                    result.sum().backward()
                    told.append((which, x.grad, w.grad))
                except RuntimeError as error:
                    told.append((which, str(error).partition(":")[0]))
            return told

        return told_of_one

    for number in range(3):
        same_story(one(number), backend)


@BACKENDS
def test_parameters_changed_before_backward(backend):
    def story(compiled):
        net, told = Net(), []
        fast = compiled(net)
        for _ in range(2):
            y = fast(r(2, 4))
            with torch.no_grad():
                net.second.weight.add_(1)
            try:
                y.sum().backward()
            except RuntimeError as error:
                told.append(str(error).partition(":")[0])
        return told

    same_story(story, backend)


@BACKENDS
def test_results_by_rank_of_outputs(backend):
    """Integer results, results that are inputs, views of inputs and of each other, non-differentiable ones."""

    def f(x, w, i):
        y = x * w
        return y, y[0], y.argmax(-1), x, x[1], i, i + 1, y.detach(), w.bool(), y.view(-1), y.view(-1)[2:], x.shape

    def story(compiled):
        fast, told = compiled(f), []
        for pick in (0, 1, 3, 4, 9, 10):
            x, w, i = r(2, 3), r(2, 3), torch.arange(3)
            results = fast(x, w, i)
            told.append([t.requires_grad if isinstance(t, torch.Tensor) else t for t in results])
            told.append([t._is_view() if isinstance(t, torch.Tensor) and t.requires_grad else None for t in results])
            told.append([a is b for a in results for b in (x, i, results[0])])
            told.append([isinstance(t, torch.Tensor) and t.data_ptr() == results[0].data_ptr() for t in results])
            (results[pick] ** 2).sum().backward()
            told += [x.grad, w.grad]
        return told

    same_story(story, backend)


@BACKENDS
def test_undefined_gradients(backend):
    class Stops(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * 1, b * 1

        @staticmethod
        def backward(ctx, ga, gb):
            return None, gb

    def f(x, w):
        return x.log(), w * 2

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            x, w = torch.zeros(3, requires_grad=True), r(3)
            a, b = Stops.apply(*fast(x, w))
            (a.sum() + b.sum()).backward()
            told += [x.grad, w.grad]
        return told

    same_story(story, backend, fallbacks=("backward-",))


@BACKENDS
def test_anomaly_mode(backend):
    def f(x, w):
        return (x.sqrt() * w).sum()

    def story(compiled):
        fast, told = compiled(f), []
        for bad in (False, True):
            x, w = torch.ones(3), torch.ones(3)
            if bad:
                x[1] = 0
                w[1] = 0
            x.requires_grad_()
            with torch.autograd.set_detect_anomaly(True):
                try:
                    fast(x, w).backward()
                    told.append(x.grad)
                except RuntimeError as error:
                    told.append("nan" in str(error))
        return told

    with pytest.warns(UserWarning):
        same_story(story, backend, fallbacks=("backward-eager",))


@BACKENDS
def test_gradients_share_no_memory_with_each_other(backend):
    """A gradient that is the incoming one is not stolen: accumulation would write into it."""

    def f(x, w):
        return x + w

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            x, w = r(3), r(3)
            g = torch.ones(3)
            y = fast(x, w)
            y.backward(g, retain_graph=True)
            y.backward(g)
            told += [x.grad.clone(), w.grad.clone(), g.clone()]
            x.grad.mul_(5)
            told += [w.grad.clone(), g.clone()]
        return told

    same_story(story, backend)


@BACKENDS
def test_gradient_layout_of_parameters(backend):
    """Gradients have the strides of eager's."""

    def story(compiled):
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 9, 2)
        )
        net[0].to(memory_format=torch.channels_last)
        fast, told = compiled(net), []
        for _ in range(2):
            fast(torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)).sum().backward()
            told.append([(p.grad.clone(), p.grad.stride()) for p in net.parameters()])
            net.zero_grad()
        return told

    same_story(story, backend, rtol=1e-4)


@BACKENDS
def test_calls_from_a_backward(backend):
    """A hook calls compiled code while a compiled backward runs."""

    def f(x):
        return (x * x).tanh()

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            x = r(3)
            y = fast(x)

            def hook(g):
                with torch.enable_grad():
                    z = torch.ones(3, requires_grad=True)
                    fast(z).sum().backward()
                told.append(z.grad)

            x.register_hook(hook)
            y.sum().backward()
            told.append(x.grad)
        return told

    same_story(story, backend)


@BACKENDS
def test_dropout_in_step_with_eager(backend):
    def f(x, w):
        return F.dropout(x @ w, 0.3).sum() + F.dropout(w, 0.5).sum()

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(3):
            x, w = r(4, 4), r(4, 4)
            fast(x, w).backward()
            told += [x.grad, w.grad, torch.rand(2)]
        return told

    same_story(story, backend)
