"""What autograd finds behind the outputs of compiled code: hooks of leaves in eager's order, views with their own formulas,
versions of what eager keeps, gradients that are batched, operations by name in anomaly mode."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])


def r(*shape):
    return torch.randn(*shape, requires_grad=True)


def layout(*tensors):
    return [(t.shape, t.stride(), t.storage_offset()) for t in tensors]


class TestOrderOfLeaves:
    @BACKENDS
    @given(order=st.permutations(range(5)), tied=st.booleans())
    @settings(max_examples=10, deadline=None)
    def test_hooks_run_as_eagers_backward_comes_to_the_leaves(self, backend, order, tied):
        def f(*leaves):
            total = leaves[order[0]].sin()
            for index in order[1:]:
                total = total * leaves[index] + (leaves[index] if tied else 1)
            return total.sum()

        def story(compiled):
            fast, log = compiled(f), []
            for _ in range(2):
                leaves = [r(3) for _ in order]
                for i, leaf in enumerate(leaves):
                    leaf.register_hook(lambda g, i=i: log.append(i))
                    leaf.register_post_accumulate_grad_hook(lambda p, i=i: log.append(("done", i)))
                fast(*leaves).backward()
            return log, [leaf.grad for leaf in leaves]

        same_story(story, backend)

    @BACKENDS
    def test_optimizer_steps_in_hooks_of_a_module(self, backend):
        def story(compiled):
            net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
            fast, log = compiled(net), []

            def update(name):
                def hook(p):
                    log.append(name)
                    with torch.no_grad():
                        p -= 0.1 * p.grad
                    p.grad = None

                return hook

            for name, p in net.named_parameters():
                p.register_post_accumulate_grad_hook(update(name))
            for _ in range(3):
                fast(torch.randn(3, 4)).square().sum().backward()
            return log, [p.detach() for p in net.parameters()]

        same_story(story, backend)

    def test_only_hooks_put_nodes_before_leaves(self):
        fast = dyncomp.optimize(lambda x, w: (x * w).sum())
        plain = fast(r(3), r(3)).grad_fn
        x = r(3)
        x.register_hook(lambda g: None)
        hooked = fast(x, r(3)).grad_fn
        assert {node.name() for node, _ in plain.next_functions} == {"torch::autograd::AccumulateGrad"}
        assert {node.name() for node, _ in hooked.next_functions} == {"BeforeLeaf"}

    def test_in_a_region_with_compiled_autograd(self):
        log = []
        fast = dyncomp.optimize(lambda a, b, c: (a.exp() * b).sin() @ c)
        for region in (False, True):
            leaves, seen = [torch.ones(2, 2, requires_grad=True) for _ in range(3)], []
            for i, leaf in enumerate(leaves):
                leaf.register_hook(lambda g, i=i, seen=seen: seen.append(i))
            loss = fast(*leaves).sum()
            if region:
                with dyncomp.enable(compiled_autograd=True):
                    loss.backward()
            else:
                loss.backward()
            log.append((seen, [leaf.grad for leaf in leaves]))
        assert log[0][0] == log[1][0] and all(map(torch.equal, log[0][1], log[1][1]))


class TestViews:
    @BACKENDS
    def test_gradients_of_inputs_share_memory_and_layout_as_in_eager(self, backend):
        def story(compiled):
            fast = compiled(lambda x, y: (x.view(-1), y.t(), y[1:].unsqueeze(0)))
            x, y = r(2, 3), r(2, 3)
            flat, turned = torch.randn(6), torch.randn(3, 2)
            a, b, _ = fast(x, y)
            gx, gy = torch.autograd.grad((a, b), (x, y), (flat, turned))
            return layout(gx, gy), gx.data_ptr() == flat.data_ptr(), gy.data_ptr() == turned.data_ptr()

        same_story(story, backend, fallbacks=("backward",))

    @BACKENDS
    def test_chains_and_one_of_several(self, backend):
        def f(x):
            y = x * 2
            return y.t()[1:].unsqueeze(0).expand(2, -1, -1), y.unbind(1)[2], y.diagonal(), x.unfold(0, 2, 1), x.split([1, 2], 1)[1]

        def story(compiled):
            fast, told = compiled(f), []
            for _ in range(2):
                x = r(3, 3)
                outs = fast(x)
                told += [o.grad_fn.name() for o in outs]
                torch.stack([(o * torch.randn(o.shape)).sum() for o in outs]).sum().backward()
                told += [layout(*outs), x.grad]
            return told

        same_story(story, backend)

    @BACKENDS
    def test_writes_to_one_of_several_views_are_eagers_error(self, backend):
        def story(compiled):
            first, _ = compiled(lambda x: (x * 2).split(2))(r(4))
            first.add_(1)

        same_story(story, backend, errors=True)


class TestVersions:
    @BACKENDS
    @pytest.mark.parametrize("f", [torch.exp, torch.sigmoid, torch.relu, torch.sin, lambda y: torch.softmax(y, 0)])
    def test_a_written_output_that_eager_keeps(self, backend, f):
        def story(compiled):
            x, w = r(3), r(3)
            y = compiled(lambda x, w: f(x * w))(x, w)
            with torch.no_grad():
                y.mul_(2)
            try:
                y.sum().backward()
            except RuntimeError as error:
                return str(error).partition(", which")[0]
            return x.grad, w.grad

        same_story(story, backend)


@BACKENDS
def test_batched_gradients(backend):
    def story(compiled):
        fast = compiled(lambda x, w: (x * w).sin())
        x, w = r(3), r(3)
        rows = torch.autograd.grad(fast(x, w), (x, w), torch.eye(3), is_grads_batched=True)
        y = fast(x, w)
        by_hand = torch.vmap(lambda one: torch.autograd.grad(y, x, one, retain_graph=True)[0])(torch.eye(3))
        weighted = torch.vmap(lambda _: torch.autograd.grad(y, w, torch.ones(3), retain_graph=True)[0])(torch.eye(2))
        return rows, by_hand, weighted, torch.autograd.functional.jacobian(lambda x: fast(x, w), x, vectorize=True)

    same_story(story, backend, fallbacks=("backward-eager", "double-backward-eager"))


@BACKENDS
def test_anomaly_mode_names_the_operation(backend):
    def story(compiled):
        x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
        with torch.autograd.detect_anomaly():
            compiled(lambda x: (x.log() * 0).sum())(x).backward()

    with pytest.warns(UserWarning):
        same_story(story, backend, errors=True, fallbacks=("backward-eager",))


class TestWhatIsNotReached:
    """Eager does not run hooks of leaves that no gradient leads to."""

    def story(self, use, wrap=lambda leaf: leaf):
        def told(compiled):
            fast = compiled(lambda x, w: ((x * 2).sum(), (w * 3).sum()))
            seen = []
            for _ in range(3):
                x, w = r(3), r(3)
                for name, leaf in (("x", x), ("w", w)):
                    leaf.register_hook(lambda g, name=name, seen=seen: seen.append((name, g.clone())))
                    leaf.register_post_accumulate_grad_hook(lambda p, name=name, seen=seen: seen.append((name, "done")))
                use(*fast(wrap(x), wrap(w)), w)
                seen += [x.grad, w.grad]
            return seen

        return told

    @BACKENDS
    @pytest.mark.parametrize("wrap", [lambda leaf: leaf, torch.sin], ids=["leaves", "results"])
    def test_one_loss_of_two(self, backend, wrap):
        same_story(self.story(lambda a, b, w: a.backward(), wrap), backend, fallbacks=("backward",))
        same_story(self.story(lambda a, b, w: b.backward(), wrap), backend, fallbacks=("backward",))

    @BACKENDS
    def test_one_after_the_other(self, backend):
        def use(a, b, w):
            a.backward(retain_graph=True)
            b.backward(retain_graph=True)
            a.backward()

        same_story(self.story(use), backend, fallbacks=("backward",))

    @BACKENDS
    def test_reached_in_another_way(self, backend):
        same_story(self.story(lambda a, b, w: (a + w.sum()).backward()), backend, fallbacks=("backward",))
        same_story(self.story(lambda a, b, w: (a * w.sum() + w[0]).backward()), backend, fallbacks=("backward",))

    @BACKENDS
    def test_after_a_backward_that_failed(self, backend):
        def story(compiled):
            x, w = r(3), r(3)

            def fail(g):
                raise ValueError("no")

            handle = x.register_hook(fail)
            a, b = compiled(lambda x, w: ((x * 2).sum(), (w * 3).sum()))(x, w)
            with pytest.raises(ValueError, match="no"):
                a.backward(retain_graph=True)
            handle.remove()
            a.backward(retain_graph=True)
            b.backward()
            return x.grad, w.grad

        same_story(story, backend, fallbacks=("backward",))
