"""Training steps after torch's own compiler ran in the process: it puts wrappers over parts of torch.optim."""

import subprocess
import sys

PROGRAM = """
import torch
from torch import nn

import dyncomp
from dyncomp import config

config.strict = True


@torch.compile(backend="eager")
def other(x):
    return x + 1


other(torch.ones(2))
assert torch.optim.Adam._init_group._torchdynamo_disable  # else this checks nothing


def kept_out(x):
    return x * 2


kept_out = torch.compiler.disable(kept_out, reason="the user's wish")


def train(make, options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    opt = make(net.parameters())

    def step(x):
        opt.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    fast = step if options is None else dyncomp.optimize(step, fullgraph=True, options=options)
    return [fast(torch.randn(6, 4, generator=torch.Generator().manual_seed(i))).item() for i in range(4)]


makers = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}
for name, make in makers.items():
    torch.testing.assert_close(train(make, {"capture_backward": True}), train(make, None), msg=name)

fast = dyncomp.optimize(lambda x: kept_out(x) + 1)
assert torch.equal(fast(torch.ones(2)), torch.full((2,), 3.0))
assert dyncomp.stats().break_reasons == {"disabled-function": 1}, dyncomp.stats().break_reasons
print("done")
"""


def test_steps_after_torch_compile():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "done"
