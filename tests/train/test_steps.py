"""Loss curves of 20 compiled training steps against eager's: a small GPT-2, a small ResNet."""

import pytest
import torch
from torch import nn

import dyncomp

STEPS = 20


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.down(x))


def resnet():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def images(i):
    generator = torch.Generator().manual_seed(i)
    return torch.randn(8, 3, 16, 16, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=48, n_head=4, vocab_size=200, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return transformers.GPT2LMHeadModel(config)


def tokens(i):
    ids = torch.randint(0, 200, (2, 16), generator=torch.Generator().manual_seed(i))
    return ids, ids


def image_loss(net, x, y):
    return nn.functional.cross_entropy(net(x), y)


def text_loss(net, x, y):
    return net(x, labels=y).loss


TASKS = {"resnet": (resnet, image_loss, images), "gpt2": (gpt2, text_loss, tokens)}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
}


def curve(task, optimizer, options):
    make, loss_of, batch = TASKS[task]
    net = make().train()
    opt = OPTIMIZERS[optimizer](net.parameters())
    schedule = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, STEPS)

    def step(x, y):
        opt.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        return loss.detach()

    fast = step if options is None else dyncomp.optimize(step, **options)
    losses = []
    for i in range(STEPS):
        losses.append(fast(*batch(i)).item())
        schedule.step()
    return losses


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("captured", [False, True], ids=["broken at backward", "one graph"])
def test_curves(fresh, task, optimizer, captured):
    expected = curve(task, optimizer, None)
    got = curve(task, optimizer, {"fullgraph": captured, "options": {"capture_backward": captured}})
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=0)
    stats = dyncomp.stats()
    # The first step makes gradients and state; all others are one more compile, whatever the rate and the step count.
    assert stats.graphs <= (2 if captured else 4)
    assert set(stats.break_reasons) <= (set() if captured else {"autograd"})
    assert not stats.fallbacks
