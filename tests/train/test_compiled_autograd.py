"""A region with compiled autograd: backwards of code with graph breaks are one graph, and do what eager's engine does."""

import contextlib
import copy
import functools
import gc
import threading

import pytest
import torch
import torch.utils.checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dyncomp
from dyncomp import counters
from dyncomp.compiled_autograd import engine
from tests.support import assert_same


@pytest.fixture(autouse=True)
def fresh():
    dyncomp.reset()
    yield
    dyncomp.reset()


def region():
    return dyncomp.enable(compiled_autograd=True)


class Broken(nn.Module):
    """Two graph breaks in forward."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.first(x))
        print(end="")
        x = self.second(x) * 2
        print(end="")
        return self.third(torch.tanh(x))


def refusals():
    return {name: n for name, n in dyncomp.stats().fallbacks.items() if name.startswith("compiled-autograd")}


def broken_in_backward():
    return [record for record in counters.breaks() if "dyncomp backward" in record.filename]


def close(mine, eager):
    assert_same(mine, eager, "seen", rtol=1e-5, atol=1e-6)


def both(program, refused=None, breaks=0):
    """`program(region)` under eager and in a region: equal results. `refused`: why the backward is eager's, if it is."""
    torch.manual_seed(0)
    expected = program(contextlib.nullcontext)
    torch.manual_seed(0)
    close(program(region), expected)
    if refused is None:
        assert refusals() == {}
        assert len(broken_in_backward()) == breaks, [str(b) for b in broken_in_backward()]
    else:
        assert set(refusals()) == {f"compiled-autograd: {one}" for one in ([refused] if isinstance(refused, str) else refused)}
    return expected


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def train(model, inside, steps=10, batch=5):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    seen = []
    for step in range(steps):
        x = torch.randn(batch, 8)
        with inside():
            loss = model(x).square().mean()
            loss.backward()
        seen.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
        optimizer.step()
        if step % 3:  # else they accumulate
            optimizer.zero_grad()
    return seen


class TestTraining:
    def test_backward_is_one_graph(self):
        torch.manual_seed(0)
        model = Broken()
        other = copy.deepcopy(model)
        torch.manual_seed(1)
        expected = train(model, contextlib.nullcontext)
        torch.manual_seed(1)
        close(train(other, region), expected)
        stats = dyncomp.stats()
        assert refusals() == {} and broken_in_backward() == []
        # three of the forward, one of the backward, and one more of it for gradients that are there already
        assert (stats.graphs, stats.graph_breaks, stats.recompiles) == (5, 2, 1)

    def test_nothing_is_compiled_again_when_values_change(self):
        model = Broken()
        train(model, region, 3)
        before = dyncomp.stats()
        train(model, region, 5)
        after = dyncomp.stats()
        assert (after.graphs, after.recompiles, after.frames) == (before.graphs, before.recompiles, before.frames)

    def test_other_batch_sizes_are_counted(self):
        model, other = Broken(), Broken()
        other.load_state_dict(model.state_dict())
        for batch in (5, 7, 5, 9, 7):
            x = torch.randn(batch, 8)
            for one, inside in ((model, contextlib.nullcontext), (other, region)):
                one.zero_grad()
                with inside():
                    one(x).sum().backward()
            close([p.grad for p in other.parameters()], [p.grad for p in model.parameters()])
        assert refusals() == {}
        assert dyncomp.stats().recompiles <= 5

    def test_sizes_of_compiled_code_become_symbolic(self):
        model, other = Broken(), Broken()
        other.load_state_dict(model.state_dict())
        other.third.bias.register_hook(lambda g: g * 2)
        model.third.bias.register_hook(lambda g: g * 2)
        graphs = []
        for batch in (5, 7, 9, 11, 5, 6):
            x = torch.randn(batch, 8)
            model.zero_grad()
            other.zero_grad()
            _whole(model, x).backward()
            with region():
                _whole(other, x).backward()
            close([p.grad for p in other.parameters()], [p.grad for p in model.parameters()])
            graphs.append(dyncomp.stats().graphs)
        assert refusals() == {} and broken_in_backward() == []
        assert graphs[2:] == [graphs[1]] * 4  # one more version of each graph serves all other sizes

    def test_limit(self):
        w = leaf(3)
        with pytest.warns(RuntimeWarning, match="eager's engine"), dyncomp.enable(compiled_autograd=True, recompile_limit=2):
            for n in (2, 3, 4, 5):
                (torch.ones(n, 3) * w).sum().backward()
        close(w.grad, torch.full((3,), 14.0))
        assert refusals() == {"compiled-autograd: recompile-limit": 2}


    def test_stances(self):
        w = leaf(3)
        with region():
            for n in (1, 2):
                (torch.ones(n, 3) * w).sum().backward()
                w.grad = None
            with dyncomp.set_stance("eager_on_recompile"):
                (torch.ones(3, 3) * w).sum().backward()
            assert refusals() == {"compiled-autograd: stance-eager-on-recompile": 1}
            with dyncomp.set_stance("fail_on_recompile"), pytest.raises(dyncomp.errors.RecompileLimitError):
                (torch.ones(4, 3) * w).sum().backward()
            with dyncomp.set_stance("force_eager"):
                (torch.ones(5, 3) * w).sum().backward()
        close(w.grad, torch.full((3,), 8.0))

    def test_steps_leak_nothing(self):
        model = Broken()
        train(model, region, 3)
        gc.collect()
        before = len(gc.get_objects())
        train(model, region, 30)
        gc.collect()
        assert len(gc.get_objects()) - before < 100


def _whole(model, x):
    return model(x).square().mean()


class TestAccumulation:
    def test_gradients_add_up_in_place(self):
        def program(inside):
            w = leaf(3, 4)
            first = None
            for _ in range(3):
                with inside():
                    (w * torch.randn(2, 3, 4)).sin().sum().backward()
                first = w.grad if first is None else first
            assert first is w.grad
            return [w.grad, w.grad._version]

        assert both(program)[1] == 2

    def test_layout_of_the_leaf(self):
        def program(inside):
            w = torch.randn(4, 3).t().requires_grad_()
            gaps = torch.randn(3, 8)[:, ::2].requires_grad_()
            with inside():
                (w * 2 + gaps.t().reshape(3, 4)).sum().backward()
            return [w.grad, gaps.grad, w.grad.stride(), gaps.grad.stride()]

        both(program)

    def test_leaves_do_not_share_a_gradient(self):
        def program(inside):
            a, b = leaf(3), leaf(3)
            given = torch.ones(3)
            with inside():
                (a + b).backward(given)
            a.grad.add_(1)
            return [a.grad, b.grad, given]

        both(program)

    def test_memory_that_gradients_share(self):
        """A view that the engine made of a gradient becomes the leaf's own; what somebody else holds is copied."""

        def program(inside):
            seen = []

            def run(make, shape):
                a, b, given = leaf(3, 4), leaf(3, 4), torch.ones(shape)
                with inside():
                    make(a, b).backward(given)
                memory = [given.data_ptr(), a.grad.data_ptr(), *([] if b.grad is None else [b.grad.data_ptr()])]
                seen.append([a.grad.clone(), a.grad.storage_offset(), a.grad._is_view(), [memory.index(one) for one in memory]])
                given.mul_(2)
                a.grad.add_(1)
                seen.append([given, a.grad, b.grad])

            run(lambda a, b: a.view(-1), (12,))
            run(lambda a, b: (a + 1).view(-1), (12,))
            run(lambda a, b: a + 1, (3, 4))
            run(lambda a, b: a + b, (3, 4))
            run(lambda a, b: torch.cat([a, b]), (6, 4))
            run(lambda a, b: (a.t() * 2).sum() + b.sum(), ())
            run(lambda a, b: a + b.reshape(4, 3).t().reshape(3, 4), (3, 4))
            return seen

        both(program)

    def test_gradients_that_python_code_keeps_are_copied(self):
        kept = []

        class Keeps(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, grad):
                kept.append(grad)
                return grad

        def program(inside):
            a, b = leaf(4), leaf(4)
            b.register_hook(kept.append)
            with inside():
                (Keeps.apply(a).view(2, 2) * 2).sum().backward()
                (b.view(2, 2) * 2).sum().backward()
            for one in kept:
                one.zero_()
            kept.clear()
            return [a.grad, b.grad]

        _both_with_breaks(program)

    def test_several_roots(self):
        def program(inside):
            a, b = leaf(3), leaf(3)
            with inside():
                x = a * b
                y = (x * a).sum()
                torch.autograd.backward([x, y, x], [torch.ones(3), None, torch.arange(3.0)])
            return [a.grad, b.grad]

        both(program)

    def test_asked_for_leaves_only(self):
        def program(inside):
            a, b, c = leaf(3), leaf(3), leaf(3)
            log = []
            a.register_hook(lambda g: log.append("a"))
            c.register_hook(lambda g: log.append("c"))
            with inside():
                ((a * b).exp() * c.sin()).sum().backward(inputs=[b, c])
            return [a.grad, b.grad, c.grad, log]

        both(program, breaks=0)

    def test_frozen_leaves(self):
        def program(inside):
            model = Broken()
            model.second.requires_grad_(False)
            with inside():
                model(torch.randn(3, 8)).sum().backward()
            return [p.grad for p in model.parameters()]

        both(program)


class TestHooks:
    def test_of_tensors(self):
        def program(inside):
            a, b = leaf(4), leaf(4)
            a.register_hook(lambda g: g * 3)
            b.register_hook(lambda g: None)
            with inside():
                x = a * b
                x.register_hook(lambda g: g.clamp(max=0.5))
                x.register_hook(lambda g: g + 1)
                y = x.sin() + x
                y.sum().backward()
            return [a.grad, b.grad]

        both(program)
        assert dyncomp.stats().graphs == 1

    def test_order_and_what_they_see(self):
        def program(inside):
            model = Broken()
            log = []
            for name, p in model.named_parameters():
                p.register_hook(lambda g, name=name: log.append(("tensor", name, g.clone())))
                p.register_post_accumulate_grad_hook(lambda p, name=name: log.append(("leaf", name, p.grad.clone())))
            x = torch.randn(3, 8, requires_grad=True)
            x.register_hook(lambda g: log.append(("input", "x", g.clone())))
            for _ in range(10):
                with inside():
                    model(x).square().mean().backward()
            return [log, [name for _, name, _ in log], [p.grad for p in model.parameters()]]

        both(program)

    def test_new_hooks_in_every_step_compile_once(self):
        def program(inside):
            w = leaf(4)
            seen = []
            for step in range(4):
                with inside():
                    x = w.exp()
                    x.register_hook(lambda g: seen.append(g.sum()))
                    (x * step).sum().backward()
                w.grad = None
            return seen

        both(program)

    def test_around_nodes(self):
        def program(inside):
            w = leaf(4)
            with inside():
                x = w.exp()
                x.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
                x.grad_fn.register_hook(lambda results, grads: (results[0] + grads[0].sum(),))
                (x * x).sum().backward()
            return w.grad

        both(program)

    def test_optimizer_step_after_accumulation(self):
        def program(inside):
            model = Broken()
            for p in model.parameters():
                p.register_post_accumulate_grad_hook(_descend)
            for _ in range(4):
                with inside():
                    model(torch.randn(3, 8)).square().mean().backward()
            return [[p.detach() for p in model.parameters()], [p.grad for p in model.parameters()]]

        both(program)

    @pytest.mark.parametrize("kind", ["method", "partial", "object", "builtin"])
    def test_of_any_kind(self, kind):
        def program(inside):
            w, scaler, seen = leaf(4), Scaler(3.0), []
            hook = {
                "method": scaler.scale,
                "partial": functools.partial(torch.mul, 2.0),
                "object": scaler,
                "builtin": torch.neg,
            }[kind]
            w.register_hook(hook)
            for _ in range(3):
                with inside():
                    w.exp().sum().backward()
                seen.append(w.grad.clone())
            return [seen, scaler.calls]

        _both_with_breaks(program)

    def test_that_write_to_the_gradient(self):
        def program(inside):
            a, b, c = leaf(4), leaf(4), leaf(4)
            given = torch.ones(4)
            with inside():
                x = a * b
                x.register_hook(lambda g: g.mul_(2))
                (x + c).backward(given)
            return [a.grad, b.grad, c.grad, given]

        both(program)

    def test_with_an_optimizer(self):
        def program(inside):
            model = Broken()
            optimizers = {p: torch.optim.SGD([p], 0.05, momentum=0.5) for p in model.parameters()}

            def step(p):
                optimizers[p].step()
                optimizers[p].zero_grad()

            for p in model.parameters():
                p.register_post_accumulate_grad_hook(step)
            for _ in range(4):
                with inside():
                    model(torch.randn(3, 8)).square().mean().backward()
            return [[p.detach() for p in model.parameters()], [p.grad for p in model.parameters()]]

        _both_with_breaks(program)

    def test_that_change_other_hooks(self):
        def program(inside):
            seen = []
            for _ in range(3):
                a, b, c = leaf(4), leaf(4), leaf(4)
                with inside():
                    x = a * b
                    y = x.sin()
                    handle = x.register_hook(lambda g: g * 100)

                    def swap(g, handle=handle, c=c):
                        handle.remove()
                        c.register_hook(lambda g: g * 10)

                    y.register_hook(swap)
                    (y.exp() + x + c * x.detach()).sum().backward()
                seen.append([a.grad, b.grad, c.grad])
            return seen

        _both_with_breaks(program)

    def test_that_put_others_in_their_place(self):
        """As many hooks as before, but not the same ones."""

        def program(inside):
            seen = []
            for swaps in (False, True, False, True):
                x, w = leaf(3), leaf(3)
                handles = [x.register_hook(lambda g: g * 3)]

                def swap(g, swaps=swaps, handles=handles, x=x):
                    print(end="")
                    if swaps:
                        handles.pop().remove()
                        handles.append(x.register_hook(lambda g: g * 5))

                with inside():
                    y = x.sin()
                    y.register_hook(swap)
                    (y * w).sum().backward()
                seen += [x.grad, w.grad]
            return seen

        _both_with_breaks(program)

    def test_that_take_themselves_away(self):
        def program(inside):
            w, seen = leaf(4), []

            def once(g):
                seen.append(g.sum())
                handle.remove()
                return g * 2

            handle = w.register_hook(once)
            w.register_hook(lambda g: g + 1)
            for _ in range(3):
                with inside():
                    w.exp().sum().backward()
                seen.append(w.grad.clone())
            return seen

        _both_with_breaks(program)

    def test_that_run_a_backward(self):
        def program(inside):
            w, v = leaf(4), leaf(4)

            def hook(g):
                with torch.enable_grad():
                    v.exp().sum().backward()

            w.register_hook(hook)
            with inside():
                w.exp().sum().backward()
            return [w.grad, v.grad]

        torch.manual_seed(0)
        expected = program(contextlib.nullcontext)
        torch.manual_seed(0)
        close(program(region), expected)
        assert set(refusals()) == {"compiled-autograd: a backward inside of a backward"}

    def test_that_keep_the_gradient(self):
        def program(inside):
            w, kept = leaf(4), []
            w.register_hook(kept.append)
            with inside():
                w.exp().sum().backward()
            w.grad.zero_()
            return [kept, w.grad]

        both(program)

    def test_of_modules(self):
        def program(inside):
            model, log = Broken(), []
            model.second.register_full_backward_hook(lambda m, gi, go: log.append((gi[0].clone(), go[0].clone())))
            model.third.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
            for _ in range(3):
                with inside():
                    model(torch.randn(3, 8)).square().sum().backward()
            return [log, [p.grad for p in model.parameters()]]

        _both_with_breaks(program)

    def test_with_effects_python_must_see(self, capsys):
        def program(inside):
            w = leaf(4)
            w.register_hook(lambda g: print("gradient"))
            for _ in range(3):
                with inside():
                    w.exp().sum().backward()
            return w.grad

        _both_with_breaks(program)
        assert capsys.readouterr().out == "gradient\n" * 6

    @pytest.mark.parametrize(
        "hook, error",
        [
            (lambda g: g.sum(), "has changed the size of value"),
            (lambda g: g.double(), "has changed the type of value"),
            (lambda g: 3, "expected Variable"),
        ],
    )
    def test_wrong_results(self, hook, error):
        w = leaf(4)
        w.register_hook(hook)
        for inside in (contextlib.nullcontext, region):
            with pytest.raises((RuntimeError, TypeError), match=error), inside():
                w.exp().sum().backward()

    def test_that_raise(self):
        def raises(g):
            raise KeyError("from the hook")

        w, other = leaf(4), leaf(4)
        x = w * other
        x.register_hook(raises)
        for inside in (contextlib.nullcontext, region):
            w.grad = None
            with pytest.raises(KeyError, match="from the hook"), inside():
                (w * other).sum().backward()
                assert torch.is_grad_enabled()
                y = w * other
                y.register_hook(raises)
                y.sum().backward()
            assert torch.is_grad_enabled() and w.grad is not None
        with region():  # and it goes on
            w.exp().sum().backward()


class Scaler:
    def __init__(self, factor):
        self.factor, self.calls = factor, 0

    def scale(self, g):
        self.calls += 1
        return g * self.factor

    __call__ = scale


def _descend(p):
    with torch.no_grad():
        p.sub_(p.grad, alpha=0.1)
    p.grad = None


def _both_with_breaks(program):
    torch.manual_seed(0)
    expected = program(contextlib.nullcontext)
    torch.manual_seed(0)
    close(program(region), expected)
    assert refusals() == {}


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 * ctx.scale, None


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x.exp() * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        x, y, result = ctx.saved_tensors
        return grad * result, grad * x.exp() if ctx.needs_input_grad[1] else None


class TestNodes:
    def test_custom_functions(self):
        def program(inside):
            w, seen = leaf(4), []
            for scale in (2.0, 2.0, 3.0):
                with inside():
                    Cube.apply(w * 2, scale).sum().backward()
                seen.append(w.grad.clone())
            return seen

        both(program)

    def test_constants_of_the_forward(self):
        def program(inside):
            w, seen = leaf(4), []
            for power in (2, 3, 2.0, 3):
                with inside():
                    (w.abs() ** power * power + w / power).sum().backward()
                seen.append(w.grad.clone())
            return seen

        both(program)

    def test_places_of_parts(self):
        """Two arguments without a gradient: where the third one lies is not shown by the node."""

        def program(inside):
            w, seen = leaf(4), []
            for n in (1, 2):
                with inside():
                    parts = torch.cat([torch.ones(n), w, torch.ones(3 - n)])
                    (parts * torch.arange(7.0)).sum().backward()
                seen.append(w.grad.clone())
            return seen

        both(program, refused="CatBackward0: sizes of arguments without a gradient")

    def test_equal_operands(self):
        def program(inside):
            a, b, seen = leaf(4), leaf(4), []
            for x, y in ((a, a), (a, b), (b, a)):
                with inside():
                    (x * y).sum().backward()
                seen.append([p.grad for p in (a, b)])
                a.grad = b.grad = None
            return seen

        both(program)

    def test_broadcast_and_cast(self):
        def program(inside):
            a, b = leaf(4), leaf(3, 1)
            c = torch.randn(4, dtype=torch.bfloat16, requires_grad=True)
            with inside():
                (a * b + c.float()).double().mul(2).sum().backward()
            return [a.grad, b.grad, c.grad]

        both(program)

    def test_results_nobody_used(self):
        def program(inside):
            w = leaf(6)
            with inside():
                a, b, c = w.split(2)
                (a * c.detach()).sum().backward()
                low, high = w.sort().values.chunk(2)
                high.sum().backward()
            return w.grad

        both(program)

    def test_roots_that_are_leaves(self):
        def program(inside):
            a, b = leaf(4), leaf(4)
            given = torch.ones(4)
            with inside():
                torch.autograd.backward([a, b.exp()], [given, given])
            a.grad.add_(1)
            return [a.grad, b.grad, given]

        both(program)

    def test_leaves_out_of_reach(self):
        def program(inside):
            a, b = leaf(4), leaf(4)
            with inside():
                a.exp().sum().backward(inputs=[b])
            return [a.grad, b.grad]

        both(program)

    @pytest.mark.parametrize("around", ["forward", "both"])
    def test_autocast(self, around):
        def program(inside):
            model, seen = Broken(), []
            for _ in range(2):
                with inside():
                    with torch.autocast("cpu", torch.bfloat16):
                        loss = model(torch.ones(3, 8)).float().square().mean()
                        if around == "both":
                            loss.backward()
                    if around == "forward":
                        loss.backward()
                seen.append([p.grad.clone() for p in model.parameters()])
            return seen

        torch.manual_seed(0)
        expected = program(contextlib.nullcontext)
        torch.manual_seed(0)
        assert_same(program(region), expected, "seen", rtol=2e-2, atol=2e-2)
        assert refusals() == {}

    def test_autocast_that_is_on(self):
        """Formulas get their casts once; hooks run under autocast, as under eager's engine."""

        def program(inside):
            w, v, seen = leaf(4, 4), leaf(4, 4), []
            w.register_hook(lambda g: seen.append((g @ g).dtype == torch.bfloat16))
            for _ in range(2):
                with inside():
                    x = (w @ v).softmax(-1)
                    print(end="")
                    with torch.autocast("cpu", torch.bfloat16):
                        ((x @ v).float().exp().sum() + torch.einsum("ij,jk->ik", x, w).float().sum()).backward()
                        assert torch.is_autocast_enabled("cpu")
                    assert not torch.is_autocast_enabled("cpu")
                seen += [w.grad.clone(), v.grad.clone()]
            return seen

        both(program)

    def test_checkpoints(self):
        def program(inside, reentrant):
            w = leaf(4)
            with inside():
                x = torch.utils.checkpoint.checkpoint(lambda x: (x * 2).sin().exp(), w * 1, use_reentrant=reentrant)
                (x * x).sum().backward()
            return w.grad

        for reentrant in (True, False):
            torch.manual_seed(0)
            expected = program(contextlib.nullcontext, reentrant)
            torch.manual_seed(0)
            close(program(region, reentrant), expected)
        assert set(refusals()) == {
            "compiled-autograd: a backward inside of a backward",
            "compiled-autograd: hooks on saved tensors",
        }

    def test_functions_that_keep_results_and_flags(self):
        def program(inside):
            a, b, seen = leaf(4), torch.randn(4), []
            for need in (True, False, True):
                a.grad = None
                second = b.clone().requires_grad_(need)
                with inside():
                    Pair.apply(a * 1, second).sum().backward()
                seen.append([a.grad.clone(), second.grad])
            return seen

        both(program)

    def test_writes_through_views(self):
        def program(inside):
            w = leaf(4)
            with inside():
                x = w * 1
                x[:2].mul_(3)
                x.sum().backward()
            return w.grad

        both(program)

    def test_writes_through_views_of_many_kinds(self):
        def program(inside):
            w, b, seen = leaf(4, 6), leaf(4), []
            for i in range(4):
                with inside():
                    x = (w * 2).t()
                    x[1:3].mul_(b)
                    x[i % 3] = w[:, 0]
                    x[4:].copy_(b.exp())
                    y = x[5]
                    y.sigmoid_()
                    ((x * 3).sum() + y.sum()).backward()
                seen += [w.grad.clone(), b.grad.clone(), w.grad.stride()]
            return seen

        both(program)

    def test_writes_through_views_of_compiled_code_and_functions(self):
        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.mark_dirty(x)
                return x.mul_(2)

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        fast = dyncomp.optimize(lambda x, b: x[1].mul_(b), backend="aot_eager")

        def program(inside):
            w, b = leaf(3, 4), leaf(4)
            with inside():
                x = w * 1
                fast(x, b)
                x.sum().backward()
                y = w * 1
                Doubled.apply(y[0])
                y.sum().backward()
            return [w.grad, b.grad]

        torch.manual_seed(0)
        expected = program(contextlib.nullcontext)
        torch.manual_seed(0)
        close(program(region), expected)

    def test_views_by_strides(self):
        def program(inside):
            w = leaf(12)
            with inside():
                x = (w * 2).as_strided((3, 4), (1, 3), 0)
                y = (w * 3).as_strided((3, 3), (2, 1), 1)
                (x.exp().sum() + y.sin().sum()).backward()
            return w.grad

        both(program)


class TestGradientsAskedFor:
    """`torch.autograd.grad`."""

    def test_of_leaves_and_results(self):
        def program(inside):
            w, v, seen = leaf(4, 3), leaf(3), []
            for _ in range(3):
                with inside():
                    x = w * v
                    y = x.sin()
                    z = (y * x).sum()
                    seen.append(torch.autograd.grad(z, [w, x, y, v, z, w]))
            return [seen, w.grad, v.grad]

        both(program)
        assert dyncomp.stats().graphs == 1

    def test_layouts_and_objects(self):
        def program(inside):
            w, v, given = leaf(4, 3), leaf(4, 3), torch.ones(4, 3)
            with inside():
                a, b = torch.autograd.grad((w + v).sum(), [w, v])
                (c,) = torch.autograd.grad((w.t() * 2).sum(), [w])
                d, e = torch.autograd.grad(w + v, [w, v], given)
                (f,) = torch.autograd.grad(w.view(-1), [w], given.view(-1))
            return [a, b, c, d, e, f, a is b, d is given, e is given, f.data_ptr() == given.data_ptr()]

        both(program)

    def test_that_are_missing(self):
        def program(inside):
            w, v = leaf(4), leaf(4)
            with inside():
                found = torch.autograd.grad(w.exp().sum(), [w, v], allow_unused=True)
                try:
                    torch.autograd.grad(w.exp().sum(), [w, v])
                except RuntimeError as error:
                    return [found, str(error)]

        both(program, refused="a gradient of what a result does not depend on")

    def test_that_a_function_leaves_out(self):
        class Cut(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return None

        def program(inside):
            w = leaf(4)
            with inside():
                seen = [torch.autograd.grad((Cut.apply(w) + w).sum(), w)]
                seen.append(torch.autograd.grad(Cut.apply(w).sum(), w, allow_unused=True))
                x = w * 2
                try:
                    torch.autograd.grad((Cut.apply(w) * x).sum(), [x, w])
                    torch.autograd.grad((Cut.apply(w) * x.detach()).sum(), [w])
                except RuntimeError as error:
                    seen.append(str(error))
            return seen

        both(program)

    def test_with_hooks(self):
        def program(inside):
            w, seen = leaf(4), []
            w.register_hook(lambda g: g * 3)
            w.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
            with inside():
                x = w.exp()
                x.register_hook(lambda g: g * 5)
                y = x.sin()
                y.register_hook(lambda g: seen.append(g.sum()))
                seen += torch.autograd.grad(y.sum(), [w, x])
                x = w.exp()
                x.register_hook(lambda g: g * 7)
                seen += torch.autograd.grad((x * x).sum(), [x])
            return [seen, w.grad]

        both(program)

    def test_of_retained_graphs(self):
        def program(inside):
            w, seen = leaf(4), []
            with inside():
                y = w.exp().sum()
                for retain in (True, True, False):
                    seen += torch.autograd.grad(y, w, retain_graph=retain)
                try:
                    torch.autograd.grad(y, w)
                except RuntimeError as error:
                    seen.append(str(error))
            return seen

        both(program, refused="eager raises: RuntimeError")

    def test_of_compiled_code(self):
        model = Broken()
        fast = dyncomp.optimize(model)

        def program(inside):
            seen = []
            for n in (3, 5, 7):
                x = leaf(n, 8)
                with inside():
                    seen.append(torch.autograd.grad(fast(x).sum(), [x, *model.parameters()]))
            return seen

        both(program)

    def test_in_batches(self):
        def program(inside):
            w = leaf(4)
            with inside():
                return torch.autograd.grad(w * w, w, torch.eye(4), is_grads_batched=True)

        both(program, refused="gradients of the roots that are no plain tensors")


class TestLeftToEager:
    def test_double_backward(self):
        def program(inside):
            w = leaf(4)
            with inside():
                w.pow(3).sum().backward(create_graph=True)
                w.grad.sum().backward()
            return w.grad.detach()

        both(program, refused="create_graph=True")

    def test_anomaly_detection(self):
        def program(inside):
            w = leaf(4)
            with inside(), torch.autograd.detect_anomaly(check_nan=True):
                w.exp().sum().backward()
            return w.grad

        with pytest.warns(UserWarning):
            both(program, refused="anomaly detection")

    def test_kept_gradients_of_results(self):
        def program(inside):
            w = leaf(4)
            with inside():
                x = w.exp()
                x.retain_grad()
                x.register_hook(lambda g: g * 2)
                x.sum().backward()
            return [w.grad, x.grad]

        both(program, breaks=1)

    def test_kept_gradients_where_no_python_runs(self):
        def program(inside):
            w, seen = leaf(4, 3), []
            for _ in range(3):
                with inside():
                    x = w.exp()
                    x.retain_grad()
                    y = x.t().sin()
                    y.retain_grad()
                    z = y.sum()
                    z.retain_grad()
                    z.backward(retain_graph=True)
                    first = x.grad
                    (z * 2).backward()
                    lost = (w * 3).cos()
                    lost.retain_grad()
                    total = lost.sum()
                    del lost
                    total.backward()
                seen += [x.grad, y.grad, z.grad, w.grad.clone(), first is x.grad, x.grad.stride(), y.grad.stride()]
            return seen

        both(program)

    def test_kept_gradients_of_compiled_code_and_over_several_backwards(self):
        fast = dyncomp.optimize(lambda w, v: (w.exp() * v, w - v))

        def program(inside):
            w, v, seen = leaf(4), leaf(4), []
            a, b = fast(w, v)
            c = (a * b).sin()
            for kept in (a, b, c):
                kept.retain_grad()
            for _ in range(2):
                with inside():
                    c.sum().backward(retain_graph=True)
                seen += [one.grad.clone() for one in (a, b, c, w, v)]
            return seen

        _both_with_breaks(program)

    def test_hooks_on_saved_tensors(self):
        def program(inside):
            w, log = leaf(4), []

            def unpack(x):
                log.append("unpacked")
                return x

            with inside(), torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
                w.exp().sin().sum().backward()
            return [w.grad, log]

        both(program, refused="hooks on saved tensors")

    def test_hooks_on_several_tensors(self):
        def program(inside):
            a, b, seen = leaf(4), leaf(4), []
            torch.autograd.graph.register_multi_grad_hook([a, b], lambda grads: seen.append([g.clone() for g in grads]))
            with inside():
                (a * b).sum().backward()
            return seen

        both(program, refused="a hook of torch.autograd.graph")

    def test_a_second_time(self):
        for inside in (contextlib.nullcontext, region):
            w = leaf(4)
            with inside():
                x = w.exp().sum()
                x.backward()
                with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                    x.backward()

    def test_written_in_place_since(self):
        for inside in (contextlib.nullcontext, region):
            w = leaf(4)
            with inside():
                x = w.exp()
                y = x.sum() + (x * x).sum()
                x.detach().add_(1)
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    y.backward()

    def test_without_history(self):
        for inside in (contextlib.nullcontext, region):
            with inside(), pytest.raises(RuntimeError, match="does not require grad"):
                torch.ones(()).backward()

    def test_shapes_that_need_a_gradient(self):
        for inside in (contextlib.nullcontext, region):
            with inside(), pytest.raises(RuntimeError, match="only for scalar outputs"):
                leaf(3).exp().backward()


class TestKept:
    def test_retained_graphs(self):
        def program(inside):
            w, seen = leaf(4), []
            with inside():
                x = w.exp().sum()
                for retain in (True, True, False):
                    x.backward(retain_graph=retain)
                    seen.append(w.grad.clone())
            return seen

        both(program)

    def test_compiled_code_is_freed(self):
        w = leaf(4)
        with region():
            y = _loss(w)
            y.backward()
            with pytest.raises(RuntimeError, match="second time"):
                y.backward()


def _loss(w):
    x = w.exp()
    print(end="")
    return (x * w).sum()


class TestRegion:
    def test_ends_with_the_block(self):
        before = torch.autograd.Variable._execution_engine
        with pytest.raises(KeyError), region():
            assert type(torch.autograd.Variable._execution_engine) is engine.Engine
            raise KeyError
        assert torch.autograd.Variable._execution_engine is before

    def test_nests(self):
        w = leaf(4)
        before = torch.autograd.Variable._execution_engine
        with region():
            with dyncomp.enable():
                w.exp().sum().backward()
            assert dyncomp.stats().graphs == 0
            with dyncomp.disable():
                w.exp().sum().backward()
            assert dyncomp.stats().graphs == 0
            w.grad = None
            with region():
                w.exp().sum().backward()
            assert dyncomp.stats().graphs == 1
            w.grad = None
            w.exp().sum().backward()
        assert torch.autograd.Variable._execution_engine is before
        assert dyncomp.stats().graphs == 1

    def test_is_the_threads_own(self):
        w, x = leaf(4), leaf(4)
        errors = []

        def other():
            try:
                for _ in range(20):
                    w.exp().sum().backward()
            except Exception as error:  # noqa: BLE001 - shown by the main thread
                errors.append(error)

        with region():
            thread = threading.Thread(target=other)
            thread.start()
            for _ in range(20):
                x.sin().sum().backward()
            thread.join()
        assert errors == []
        close([w.grad, x.grad], [20 * w.detach().exp(), 20 * x.detach().cos()])

    def test_in_threads_at_once(self):
        models = [Broken() for _ in range(3)]
        for model in models[1:]:
            model.load_state_dict(models[0].state_dict())
        x, errors = torch.randn(3, 8), []

        def work(model):
            try:
                for _ in range(5):
                    with region():
                        model(x).sum().backward()
            except Exception as error:  # noqa: BLE001 - shown by the main thread
                errors.append(error)

        threads = [threading.Thread(target=work, args=(model,)) for model in models[1:]]
        for thread in threads:
            thread.start()
        for _ in range(5):
            models[0](x).sum().backward()
        for thread in threads:
            thread.join()
        assert errors == []
        for model in models[1:]:
            close([p.grad for p in model.parameters()], [p.grad for p in models[0].parameters()])

    def test_of_an_optimised_function(self):
        model = Broken()
        other = copy.deepcopy(model)
        x = torch.randn(3, 8)

        def step(model):
            loss = model(x).sum()
            loss.backward()
            return loss

        step(model)
        fast = dyncomp.optimize(step, options={"compiled_autograd": True})
        fast(other)
        close([p.grad for p in other.parameters()], [p.grad for p in model.parameters()])
        assert refusals() == {} and broken_in_backward() == []
        assert len(engine._programs[fast.owner].ready) == 1

    def test_inner_functions_that_are_compiled_by_themselves(self):
        model = Broken()
        other = copy.deepcopy(model)
        fast = dyncomp.optimize(other)
        x = torch.randn(3, 8)
        model(x).sum().backward()
        with region():
            fast(x).sum().backward()
        close([p.grad for p in other.parameters()], [p.grad for p in model.parameters()])
        assert refusals() == {} and broken_in_backward() == []


UNARY = (torch.sin, torch.tanh, torch.exp, torch.relu, lambda x: x.t().contiguous(), lambda x: x.softmax(-1), lambda x: x * 2)
BINARY = (torch.add, torch.mul, torch.matmul, lambda x, y: torch.cat([x, y])[::2], lambda x, y: torch.where(x > 0, x, y))


@st.composite
def recipes(draw):
    """Steps (operation, operands, hook, in a compiled function) over a growing list of square matrices."""
    steps = []
    for n in range(2, 2 + draw(st.integers(1, 6))):
        arity = draw(st.integers(1, 2))
        operation = draw(st.integers(0, len(UNARY if arity == 1 else BINARY) - 1))
        operands = [draw(st.integers(0, n - 1)) for _ in range(arity)]
        steps.append((operation, operands, draw(st.sampled_from([None, None, "scale", "note"])), draw(st.booleans())))
    return steps


def run_recipe(steps, inside, fast):
    leaves = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    log, seen = [], []
    leaves[0].register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum()))
    for _ in range(2):
        with inside():
            values = [x * 0.5 for x in leaves]
            for operation, operands, hook, compiled in steps:
                chosen = (UNARY if len(operands) == 1 else BINARY)[operation]
                value = (fast(chosen) if compiled else chosen)(*[values[i] for i in operands])
                if hook == "scale":
                    value.register_hook(lambda g: g * 0.5)
                elif hook == "note":
                    value.register_hook(lambda g: log.append(g.abs().mean()))
                values.append(value)
            sum(value.sum() for value in values[2:]).backward()
        seen.append([None if x.grad is None else x.grad.clone() for x in leaves])
    return [seen, log]


@settings(max_examples=25, deadline=None)
@given(recipes())
def test_random_programs(steps):
    dyncomp.reset()
    torch.manual_seed(0)
    expected = run_recipe(steps, contextlib.nullcontext, lambda f: f)
    torch.manual_seed(0)
    got = run_recipe(steps, lambda: dyncomp.enable(backend="aot_eager", compiled_autograd=True), dyncomp.optimize)
    assert_same(got, expected, "seen", rtol=1e-4, atol=1e-4)
    assert refusals() == {}


def test_sparse_gradients():
    def program(inside):
        table, seen = nn.Embedding(5, 3, sparse=True), []
        for step in range(4):
            with inside():
                table(torch.tensor([[1, 2], [2, step]])).sum().backward()
            seen += [table.weight.grad.is_sparse, table.weight.grad.to_dense()]
            if step == 1:
                table.weight.grad = None
            if step == 2:
                with inside():
                    table.weight.square().sum().backward()
                seen += [table.weight.grad.is_sparse, table.weight.grad.to_dense()]
        return seen

    expected = program(contextlib.nullcontext)
    assert expected[0] and not expected[-2]
    torch.manual_seed(0)
    want = program(contextlib.nullcontext)
    torch.manual_seed(0)
    close(program(region), want)


def test_results_of_one_call_one_after_the_other():
    """A backward of what no other has used up runs, also where kept values of the same call are gone."""

    def program(inside):
        f = dyncomp.optimize(lambda a, b: ((a * b).sum(), (a + b).sin().sum())) if inside is region else lambda a, b: ((a * b).sum(), (a + b).sin().sum())
        seen = []
        for _ in range(2):
            a, b = leaf(3), leaf(3)
            first, second = f(a, b)
            for result, retain in ((first, True), (second, False), (first, False), (first, False)):
                try:
                    with inside():
                        result.backward(retain_graph=retain)
                    seen.append(a.grad.clone())
                except RuntimeError as error:
                    seen.append(str(error))
        return seen

    torch.manual_seed(0)
    want = program(contextlib.nullcontext)
    torch.manual_seed(0)
    close(program(region), want)
    assert set(refusals()) == {"compiled-autograd: a history of which some is used up"}  # compiling f traces a backward: not counted
