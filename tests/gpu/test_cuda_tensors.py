"""Graphs with CUDA tensors: eager's results; no CPU kernel ever sees device memory."""

import pytest
import torch

import dyncomp
from tests.support import assert_same

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


def programs():
    yield lambda x: torch.softmax(x.sin() * 2, -1)
    yield lambda x: x @ x.t() + 1
    yield lambda x: x.cpu().cos() + x.cpu()
    yield lambda x: torch.zeros(4, device="cpu") + x.sum().cpu()
    yield lambda x: x.add_(1).relu()


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("backend", ["codegen", "eager"])
def test_same_as_eager(fresh, number, backend):
    program = list(programs())[number]
    x = torch.randn(8, 8, device="cuda")
    ours, theirs = x.clone(), x.clone()
    fast = dyncomp.optimize(program, backend=backend)
    for _ in range(2):
        assert_same(fast(ours), program(theirs))
        assert_same(ours, theirs)
    if backend == "codegen":
        assert dyncomp.stats().fallbacks.get("device-cuda", 0) >= 1


def test_gradients_and_modules(fresh):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)).cuda()
    x = torch.randn(4, 8, device="cuda")
    model(x).sum().backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    dyncomp.optimize(model)(x).sum().backward()
    for got, expected in zip([p.grad for p in model.parameters()], want, strict=True):
        torch.testing.assert_close(got, expected)
