"""Random programs with several results, and random sequences of backwards through them: what raises, which gradients come out, which
hooks run with what. The history behind the results must be eager's in all that can be told apart."""

import random

import pytest
import torch

import dyncomp
from tests.support import assert_same

BINARY = [torch.add, torch.mul, lambda a, b: a - 2 * b, lambda a, b: a * b.sigmoid(), torch.maximum]
UNARY = [
    torch.sin,
    torch.exp,
    lambda a: a + 1,
    lambda a: a * 3,
    lambda a: -a,
    torch.tanh,
    lambda a: a.view(-1)[1:],
    torch.relu,
]


def program(rng, count):
    """A function of `count` tensors with a few results."""
    steps = []
    for _ in range(rng.randint(3, 8)):
        two = rng.random() < 0.6
        steps.append((rng.choice(BINARY) if two else rng.choice(UNARY), rng.random(), rng.random() if two else None))
    outputs = [rng.random() for _ in range(rng.randint(1, 4))]
    scalars = [rng.random() < 0.7 for _ in outputs]

    def run(*inputs):
        values = list(inputs)
        for op, first, second in steps:
            a = values[int(first * len(values))]
            if second is None:
                values.append(op(a))
            else:
                b = values[int(second * len(values))]
                n = min(a.numel(), b.numel())
                values.append(op(a.reshape(-1)[:n], b.reshape(-1)[:n]) if a.shape != b.shape else op(a, b))
        made = values[count:]
        results = [made[int(place * len(made))] for place in outputs]
        return tuple(one.sum() if scalar else one * 1 for one, scalar in zip(results, scalars, strict=True))

    return run, len(outputs)


def backwards(rng, outputs, count):
    """(outputs, retain_graph, wanted inputs or None, by `torch.autograd.grad`)."""
    found = []
    for _ in range(rng.randint(1, 4)):
        which = rng.sample(range(outputs), rng.randint(1, outputs))
        wanted = None if rng.random() < 0.5 else sorted(rng.sample(range(count), rng.randint(1, count)))
        found.append((which, rng.random() < 0.2, wanted, wanted is not None and rng.random() < 0.5))
    return found


def story(function, plan, seed, count, above):
    torch.manual_seed(seed)
    log = []
    leaves = [torch.randn(4, requires_grad=True) for _ in range(count)]
    inputs = []
    for i, leaf in enumerate(leaves):
        if above[i] == "leaf":
            inputs.append(leaf)
        else:
            inputs.append(leaf.exp() if above[i] == "keeps" else leaf + 1)
            inputs[-1].register_hook(lambda g, i=i: log.append(("input", i, g.clone())))
        leaf.register_hook(lambda g, i=i: log.append(("leaf", i, g.clone())))
    results = function(*inputs)
    results = [one for one in results if one.requires_grad]
    for which, retain, wanted, by_grad in plan:
        roots = [results[k] for k in which if k < len(results)]
        before = len(log)
        weights = [torch.full_like(one, 0.5) for one in roots]
        try:
            if by_grad:
                asked = [inputs[i] for i in wanted]
                log.append(torch.autograd.grad(roots, asked, weights, retain_graph=retain, allow_unused=True))
            else:
                asked = None if wanted is None else [leaves[i] for i in wanted]
                torch.autograd.backward(roots, weights, retain_graph=retain, inputs=asked)
        except RuntimeError as error:
            assert "second time" in str(error), error
            del log[before:]  # how far eager's engine came before it raised is a matter of its order
            return [*log, "second time"]
        log += [None if leaf.grad is None else leaf.grad.clone() for leaf in leaves]
    return log


def in_order(log):
    """Hooks of one backward apart from their order, which follows from details of eager's engine."""
    of_hooks = [one for one in log if isinstance(one, tuple) and isinstance(one[0], str)]
    of_hooks.sort(key=lambda one: one[:2])  # stable: those of one tensor stay in their order
    return [one for one in log if not (isinstance(one, tuple) and isinstance(one[0], str))], of_hooks


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("seed", range(30))
def test_random(seed, backend):
    rng = random.Random(seed)
    count = rng.randint(1, 4)
    function, outputs = program(rng, count)
    fast = dyncomp.optimize(function, backend=backend)
    for trial in range(5):
        plan = backwards(rng, outputs, count)
        above = [rng.choice(["leaf", "keeps", "adds"]) for _ in range(count)]
        want, got = (in_order(story(f, plan, trial, count, above)) for f in (function, fast))
        assert_same(got, want, f"trial {trial}: {plan}, {above}", 1e-5, 1e-5)
