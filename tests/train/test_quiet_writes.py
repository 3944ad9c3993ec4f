"""Writes that eager's version counters know nothing of: through `.data`, and to the statistics of a batch norm."""

import pytest
import torch

import dyncomp
from tests.train.train_checks import same_story

BACKENDS = ["codegen", "aot_eager"]


def whole(w):
    w.data.mul_(2)


def part(w):
    w.data[1:].add_(1)
    w.data.t()[0] = 3.0


def by_copy(w):
    w.data.copy_(w.data.flip(0) * 0.5)


def with_a_loss(w):
    w.data.clamp_(-0.5, 0.5)
    return (w * w).sum()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("write", [whole, part, by_copy, with_a_loss])
def test_data(write, backend):
    def story(compiled):
        fast = compiled(write)
        w = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2) - 2)
        seen = []
        for _ in range(2):
            loss = w.pow(3).sum()  # keeps w for its backward
            more = fast(w)
            (loss if more is None else loss + more).backward()
            seen += [w.detach().clone(), w.grad.clone(), w._version]
        return seen

    same_story(story, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_counted_beside_quiet(backend):
    def write(w, b):
        w.data.mul_(2)
        with torch.no_grad():
            w.add_(1)
        b.data.mul_(2)
        b.detach().add_(1)

    def story(compiled):
        w, b = torch.ones(3, requires_grad=True), torch.ones(3)
        compiled(write)(w, b)
        return w.detach(), w._version > 0, b, b._version > 0

    same_story(story, backend)


@pytest.mark.parametrize("dynamic", [None, True])
def test_statistics_of_a_batch_norm(dynamic):
    """Compiled and plain calls, training and evaluation, all before the one backward."""
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        norm = torch.nn.BatchNorm1d(3)
        fast = dyncomp.optimize(norm, dynamic=dynamic) if compiled else norm
        outputs = []
        for mode, run in ((True, norm), (True, fast), (False, fast), (False, norm), (True, fast), (True, norm)):
            norm.train(mode)
            outputs.append(run(torch.randn(4, 3)))
        torch.stack(outputs).prod(0).sum().backward()
        seen.append([*outputs, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var, norm.running_var._version])
    torch.testing.assert_close(seen[1], seen[0], rtol=1e-5, atol=1e-6)
