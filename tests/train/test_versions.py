"""Version counters after a call are what eager's are: of inputs, their bases, buffers and parameters, and of results.

Autograd compares them to find out whether what it kept was written since, and programs can read them.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.graph import increment_version

import dyncomp
from tests.support import assert_same, examples
from tests.train.train_checks import same_story

BACKENDS = ["codegen", "aot_eager"]


def versions(values):
    return [value._version if isinstance(value, torch.Tensor) else value for value in values]


def told(function, make, backend=None, grad=True, calls=2):
    """Versions, values and gradients of all tensors of some calls; a negative seed is never drawn."""
    run = function if backend is None else dyncomp.optimize(function, backend=backend)
    seen = []
    for seed in range(calls):
        torch.manual_seed(seed)
        inputs, watched = make()
        with torch.set_grad_enabled(grad):
            try:
                results = run(*inputs)
            except RuntimeError as error:
                seen.append((type(error).__name__, versions([*inputs, *watched])))
                continue
        results = results if isinstance(results, tuple) else (results,)
        seen.append([versions([*inputs, *watched]), versions(results), [t.data.clone() for t in (*inputs, *results)]])
        # a write afterwards tells which of them have one counter
        for one in (*inputs, *results):
            increment_version(one)
            seen.append(versions([*inputs, *watched, *results]))
    return seen


def check(function, make, grad=True, calls=2):
    want = told(function, make, grad=grad, calls=calls)
    for backend in BACKENDS:
        torch._C._set_grad_enabled(True)
        assert_same(told(function, make, backend, grad, calls), want, f"{backend}, grad={grad}")


def inputs_of(kind):
    """(arguments, other tensors to look at): a matrix of this kind, and a plain one."""

    def make():
        x = torch.arange(12.0).reshape(4, 3).div(7).sin()
        other = torch.arange(12.0).reshape(4, 3).cos()
        if kind == "plain":
            return (x, other), ()
        if kind == "view":
            base = torch.stack([x, x + 1])
            return (base[1], other), (base,)
        if kind == "result":
            leaf = x.requires_grad_()
            return (leaf * 1, other), (leaf,)
        if kind == "view of a result":
            base = torch.stack([x, x + 1]).requires_grad_() * 1
            return (base[1], other), (base,)
        leaf = x.requires_grad_()
        return (leaf, other), ()

    return make


KINDS = ["plain", "view", "result", "view of a result", "leaf"]

# What writes `t`, or makes something of it that later writes go to. `o` is not written.
WRITES = {
    "add_": lambda t, o: t.add_(o[0, 0]),
    "mul_ twice": lambda t, o: t.mul_(2).mul_(0.5),
    "+=": lambda t, o: t.__iadd__(1),
    "row": lambda t, o: t[0].add_(1),
    "item": lambda t, o: t.__setitem__(0, 2.0),
    "mask": lambda t, o: t.masked_fill_(t > 0.5, 0.25),
    "index_put": lambda t, o: t.__setitem__(torch.tensor([0]), 1.0),
    "flat": lambda t, o: t.view(-1).mul_(3),
    "reshape": lambda t, o: t.reshape(-1).sub_(1),
    "copy_": lambda t, o: t.copy_(t * 2),
    "zero_": lambda t, o: t[1:].zero_(),
    "fill_": lambda t, o: t[-1].fill_(1),
    "clip_": lambda t, o: t.clip_(-1, 1),
    "clamp_": lambda t, o: t.clamp_(-1, 1),
    "square_": lambda t, o: t.square_(),
    "relu_": lambda t, o: F.relu(t, inplace=True),
    "relu6": lambda t, o: F.relu6(t, inplace=True),
    "selu": lambda t, o: F.selu(t, inplace=True),
    "hardtanh": lambda t, o: F.hardtanh(t, inplace=True),
    "leaky_relu": lambda t, o: F.leaky_relu(t, inplace=True),
    "silu": lambda t, o: F.silu(t, inplace=True),
    "dropout": lambda t, o: F.dropout(t, 0.5, True, True),
    "alpha_dropout": lambda t, o: F.alpha_dropout(t, 0.5, True, True),
    "sigmoid_": lambda t, o: t.sigmoid_(),
    "t_ of a view": lambda t, o: t[:3].t_(),
    "squeeze_ of a view": lambda t, o: t.unsqueeze(0).squeeze_(0),
    "data": lambda t, o: t.data.mul_(2),
    "data, a view": lambda t, o: t.data[0].add_(1),
    "detach": lambda t, o: t.detach().add_(1),
    "foreach": lambda t, o: torch._foreach_add_([t, t[0]], 1.0),
    "foreach_copy": lambda t, o: torch._foreach_copy_([t], [t * 2]),
    "uniform_": lambda t, o: t.uniform_(),
    "normal_": lambda t, o: t[0].normal_(),
    "bernoulli_": lambda t, o: t.bernoulli_(0.5),
    "index_add_": lambda t, o: t.index_add_(0, torch.tensor([1]), torch.ones(1, t.shape[1])),
    "scatter_": lambda t, o: t.scatter_(1, torch.zeros(t.shape[0], 1, dtype=torch.long), 2.0),
    "tril_": lambda t, o: t.tril_(),
    "addmm_": lambda t, o: t.addmm_(t.detach() * 1, torch.eye(t.shape[1])),
    "lerp_": lambda t, o: t.lerp_(t.detach() + 1, 0.5),
    "div_": lambda t, o: t.true_divide_(2),
    "out": lambda t, o: torch.add(t.detach() * 1, 1, out=t) if not t.requires_grad else t.add_(1),
    "out max": lambda t, o: torch.max(o, 0, out=(t.detach()[0], torch.zeros(3, dtype=torch.long))),
    "unbind": lambda t, o: t.detach().unbind()[0].mul_(2),
    "cumsum_": lambda t, o: t.cumsum_(0),
    "same": lambda t, o: t.copy_(t),
}  # fmt: skip


NAMES = list(WRITES)
GROUPS = [NAMES[i : i + 5] for i in range(0, len(NAMES), 5)]


@pytest.mark.parametrize("kind, grad", [("plain", True), ("view", False), ("result", True), ("view of a result", True), ("result", False), ("leaf", False)])
@pytest.mark.parametrize("group", GROUPS)
def test_writes_to_an_input(group, kind, grad):
    def function(x, o):
        for write in group:
            WRITES[write](x, o)
        return x * 2, x[0]

    check(function, inputs_of(kind), grad, calls=1)


@pytest.mark.parametrize("kind", ["leaf", "plain"])
@pytest.mark.parametrize("group", GROUPS)
def test_writes_to_a_result(group, kind):
    def function(x, o):
        y = x * 2
        before = y[1]
        for write in group:
            WRITES[write](y, o)
        return y, before, y.detach()

    check(function, inputs_of(kind), calls=1)


def test_a_leaf_is_not_written():
    check(lambda x, o: x.add_(o), inputs_of("leaf"), calls=1)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(WRITES)), st.integers(0, 7)), min_size=1, max_size=5),
    st.sampled_from(KINDS),
    st.booleans(),
    st.lists(st.integers(0, 7), min_size=1, max_size=3),
)
@settings(max_examples=examples(25), deadline=None)
def test_programs(writes, kind, grad, shown):
    """Writes through whatever there is so far: inputs, results, views of both."""

    def function(x, o):
        y = o * 2 + x.detach()
        z = x * o
        values = [x, x[1:], x.detach(), y, y[:3], y.detach(), z, z[1:]]
        for name, place in writes:
            WRITES[name](values[place], o)
        return (*[values[place] for place in shown], x.sum() + z.sum())

    check(function, inputs_of(kind), grad)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_statistics_and_counts_of_a_batch_norm(momentum):
    norm = torch.nn.BatchNorm1d(3, momentum=momentum)

    def function(x, o):
        return norm(x) + norm(o)

    def make():
        norm.load_state_dict(copy.deepcopy(torch.nn.BatchNorm1d(3).state_dict()))
        return inputs_of("leaf")()[0], ()

    seen = []
    for backend in (None, *BACKENDS):
        inputs, _ = make()
        before = versions(norm.buffers())
        run = function if backend is None else dyncomp.optimize(function, backend=backend)
        for _ in range(2):
            run(*inputs)
        seen.append([after - one for after, one in zip(versions(norm.buffers()), before, strict=True)])
    assert seen[1] == seen[0] and seen[2] == seen[0]


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
    "adam foreach": lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
    "adam fused": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True, amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, backend):
    def story(compiled):
        net = torch.nn.Linear(3, 2)
        optimizer = OPTIMIZERS[name](net.parameters())
        step = compiled(optimizer.step)
        seen = []
        for _ in range(3):
            net(torch.ones(1, 3)).sum().backward()
            step()
            seen += versions([*net.parameters(), *[p.grad for p in net.parameters()]])
            for p in net.parameters():
                state = optimizer.state[p]
                seen += [(key, value._version) for key, value in sorted(state.items()) if isinstance(value, torch.Tensor)]
            optimizer.zero_grad(set_to_none=False)
        return seen

    same_story(story, backend)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", ["plain", "result"])
def test_a_custom_function_that_marks_what_it_writes(kind, grad):
    def function(x, o):
        return Twice.apply(x) * o

    check(function, inputs_of(kind), grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_foreach_operation_wrote_is_missed_by_a_backward(backend):
    def function(x):
        y = x.exp()
        torch._foreach_mul_([y], 2)
        return y.sum()

    def story(compiled):
        x = torch.ones(3, requires_grad=True)
        compiled(function)(x).backward()
        return x.grad

    same_story(story, backend, errors=True, fallbacks=("aot", "training"))
