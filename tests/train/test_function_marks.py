"""What a custom autograd function tells autograd on its ctx: inputs written to, gradients left undefined. And backwards that are no
linear functions of their gradients, which second derivatives must meet as they do in eager."""

import pytest
import torch

import dyncomp
from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])


pytestmark = pytest.mark.usefixtures("fresh")


def r(*shape):
    return torch.randn(*shape, requires_grad=True)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor=2):
        ctx.mark_dirty(x)
        ctx.factor = factor
        return x.mul_(factor)

    @staticmethod
    def backward(ctx, g):
        return g * 20 * ctx.factor, None


class Both(torch.autograd.Function):
    """Gradients that tell by their values which of them came in."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w)
        return x * w, x + w

    @staticmethod
    def backward(ctx, g, h):
        x, w = ctx.saved_tensors
        to_x = to_w = None
        if g is not None:
            to_x, to_w = g * w * 3, g * x * 3
        if h is not None:
            to_x = h if to_x is None else to_x + h * 5
            to_w = h.tanh()
        return to_x, to_w


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return None


class TestWrittenInputs:
    @BACKENDS
    def test_inside(self, backend):
        def story(compiled):
            fast, told = compiled(lambda x, w: (Doubled.apply(x * 1) * w).sum()), []
            for _ in range(2):
                x, w = r(3), r(3)
                fast(x, w).backward()
                told += [x.grad, w.grad]
            return told

        same_story(story, backend)
        assert not dyncomp.stats().graph_breaks

    @BACKENDS
    def test_input_of_the_call(self, backend):
        def story(compiled):
            def f(v):
                y = Doubled.apply(v, 3)
                return y is v, y.sin() * v

            fast, told = compiled(f), []
            for _ in range(2):
                x = r(3)
                v = x * 1
                same, y = fast(v)
                (y * v).sum().backward()
                told += [same, x.grad, v.detach()]
            return told

        same_story(story, backend)
        assert not dyncomp.stats().graph_breaks

    @BACKENDS
    def test_view(self, backend):
        def story(compiled):
            fast = compiled(lambda v: Doubled.apply(v[0]).sin())
            x = r(3, 2)
            v = x * 1
            y = fast(v)
            (y.sum() + v.square().sum()).backward()
            return y.detach(), x.grad, v.detach()

        same_story(story, backend)

    @BACKENDS
    def test_leaf_raises(self, backend):
        def story(compiled):
            x = r(3)
            with pytest.raises(
                RuntimeError, match="leaf Variable that requires grad has been used in an in-place operation"
            ):
                compiled(lambda v: Doubled.apply(v).sin())(x)
            return x.detach()

        same_story(story, backend)

    @BACKENDS
    def test_without_gradients(self, backend):
        def story(compiled):
            def f(v):
                y = Doubled.apply(v)
                return y is v

            v = torch.ones(3)
            return compiled(f)(v), v, v.requires_grad

        same_story(story, backend)

    @BACKENDS
    def test_saved_before(self, backend):
        def story(compiled):
            def f(x):
                v = x * 2
                return (v.sin() * Doubled.apply(v)).sum()

            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                compiled(f)(r(3)).backward()

        same_story(story, backend, fallbacks=("training-graph-eager", "aot: the program raises"))


class TestUndefinedGradients:
    @BACKENDS
    @pytest.mark.parametrize("which", [(0, 1), (0,), (1,)])
    def test_parts(self, backend, which):
        def story(compiled):
            apart = compiled(lambda x, w: Both.apply(x.exp(), w))
            inside = compiled(lambda x, w: sum(Both.apply(x.exp(), w)[k].sin().sum() for k in which))
            told = []
            for _ in range(2):
                x, w = r(3), r(3)
                results = apart(x, w)
                sum(results[k].sum() for k in which).backward()
                told += [x.grad.clone(), w.grad.clone()]
                inside(x, w).backward()
                told += [x.grad, w.grad]
            return told

        same_story(story, backend)
        assert not dyncomp.stats().graph_breaks

    @BACKENDS
    def test_none_at_all(self, backend):
        def story(compiled):
            fast = compiled(lambda x, w: (Nothing.apply(Both.apply(x, w)[0]) * w).sum())
            x, w = r(3), r(3)
            fast(x, w).backward()
            return x.grad, w.grad

        same_story(story, backend)

    @BACKENDS
    def test_second_derivative(self, backend):
        def story(compiled):
            x, w = r(3), r(3)
            loss = compiled(lambda x, w: Both.apply(x.exp(), w)[0].sum())(x, w)
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            gradient.square().sum().backward()
            return gradient.detach(), x.grad, w.grad

        same_story(story, backend, fallbacks=("double-backward-eager",))


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-0.5, 0.5)


class Squashed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.tanh() * x


class TestNotLinear:
    @BACKENDS
    def test_penalty_and_loss_in_one_backward(self, backend):
        def story(compiled):
            fast = compiled(lambda x, w: (Squashed.apply(Clipped.apply(x * w).sin()) * w).sum())
            told = []
            for _ in range(2):
                x, w = r(4), r(4)
                h = x.exp()
                loss = fast(h, w)
                (gradient,) = torch.autograd.grad(loss, h, create_graph=True)
                (loss + gradient.square().sum()).backward()
                told += [gradient.detach(), x.grad, w.grad]
            return told

        same_story(story, backend, fallbacks=("double-backward-eager",))

    @BACKENDS
    def test_several_results(self, backend):
        def story(compiled):
            def f(x, w):
                trunk = Squashed.apply(x * w)
                return (trunk * 2).sum(), Squashed.apply(trunk + w)

            fast = compiled(f)
            x, w = r(4), r(4)
            loss, other = fast(x, w)
            gradients = torch.autograd.grad(loss, (x, w), create_graph=True)
            total = loss * 3 + sum(g.square().sum() for g in gradients) + other.sum()
            total.backward()
            return x.grad, w.grad

        same_story(story, backend, fallbacks=("double-backward-eager",))

    @BACKENDS
    def test_graph_goes_with_the_last_backward(self, backend):
        def story(compiled):
            fast, told = compiled(lambda x: Squashed.apply(x.exp()).sum()), []
            x = r(4)
            for retain in (True, False):
                loss = fast(x)
                torch.autograd.grad(loss, x, create_graph=True, retain_graph=retain)
                for _ in range(2):
                    try:
                        told += torch.autograd.grad(loss, x)
                    except RuntimeError as error:
                        told.append(str(error))
            return told

        same_story(story, backend, fallbacks=("double-backward-eager",))

    @BACKENDS
    def test_inside_of_another_backward(self, backend):
        """The outer backward began before there was a graph to follow."""

        def story(compiled):
            fast = compiled(lambda x: Squashed.apply(x.exp()))
            x, told = r(4), []
            y = fast(x)
            z, total = y * 2, y.sum()

            def inner(g):
                with torch.enable_grad():
                    (gradient,) = torch.autograd.grad(total, x, create_graph=True)
                    told.extend(torch.autograd.grad(gradient.sum(), x, retain_graph=True))

            z.register_hook(inner)
            z.sum().backward(retain_graph=True)
            told.append(x.grad.clone())
            z.sum().backward()
            return [*told, x.grad]

        same_story(story, backend, fallbacks=("double-backward-eager",))
