"""Many training steps leave nothing behind: no tensors, no Python objects, no compiled code, no memory."""

import gc
import os
import weakref

import pytest
import torch

import dyncomp
from dyncomp._frame import _exec


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def census():
    gc.collect()
    objects = gc.get_objects()
    tensors = sum(issubclass(type(o), torch.Tensor) for o in objects)
    stats = dyncomp.stats()
    return len(objects), tensors, stats.graphs, stats.recompiles, _exec.pool_stats()["live_bytes"]


def train(fast, parameters, batches):
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    for x in batches:
        optimizer.zero_grad()
        fast(x).pow(2).mean().backward()
        optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_thousand_steps(dynamic, fresh):
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.GELU(), torch.nn.Linear(16, 4)
    )
    fast = dyncomp.optimize(net, dynamic=dynamic)
    sizes = [4 + step % 7 if dynamic else 6 for step in range(1000)]
    train(fast, net.parameters(), [torch.randn(n, 8) for n in sizes[:50]])
    before, memory = census(), resident()
    train(fast, net.parameters(), (torch.randn(n, 8) for n in sizes))
    after = census()
    assert after[1] <= before[1] and after[2:] == before[2:]  # what other tests left may go meanwhile
    assert after[0] - before[0] < 100
    assert resident() - memory < 16 << 20


def test_steps_that_do_not_end_well(fresh):
    """No backward, a backward that raises, a retained graph, a written input: nothing outlives its step."""

    def f(v, w):
        v.mul_(w)
        return (v * w).sum(), v.exp()

    fast = dyncomp.optimize(f)
    w = torch.randn(5, requires_grad=True)

    def raising(gradient):
        raise ZeroDivisionError

    def step(kind):
        x = torch.randn(5, requires_grad=True)
        v = x * 1
        loss, other = fast(v, w)
        alive = [weakref.ref(t) for t in (x, v, loss, other)]
        if kind == "raises":
            x.register_hook(raising)
            with pytest.raises(ZeroDivisionError):
                loss.backward()
        elif kind == "retained":
            loss.backward(retain_graph=True)
            other.sum().backward()
        elif kind == "plain":
            (loss + v.sum()).backward()
        return alive

    kinds = ["none", "raises", "retained", "plain"]
    for kind in kinds:
        step(kind)
    w.grad = None
    before = census()
    for number in range(200):
        alive = step(kinds[number % 4])
        w.grad = None
        gc.collect(0) if kinds[number % 4] == "raises" else None
        assert [ref() for ref in alive if ref() is not None] == [] or kinds[number % 4] == "raises"
    after = census()
    assert after[1] <= before[1] and after[2:] == before[2:] and after[0] - before[0] < 100  # what other tests left may go meanwhile


def test_compiled_code_goes_with_the_module(fresh):
    """Saved tensors, backwards and plans go once the module and its outputs are gone."""
    refs = []
    for _ in range(3):
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
        fast = dyncomp.optimize(net)
        fast(torch.randn(2, 4)).sum().backward()
        refs.append(weakref.ref(net))
        del net, fast
        gc.collect()
    assert [ref() for ref in refs] == [None] * 3
