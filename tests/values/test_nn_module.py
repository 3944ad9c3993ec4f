"""nn.Module in captured code: attributes, calls, hooks, containers, written state, the layers of torch.nn."""

import pytest
import torch
from torch import nn

import dyncomp
from tests.support import assert_same, check

X = torch.randn(2, 4)


def eager(function, *args, **kwargs):
    return check(function, *args, backend="eager", **kwargs)


LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "bilinear": (lambda: Both(nn.Bilinear(4, 4, 3)), (2, 4)),
    "conv1d": (lambda: nn.Conv1d(4, 3, 2), (2, 4, 5)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, padding="same"), (1, 3, 6, 6)),
    "conv2d_circular": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (1, 3, 6, 6)),
    "conv_transpose": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (1, 3, 6, 6)),
    "layer_norm": (lambda: nn.LayerNorm(4), (2, 4)),
    "rms_norm": (lambda: nn.RMSNorm(4), (2, 4)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
    "batch_norm": (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)),
    "batch_norm_eval": (lambda: nn.BatchNorm2d(3).eval(), (2, 3, 4, 4)),
    "batch_norm_untracked": (lambda: nn.BatchNorm1d(4, track_running_stats=False), (2, 4)),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, track_running_stats=True), (2, 3, 4, 4)),
    "dropout": (lambda: nn.Dropout(0.5), (2, 4)),
    "dropout_eval": (lambda: nn.Dropout(0.5).eval(), (2, 4)),
    "activations": (
        lambda: nn.Sequential(
            nn.ReLU(), nn.GELU(), nn.SiLU(), nn.ELU(), nn.Hardswish(), nn.PReLU(), nn.Softmax(-1)
        ),
        (2, 4),
    ),
    "in_place_relu": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), (2, 4)),
    "pooling": (
        lambda: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (1, 3, 8, 8),
    ),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="nearest"), (1, 3, 4, 4)),
    "padding": (lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.ZeroPad2d(2)), (1, 3, 4, 4)),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), (1, 4, 3, 3)),
    "lstm": (lambda: nn.LSTM(4, 3, num_layers=2, batch_first=True), (2, 5, 4)),
    "gru": (lambda: nn.GRU(4, 3, bidirectional=True), (5, 2, 4)),
    "rnn_cell": (lambda: nn.LSTMCell(4, 3), (2, 4)),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (2, 5, 4)),
    "encoder_eval": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).eval(),
        (2, 5, 4),
    ),
    "decoder_layer": (lambda: Twice(nn.TransformerDecoderLayer(4, 2, 8).eval()), (5, 2, 4)),
    "attention": (lambda: Thrice(nn.MultiheadAttention(4, 2, batch_first=True).eval()), (2, 5, 4)),
    "unfold": (lambda: nn.Unfold(2), (1, 3, 4, 4)),
    "cosine": (lambda: Twice(nn.CosineSimilarity()), (2, 4)),
    "loss": (lambda: Twice(nn.MSELoss()), (2, 4)),
}


class Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, x)


Both = Twice


class Thrice(Twice):
    def forward(self, x):
        return self.inner(x, x, x)


@pytest.mark.parametrize("no_grad", [False, True], ids=["grad", "no_grad"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer(name, no_grad):
    make, shape = LAYERS[name]
    module, x = make(), torch.randn(shape)
    left_to_eager = name == "lstm" and not no_grad  # its oneDNN kernel keeps a workspace of a size of its own
    counts = {"graphs": None, "breaks": None} if left_to_eager else {}
    before = dyncomp.stats().break_reasons.get("fake-failed", 0)
    with torch.set_grad_enabled(not no_grad):
        eager(lambda m, x: m(x), module, x, **counts)
    assert (dyncomp.stats().break_reasons.get("fake-failed", 0) > before) == left_to_eager


def test_embedding():
    eager(lambda m, i: m(i), nn.Embedding(10, 4, padding_idx=0), torch.tensor([[1, 0, 3]]))


class Net(nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.table = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Identity()})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.register_buffer("offset", torch.ones(4))
        self.names = ["a", "b"]
        self.flag = True

    @property
    def doubled(self):
        return self.scale * 2

    def helper(self, x, *, by=1):
        return x * by

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        for i in range(len(self.layers)):
            x = x + self.layers[i](x) + self.layers[-1](x)
        for name, module in self.table.items():
            x = module(x) if name in self.names else x
        for weight in self.weights:
            x = x * weight
        x = self.body[0](self.body(x)) + self.offset
        if self.flag and self.training:
            x = self.helper(x, by=self.doubled)
        return x


def test_members_and_containers():
    eager(lambda m, x: m(x), Net(), X)
    eager(lambda m, x: m(x), Net().eval(), X)


def test_walks_over_modules():
    def f(m, x):
        count = sum(p.numel() for p in m.parameters()) + len(list(m.children())) + len(list(m.buffers()))
        names = [name for name, _ in m.named_parameters()]
        return x * count, names, "layers" in dict(m.named_children())

    eager(f, Net(), X)


def test_instances_share_one_graph():
    function = dyncomp.optimize(lambda m, x: m(x), backend="eager")
    before = dyncomp.stats().graphs
    for _ in range(3):
        net = Net()
        assert_same(function(net, X), net(X))
    assert dyncomp.stats().graphs == before + 1


def test_changes_of_a_module_are_seen():
    net = Net()
    fast = dyncomp.optimize(lambda m, x: m(x), backend="eager")

    def same():
        for _ in range(2):
            assert_same(fast(net, X), net(X))

    same()
    net.eval()
    same()
    net.names.remove("b")
    same()
    net.layers[0] = nn.Linear(4, 4, bias=False)
    same()
    net.layers.append(nn.Identity())
    same()
    net.layers[1].forward = lambda x: x * 3
    same()
    net.layers[2].weight = nn.Parameter(torch.zeros(4, 4))
    same()
    net.offset = torch.zeros(4)
    same()
    net.scale = 5.0
    net.train()
    same()
    Net.scale = 7.0
    del net.scale
    try:
        same()
    finally:
        Net.scale = 2.0


def test_hooks():
    net, seen = Net(), []
    fast = dyncomp.optimize(lambda m, x: m(x), backend="eager")
    assert_same(fast(net, X), net(X))
    handles = [
        net.layers[0].register_forward_hook(lambda m, args, out: out * 2),
        net.layers[1].register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
        net.register_forward_hook(lambda m, args, out: seen.append(out.shape)),
    ]
    for _ in range(2):
        assert_same(fast(net, X), net(X))
    assert len(seen) == 4
    for handle in handles:
        handle.remove()
    assert_same(fast(net, X), net(X))


def test_global_hooks():
    net = Net()
    fast = dyncomp.optimize(lambda m, x: m(x), backend="eager")
    assert_same(fast(net, X), net(X))
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: out + 1)
    try:
        assert_same(fast(net, X), net(X))
    finally:
        handle.remove()
    assert_same(fast(net, X), net(X))


def test_backward_hooks_run():
    net, seen = nn.Linear(4, 4), []
    net.register_full_backward_hook(lambda m, grad_in, grad_out: seen.append(1))
    fast = dyncomp.optimize(lambda m, x: m(x).sum(), backend="eager")
    fast(net, X.clone().requires_grad_()).backward()
    assert seen == [1]


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("last", None)
        self.steps = 0
        self.cache = None
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        self.steps += 1
        self.total += x.sum(0)
        self.last = x * 2
        self.cache = (x, self.last)
        self.total = self.total * 1.5
        return x * self.weight + self.total


def test_state_written_in_forward():
    slow, quick = Stateful(), Stateful()
    fast = dyncomp.optimize(quick, backend="eager")
    for _ in range(3):
        x = torch.randn(2, 4)
        assert_same(fast(x), slow(x))
        assert quick.steps == slow.steps
        assert_same(dict(quick.named_buffers()), dict(slow.named_buffers()))
        assert quick.cache[0] is x and quick.cache[1] is quick.last
        assert list(quick.state_dict()) == list(slow.state_dict())


class Custom(nn.Module):
    """Answers for missing attributes itself."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return x @ self.weight + self.inner(x)


def test_overridden_getattr():
    eager(lambda m, x: m(x), Custom(), X)


class Shadowing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.weight


def test_instance_dict_shadows_parameters():
    module = Shadowing()
    fast = dyncomp.optimize(lambda m, x: m(x), backend="eager")
    assert_same(fast(module, X), module(X))
    module.__dict__["weight"] = torch.full((4,), 3.0)
    assert_same(fast(module, X), module(X))


def test_missing_attribute_is_the_users_error():
    def f(m, x):
        try:
            return x * m.nothing
        except AttributeError as error:
            return x * 2, str(error)

    eager(f, Net(), X)


def test_tied_weights_are_one_input():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x)), self.a.weight is self.b.weight

    module = Tied()
    fast = eager(lambda m, x: m(x), module, X)
    other = Tied()
    other.b.weight = nn.Parameter(torch.zeros(4, 4))
    assert_same(fast(other, X), other(X))


def test_methods_other_than_forward():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def encode(self, x):
            return self.layer(x)

    encoder = Encoder()
    fast = dyncomp.optimize(encoder.encode, backend="eager")
    assert_same(fast(X), encoder.encode(X))


def test_modules_are_not_kept_alive():
    import gc
    import weakref

    net = Net()
    fast = dyncomp.optimize(lambda m, x: m(x), backend="eager")
    fast(net, X)
    alive = weakref.ref(net.layers[0])
    del net
    gc.collect()
    assert alive() is None
