"""Compiling and running plain torch models loads neither the peer's front end nor its back end."""

import subprocess
import sys

PROGRAM = """
import sys, torch
from torch import nn
import dyncomp

conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
for train in (False, True):
    for model, x in ((conv, torch.randn(2, 3, 8, 8)), (encoder, torch.randn(2, 5, 16))):
        model.train(train)
        fast = dyncomp.optimize(model)
        with torch.no_grad():
            fast(x)
        fast(x).sum().backward()

def odd(x):
    return torch.linalg.norm(torch.fft.rfft(x).abs()), torch.special.i0(x), torch.addcmul(x, x, x)

dyncomp.optimize(odd)(torch.randn(8))
def transformed(x):
    per_row = torch.vmap(torch.func.grad(lambda row: row.sin().sum()))(x)
    return per_row, torch.func.hessian(lambda row: (row * row).sum())(x[0]), torch.func.jvp(torch.exp, (x,), (x,))

dyncomp.optimize(transformed, fullgraph=True)(torch.randn(3, 4))
bad = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor", "torch._functorch.aot"))]
assert not bad, bad
assert dyncomp.stats().graphs >= 5, dyncomp.stats()
print("clean")
"""


def test_fresh_process():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and "clean" in done.stdout, done.stdout + done.stderr
