"""Eight kernels as plain functions, at 1 and 2 threads: eager, dyncomp, torch.compile."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp


def _rand(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


KERNELS = {
    "sin(cos(x)), 2^24": (lambda x: torch.sin(torch.cos(x)), lambda: (_rand(2**24),)),
    "gelu chain, 2^22": (
        lambda x: F.gelu(torch.sigmoid(x) * torch.tanh(x) + torch.exp(-x * x)),
        lambda: (_rand(2**22),),
    ),
    "softmax, 4096x1024": (lambda x: torch.softmax(x, -1), lambda: (_rand(4096, 1024),)),
    "layer_norm+gelu, 4096x768": (
        lambda x, w, b: F.gelu(F.layer_norm(x, (768,), w, b)),
        lambda: (_rand(4096, 768), _rand(768), _rand(768)),
    ),
    "sum(0), 4096x4096": (lambda x: x.sum(0), lambda: (_rand(4096, 4096),)),
    "x + y.t(), 2048x2048": (lambda x, y: x + y.t(), lambda: (_rand(2048, 2048), _rand(2048, 2048))),
    "bf16 squared row sum, 4096x2048": (
        lambda x, w: (x.float() * w).pow(2).sum(-1),
        lambda: (_rand(4096, 2048, dtype=torch.bfloat16), _rand(2048)),
    ),
    "strided+broadcast relu, 4096x2048": (
        lambda x, w: torch.relu(x[:, ::2] * w + 1),
        lambda: (_rand(4096, 2048), _rand(1024)),
    ),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel(compare, peer, name, threads):
    function, make = KERNELS[name]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            inputs = make()
            sides = {"eager": function, "dyncomp": dyncomp.optimize(function)}
            if peer:
                sides["torch.compile"] = torch.compile(function)
            torch.testing.assert_close(sides["dyncomp"](*inputs), function(*inputs), rtol=1e-4, atol=1e-4)
            compare(f"{name}, {threads} threads", {n: lambda f=f: f(*inputs) for n, f in sides.items()}, rounds=11)
    finally:
        torch.set_num_threads(before)
