"""Weights that autocast casts once for a whole block: graphs and calls of one block share them, as eager does."""

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dyncomp
from tests.support import assert_same

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])


def amp(**kwargs):
    return torch.autocast("cpu", dtype=torch.bfloat16, **kwargs)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.scale = nn.Parameter(torch.rand(16) + 0.5)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))) * self.scale


class Broken(Net):
    """Each weight once in a graph, in three graphs."""

    def forward(self, x):
        h = self.first(x)
        print(end="")
        h = self.first(torch.tanh(h))
        print(end="")
        return self.second(self.first(h))


class UsedDirectly(Net):
    def forward(self, x):
        return super().forward(x) + self.first.weight.sum()


def three():
    return [torch.randn(4, 16) for _ in range(3)]


def gradients(net):
    return [p.grad for p in net.parameters()]


def one_call(net, fast):
    with amp():
        loss = fast(three()[0]).float().pow(2).sum()
    loss.backward()
    return [loss, *gradients(net)]


def three_calls(net, fast):
    with amp():
        loss = sum(fast(x).float().pow(2).sum() for x in three())
    loss.backward()
    return [loss, *gradients(net)]


def beside_eager(net, fast):
    a, b, c = three()
    with amp():
        loss = fast(a).float().pow(2).sum() + net.forward(b).float().pow(2).sum() + net.first(c).float().sum()
    loss.backward()
    return [loss, *gradients(net)]


def backward_inside(net, fast):
    with amp():
        for x in three():
            fast(x).float().pow(2).sum().backward(retain_graph=True)
    return gradients(net)


def block_by_block(net, fast):
    for x in three():
        with amp():
            loss = fast(x).float().pow(2).mean()
        loss.backward()
    return gradients(net)


def written_in_the_block(net, fast):
    a, b, _ = three()
    with amp():
        before = fast(a).float().sum()
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(2.0)
        after = fast(b).float().sum()  # eager's cast is stale
        with torch.no_grad():
            without = fast(b)
    return [before.detach(), after.detach(), without.detach()]


def cleared(net, fast):
    a, b, _ = three()
    with amp():
        before = fast(a).float().sum()
        torch.clear_autocast_cache()
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(2.0)
        after = fast(b).float().sum()
    return [before.detach(), after.detach()]


def without_a_cache(net, fast):
    a, b, _ = three()
    with amp(cache_enabled=False):
        loss = fast(a).float().pow(2).sum() + fast(b).float().pow(2).sum()
    loss.backward()
    return [loss, *gradients(net)]


def blocks_in_blocks(net, fast):
    a, b, c = three()
    with amp():
        loss = fast(a).float().sum()
        with torch.autocast("cpu", enabled=False):
            loss = loss + fast(b).pow(2).sum()
        with amp():
            loss = loss + fast(c).float().pow(2).sum()
    loss.backward()
    return [loss, *gradients(net)]


def another_dtype_inside(net, fast):
    a, b, _ = three()
    with amp():
        loss = fast(a).float().sum()
        try:
            with torch.autocast("cpu", dtype=torch.float16):
                fast(b)
        except RuntimeError as error:  # the cache gives what it has
            return [loss.detach(), str(error)]
    return [loss.detach(), "no error"]


def without_gradients_first(net, fast):
    a, b, _ = three()
    with amp():
        with torch.no_grad():
            before = fast(a)
        loss = fast(b).float().pow(2).sum()
    if loss.requires_grad:
        loss.backward()
    return [before, loss, *gradients(net)]


def frozen(net, fast):
    net.first.weight.requires_grad_(False)
    a, b, _ = three()
    with amp():
        loss = fast(a).float().pow(2).sum() + fast(b).float().sum()
    loss.backward()
    net.first.weight.requires_grad_(True)
    return [loss, *gradients(net)]


def checkpointed(net, fast):
    a, b, _ = three()
    with amp():
        loss = checkpoint(fast, a, use_reentrant=False).float().pow(2).sum() + fast(b).float().sum()
    loss.backward()
    return [loss, *gradients(net)]


def some_gradients(net, fast):
    with amp():
        loss = fast(three()[0]).float().pow(2).sum()
    return list(torch.autograd.grad(loss, [net.first.weight]))


def hooks_on_weights(net, fast):
    told = []
    handles = [p.register_hook(lambda g, name=name: told.append((name, g.dtype))) for name, p in net.named_parameters()]
    with amp():
        loss = fast(three()[0]).float().pow(2).sum()
    loss.backward()
    for handle in handles:
        handle.remove()
    return [told, *gradients(net)]


STORIES = [
    one_call, three_calls, beside_eager, backward_inside, block_by_block, written_in_the_block, cleared, without_a_cache, blocks_in_blocks,
    another_dtype_inside, without_gradients_first, frozen, checkpointed, some_gradients, hooks_on_weights,
]  # fmt: skip


def told(story, module, compiled):
    seen = []
    fast = compiled(module)
    for seed in range(2):
        module.zero_grad()
        torch.manual_seed(seed)
        seen.append([one.detach().clone() if isinstance(one, torch.Tensor) else one for one in story(module, fast)])
    return seen


@BACKENDS
@pytest.mark.parametrize("kind", [Net, Broken, UsedDirectly])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_as_eager(story, kind, backend):
    torch.manual_seed(0)
    module = kind()
    want = told(story, copy.deepcopy(module), lambda m: m)
    before = dict(dyncomp.stats().fallbacks)
    got = told(story, module, lambda m: dyncomp.optimize(m, backend=backend))
    assert_same(got, want, "story", 1e-6, 1e-6)
    new = {name for name, count in dyncomp.stats().fallbacks.items() if count > before.get(name, 0)}
    assert new <= {"autocast-cached-otherwise"} and (not new or story is another_dtype_inside), new


@BACKENDS
def test_second_order(backend):
    """The second order runs in eager, from the same casts; a weight that is also used directly is cast anew there."""
    for kind in (Net, UsedDirectly):
        seen = []
        for compiled in (lambda m: m, lambda m: dyncomp.optimize(m, backend=backend)):
            torch.manual_seed(0)
            net = kind()
            fast = compiled(net)
            x = torch.randn(4, 16, requires_grad=True)
            with amp():
                loss = fast(x).float().pow(2).sum() * 1e-2
            slopes = torch.autograd.grad(loss, [x, *net.parameters()], create_graph=True)
            sum(one.pow(2).sum() for one in slopes).backward()
            seen.append([x.grad, *gradients(net)])
        assert_same(seen[1], seen[0], "second order", 2e-2, 1e-3)


@BACKENDS
def test_one_cast_in_a_block(backend):
    """A weight is cast once in a block, however many calls there are, and the cast dies with the block and the graph."""
    weight = torch.randn(16, 16, requires_grad=True)
    x, fast = torch.randn(4, 16).bfloat16(), dyncomp.optimize(lambda x, w: F.linear(x, w).relu(), backend=backend)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            with amp():
                fast(x, weight)
            with amp():
                with torch.profiler.profile() as profile:
                    results = [fast(x, weight) for _ in range(3)]
                casts = [event for event in profile.events() if event.name == "aten::_to_copy"]
                held = weakref.ref(dyncomp._frame._exec.cached_cast(weight, torch.bfloat16))
            assert len(results) == 3 and len(casts) == 1
            del results, profile, casts
            gc.collect()
            assert held() is None
