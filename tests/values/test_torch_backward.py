"""`loss.backward()` inside captured code: gradients, `.grad` objects, hooks, results with history, whole steps."""

import pytest
import torch

import dyncomp

CAPTURE = {"capture_backward": True}


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3))


def batch(i):
    generator = torch.Generator().manual_seed(i)
    return torch.randn(5, 6, generator=generator), torch.randint(0, 3, (5,), generator=generator)


def both(make_step, calls=3, graphs=None, breaks=0, **options):
    """Runs `make_step(net) -> step(x, y)` plain and compiled on equal models; compares results, gradients, parameters."""
    outcome = []
    for compiled in (False, True):
        net = model()
        step = make_step(net)
        fast = dyncomp.optimize(step, **options) if compiled else step
        results = [fast(*batch(i)) for i in range(calls)]
        outcome.append((results, [p.grad for p in net.parameters()], [p.detach() for p in net.parameters()], net))
    (expected, *theirs, _), (got, *ours, net) = outcome
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    for mine, its in zip(ours[0], theirs[0], strict=True):
        assert (mine is None) == (its is None)
        assert mine is None or mine.stride() == its.stride()
        assert mine is None or not mine.requires_grad
    stats = dyncomp.stats()
    assert stats.graph_breaks == breaks, stats.break_reasons
    assert graphs is None or stats.graphs == graphs
    return net, got


def loss_of(net, x, y):
    return torch.nn.functional.cross_entropy(net(x), y)


def whole(net, none=True):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad(set_to_none=none)
        loss = loss_of(net, x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.parametrize("backend", ["codegen", "aot_eager", "eager"])
@pytest.mark.parametrize("none", [True, False])
def test_a_whole_step_is_one_graph(fresh, backend, none):
    both(lambda net: whole(net, none), calls=5, graphs=2, fullgraph=True, backend=backend, options=CAPTURE)


def test_without_the_option_the_graph_breaks_by_name(fresh):
    both(whole, calls=4, breaks=2)  # the first call meets no gradients and no optimiser state
    assert dyncomp.stats().break_reasons == {"autograd": 2}


def test_gradients_accumulate_into_the_same_object(fresh):
    def make(net):
        def step(x, y):
            loss_of(net, x, y).backward()

        return step

    net, _ = both(make, options=CAPTURE)
    kept = [p.grad for p in net.parameters()]
    fast = dyncomp.optimize(make(net), options=CAPTURE)
    fast(*batch(7))
    assert all(p.grad is grad for p, grad in zip(net.parameters(), kept, strict=True))


def test_two_backwards_in_one_step(fresh):
    def make(net):
        def step(x, y):
            loss_of(net, x, y).backward()
            (net(x) ** 2).mean().backward()

        return step

    both(make, options=CAPTURE, fullgraph=True)


def test_a_gradient_that_is_given(fresh):
    def make(net):
        def step(x, y):
            out = net(x)
            out.backward(torch.ones_like(out) * 0.5)

        return step

    both(make, options=CAPTURE, fullgraph=True)


def test_layouts_and_shared_memory_of_gradients(fresh):
    """Expanded gradients, one gradient for two parameters, a transposed parameter."""

    def run(compiled):
        torch.manual_seed(0)
        a, b = torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(3, 4))
        c, d = torch.nn.Parameter(torch.randn(4, 3).t()), torch.nn.Parameter(torch.randn(3, 4))

        def step(x):
            ((a + b) * x).sum().backward()
            (c * x).sum().backward()
            d.sum().backward()

        (dyncomp.optimize(step, fullgraph=True, options=CAPTURE) if compiled else step)(torch.randn(3, 4))
        return a, b, c, d

    expected, got = run(False), run(True)
    for e, g in zip(expected, got, strict=True):
        torch.testing.assert_close(g.grad, e.grad)
        assert g.grad.stride() == e.grad.stride()
    assert got[0].grad is not got[1].grad
    assert got[0].grad.data_ptr() != got[1].grad.data_ptr()


def test_a_returned_loss_has_a_used_up_history(fresh):
    def make(net):
        def step(x, y):
            loss = loss_of(net, x, y)
            loss.backward()
            return loss

        return step

    _, results = both(make, options=CAPTURE, fullgraph=True)
    loss = results[-1]
    assert loss.requires_grad
    assert not loss.is_leaf
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_result_with_another_history_is_left_to_eager(fresh):
    def make(net):
        def step(x, y):
            out = net(x)
            torch.nn.functional.cross_entropy(net(x), y).backward()
            return out

        return step

    _, results = both(make, options=CAPTURE)
    results[-1].sum().backward()
    assert dyncomp.stats().fallbacks["training-graph-eager"] == dyncomp.stats().graphs


def test_hooks_break_by_name(fresh):
    seen = []

    def make(net):
        net[0].weight.register_hook(lambda g: seen.append(1))

        def step(x, y):
            loss_of(net, x, y).backward()

        return step

    both(make, breaks=1, options=CAPTURE)
    assert len(seen) == 6
    assert dyncomp.stats().break_reasons == {"autograd": 1}


def test_a_hook_that_comes_later_is_seen(fresh):
    net, seen = model(), []

    def step(x, y):
        net.zero_grad()
        loss_of(net, x, y).backward()

    fast = dyncomp.optimize(step, options=CAPTURE)
    for i in range(3):
        fast(*batch(i))
    net[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
    fast(*batch(3))
    assert len(seen) == 1


def test_hooks_on_the_node_that_accumulates(fresh):
    """As distributed training registers them; they may come after the step was compiled."""

    def run(compiled):
        net, seen = model(), []
        weight = net[0].weight

        def step(x, y):
            net.zero_grad()
            loss_of(net, x, y).backward()

        fast = dyncomp.optimize(step, options=CAPTURE) if compiled else step
        fast(*batch(0))
        node = weight.view_as(weight).grad_fn.next_functions[0][0]
        node.register_prehook(lambda grads: seen.append(grads[0].sum()))
        node.register_hook(lambda *_: seen.append(weight.grad.sum()))
        for i in range(2):
            fast(*batch(i))
        return seen, [p.grad for p in net.parameters()]

    expected = run(False)
    torch.testing.assert_close(run(True), expected, rtol=1e-5, atol=1e-6)
    assert len(expected[0]) == 4
    assert dyncomp.stats().break_reasons == {"autograd": 1}


@pytest.mark.parametrize("backend", ["codegen", "aot_eager", "eager"])
@pytest.mark.parametrize("dynamic", [True, None])
def test_batches_of_any_size_are_one_graph(fresh, dynamic, backend):
    def run(compiled):
        net = model()
        step = whole(net)
        fast = dyncomp.optimize(step, fullgraph=True, dynamic=dynamic, backend=backend, options=CAPTURE) if compiled else step
        losses = []
        for n in (5, 7, 9, 4, 2, 1):
            x, y = batch(n)
            losses.append(fast(x.repeat(2, 1)[:n], y.repeat(2)[:n]))
        return losses, [p.detach() for p in net.parameters()], [p.grad for p in net.parameters()]

    expected, got = run(False), run(True)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)
    stats = dyncomp.stats()
    # Without and with gradients and state, and a batch of one; those that vary join in with dynamic=None.
    assert stats.graphs <= (3 if dynamic else 4)
    assert not stats.fallbacks


def test_a_symbolic_loss_has_a_used_up_history(fresh):
    net = model()

    def step(x, y):
        loss = loss_of(net, x, y)
        loss.backward()
        return loss

    fast = dyncomp.optimize(step, fullgraph=True, dynamic=True, options=CAPTURE)
    for n in (5, 4):
        x, y = batch(n)
        loss = fast(x[:n], y[:n])
        assert loss.requires_grad
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    assert not dyncomp.stats().fallbacks


def test_history_from_outside_breaks_by_name(fresh):
    net = model()
    first = torch.nn.Linear(6, 6)

    def step(x, y):
        loss_of(net, x, y).backward()

    x, y = batch(0)
    dyncomp.optimize(step, options=CAPTURE)(first(x), y)
    assert first.weight.grad is not None
    assert dyncomp.stats().break_reasons == {"autograd": 1}


def test_tied_parameters_get_one_gradient(fresh):
    def run(compiled):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        net[1].weight = net[0].weight

        def step(x):
            net(x).pow(2).sum().backward()

        fast = dyncomp.optimize(step, options=CAPTURE) if compiled else step
        fast(torch.ones(2, 4))
        return net[0].weight.grad

    torch.testing.assert_close(run(True), run(False))


def test_parameters_that_become_one(fresh):
    """They were taken for different tensors, by one guard however many there are: as one they get one gradient."""

    def step(parameters, x):
        for p in parameters:
            p.grad = None
        sum((p * x).sin().sum() for p in parameters).backward()
        return [p.grad for p in parameters]

    def run(call):
        ps = [torch.full((3,), float(i), requires_grad=True) for i in range(12)]
        x = torch.arange(3.0)
        return [call(given, x) for given in (ps, [*ps[:5], ps[0], *ps[6:]], [ps[0]] * 12)]

    fast = dyncomp.optimize(step, options=CAPTURE)
    torch.testing.assert_close(run(fast), run(step))
    guards = dyncomp.explain(step, options=CAPTURE)([torch.ones(2, requires_grad=True) for _ in range(12)], torch.ones(2)).guards
    assert sum("different objects" in str(guard) or " is none of " in str(guard) for guard in guards) <= 4
    assert not any(" is not L" in str(guard) for guard in guards)


@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients_are_no_views(fresh, dynamic):
    """Code from before `set_to_none` detaches them in place, which views refuse."""

    for compiled in (False, True):
        net = model()

        def step(x, y, net=net):
            loss = loss_of(net, x, y)
            loss.backward()
            return loss.detach()

        fast = dyncomp.optimize(step, dynamic=dynamic, options=CAPTURE) if compiled else step
        for i in range(3):
            for p in net.parameters():
                if p.grad is not None:
                    p.grad.detach_().zero_()
            fast(*batch(i))
        assert not any(p.grad._is_view() for p in net.parameters())


def test_zero_grad_alone(fresh):
    def run(compiled, none):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=True)

        def clear():
            optimizer.zero_grad(set_to_none=none)
            return next(net.parameters()) * 2

        fast = dyncomp.optimize(clear, fullgraph=True) if compiled else clear
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        kept = [p.grad for p in net.parameters()]
        fast()
        return [p.grad for p in net.parameters()], kept

    for none in (True, False):
        expected, _ = run(False, none)
        got, kept = run(True, none)
        if none:
            assert got == expected == [None] * len(expected)
        else:
            torch.testing.assert_close(got, expected)
            assert all(a is b for a, b in zip(got, kept, strict=True))
