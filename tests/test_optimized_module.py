"""An optimised module is still itself."""

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

import dyncomp


class Net(nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 2)

    def forward(self, x, double=False):
        y = self.second(torch.relu(self.norm(self.first(x)))) * self.scale
        return y * 2 if double else y

    def features(self, x):
        return torch.relu(self.first(x))


@pytest.fixture
def net():
    return Net().eval()


def test_class_and_keys(net):
    fast = dyncomp.optimize(net)
    assert isinstance(fast, Net) and type(fast).__name__ == "Net"
    assert list(fast.state_dict()) == list(net.state_dict())
    assert [n for n, _ in fast.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert fast.first is net.first


def test_same_numbers(net):
    fast, x = dyncomp.optimize(net), torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x))
        torch.testing.assert_close(fast(x, double=True), net(x, True))
    torch.testing.assert_close(fast(x), net(x))


def test_writes_are_seen_from_both_sides(net):
    fast, x = dyncomp.optimize(net), torch.randn(3, 4)
    fast(x)
    net.scale = 3.0
    torch.testing.assert_close(fast(x), net(x))
    fast.extra = 5
    assert net.extra == 5
    fast.second = nn.Linear(8, 3)
    assert net(x).shape == fast(x).shape == (3, 3)
    fast.train()
    assert net.training and net.norm.training
    net.eval()
    assert not fast.training


def test_checkpoints_with_the_other_prefix_load(net):
    fast = dyncomp.optimize(net)
    prefixed = {f"_orig_mod.{k}": torch.zeros_like(v) for k, v in net.state_dict().items()}
    fast.load_state_dict(prefixed)
    assert float(net.first.weight.detach().abs().sum()) == 0
    fast.load_state_dict({k: torch.ones_like(v) for k, v in net.state_dict().items()})
    assert float(net.first.weight.detach().min()) == 1


def test_deepcopy_is_optimised_and_apart(net):
    fast, x = dyncomp.optimize(net), torch.randn(2, 4)
    other = copy.deepcopy(fast)
    torch.testing.assert_close(other(x), net(x))
    with torch.no_grad():
        other.first.weight.zero_()
    assert float(net.first.weight.detach().abs().sum()) > 0
    assert isinstance(other, Net)


def test_pickle(net):
    fast, x = dyncomp.optimize(net), torch.randn(2, 4)
    again = pickle.loads(pickle.dumps(fast))
    torch.testing.assert_close(again(x), net(x))
    buffer = io.BytesIO()
    torch.save(fast, buffer)
    buffer.seek(0)
    torch.testing.assert_close(torch.load(buffer, weights_only=False)(x), net(x))


def test_hooks_added_later(net):
    fast, x = dyncomp.optimize(net), torch.randn(2, 4)
    with torch.no_grad():
        plain = fast(x)
        handle = net.register_forward_hook(lambda module, args, out: out + 100)
        torch.testing.assert_close(fast(x), plain + 100)
        inner = fast.first.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
        torch.testing.assert_close(fast(x), net(x))
        handle.remove()
        inner.remove()
        torch.testing.assert_close(fast(x), plain)


def test_other_methods_and_repeated_optimize(net):
    fast, x = dyncomp.optimize(dyncomp.optimize(net)), torch.randn(2, 4)
    torch.testing.assert_close(fast.features(x), net.features(x))
    torch.testing.assert_close(fast(x), net(x))
    method = dyncomp.optimize(net.features)
    torch.testing.assert_close(method(x), net.features(x))


def test_freed_with_its_module(net):
    weight = weakref.ref(net.first.weight)
    fast = dyncomp.optimize(Net().eval())
    other = weakref.ref(fast.first.weight)
    with torch.no_grad():
        fast(torch.randn(2, 4))
    del fast
    gc.collect()
    assert other() is None and weight() is not None


def test_a_class_with_init_subclass():
    made = []

    class Base(nn.Module):
        def __init_subclass__(cls, **kwargs):
            made.append(cls.__name__)
            super().__init_subclass__(**kwargs)

    class Child(Base):
        def forward(self, x):
            return x + 1

    fast = dyncomp.optimize(Child())
    assert made == ["Child"] and torch.equal(fast(torch.zeros(1)), torch.ones(1))


def test_scripted_modules_are_refused():
    with pytest.raises(dyncomp.errors.OptionError, match="TorchScript"):
        dyncomp.optimize(torch.jit.script(nn.Linear(2, 2)))
