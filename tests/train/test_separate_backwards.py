"""Several backwards through results of one compiled call: each ends what eager's would end, and nothing else."""

import gc
import weakref

import pytest
import torch

import dyncomp
from tests.train.train_checks import same_story

BACKENDS = ["codegen", "aot_eager"]


def apart(x, y):
    return x.square().sum(), y.exp().sum()


def shared(x, y):
    trunk = (x * y).exp()
    return (trunk * 2).sum(), (trunk * trunk).sum()


def shared_without_values(x, y):
    trunk = x + y
    return (trunk * 2).sum(), (trunk * trunk).sum()


def chain(x, y):
    """The middle one shares history with both others, which share none."""
    return x.square().sum(), x.square().sum() * 2 + (x * x).sum() * (y * y).sum(), (y * y).sum()


def nothing_kept(x, y):
    return (x + y).view(-1)[1:].sum(), (x - y).t().sum()


def tensors_and_a_loss(x, y):
    return x * x, (y * y).sum(), (x * y).sin()


def outcome(backward):
    try:
        backward()
    except RuntimeError as error:
        return str(error)
    return None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [apart, shared, shared_without_values, chain, nothing_kept, tensors_and_a_loss])
def test_orders(function, backend):
    def story(compiled):
        fast = compiled(function)
        seen = []
        for order in ((0, 1), (1, 0, 0), (0, 0, 1), (2, 1, 0), (1, 2, 2)):
            x, y = torch.full((2, 2), 0.5, requires_grad=True), torch.full((2, 2), 2.0, requires_grad=True)
            results = fast(x, y)
            for place in order:
                if place < len(results):
                    seen.append(outcome(results[place].sum().backward))
                    seen += [None if t.grad is None else t.grad.clone() for t in (x, y)]
        return seen

    same_story(story, backend, fallbacks=("backward-",) if function is tensors_and_a_loss else ())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_two_players_in_one_step(backend, dynamic):
    """The second backward runs after the optimiser changed what only the first one reads."""

    def run(compiled):
        torch.manual_seed(0)
        maker = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
        judge = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        of_maker, of_judge = (torch.optim.SGD(m.parameters(), 0.1) for m in (maker, judge))
        softplus = torch.nn.functional.softplus

        def step(noise, real):
            made = maker(noise)
            of_judge.zero_grad()
            loss = softplus(-judge(real)).mean() + softplus(judge(made.detach())).mean()
            loss.backward()
            of_judge.step()
            of_maker.zero_grad()
            other = softplus(-judge(made)).mean()
            other.backward()
            of_maker.step()
            return loss.detach(), other.detach()

        fast = dyncomp.optimize(step, backend=backend, dynamic=dynamic) if compiled else step
        losses = [fast(torch.randn(5, 2), torch.randn(5, 3)) for _ in range(3)]
        return losses, [p.detach() for m in (maker, judge) for p in m.parameters()]

    want, got = run(False), run(True)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_kept_values_go_with_the_last_backward():
    fast = dyncomp.optimize(lambda x, y, a, b: ((x * a).sum(), (y * b).sum()))
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    a, b = torch.ones(3), torch.ones(3)
    kept = [weakref.ref(a), weakref.ref(b)]
    first, second = fast(x, y, a, b)
    del a, b
    first.backward()
    second.backward()
    gc.collect()
    assert [one() for one in kept] == [None, None]
