"""Training in other number formats: autocast, loss scaling, bf16 and fp16 parameters, complex numbers."""

import pytest
import torch

from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])


def r(*shape, grad=True, **options):
    return torch.randn(*shape, requires_grad=grad, **options)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.norm(self.first(x))))


def grads(module):
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around_the_forward(dtype, backend):
    def story(compiled):
        net = Net()
        fast, told = compiled(net), []
        for on in (True, False, True):
            with torch.autocast("cpu", dtype=dtype, enabled=on):
                y = fast(r(6, 8, grad=False))
                loss = y.float().pow(2).mean()
            loss.backward()
            told.append((y.detach(), grads(net)))
            net.zero_grad()
        return told

    same_story(story, backend, rtol=2e-2, atol=2e-2)


@BACKENDS
@pytest.mark.parametrize("around", [torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False)], ids=["on", "off"])
def test_gradients_that_nobody_expected(around, backend):
    """The forward is compiled anew for them, as it was, though the backward that asks runs in no block."""

    def story(compiled):
        def net(x, w):
            y = x @ w
            return y.sum(), y * 2

        fast, told = compiled(net), []
        for _ in range(3):
            x, w = r(4, 8, grad=False), r(8, 4)
            with around:
                loss, other = fast(x, w)
            told += [loss.detach(), other.detach()]
            with torch.autocast("cpu", torch.bfloat16, enabled=around._enabled is False):
                (loss.float() + other.float().sum()).backward()
            told.append(w.grad)
        return told

    same_story(story, backend, ("backward-runs-again", "backward-eager"), rtol=2e-2, atol=2e-2)


@BACKENDS
def test_autocast_around_the_backward(backend):
    """Eager's backward runs in the formats of its forward, whatever is on meanwhile."""

    def story(compiled):
        net = Net()
        fast, told = compiled(net), []
        for around in (True, False, True):
            y = fast(r(6, 8, grad=False))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around):
                y.float().sum().backward()
            told.append((y.detach(), grads(net)))
        return told

    same_story(story, backend, rtol=1e-4)


@BACKENDS
def test_autocast_inside(backend):
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            with torch.autocast("cpu", enabled=False):
                z = y.float() @ w
        return z.sum(), y

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            x, w = r(4, 4), r(4, 4)
            z, y = fast(x, w)
            z.backward()
            told += [y.detach(), x.grad, w.grad]
        return told

    same_story(story, backend, rtol=2e-2, atol=2e-2)


@BACKENDS
def test_loss_scaling(backend):
    def story(compiled):
        net = Net()
        fast, told = compiled(net), []
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(4):
            x = r(6, 8, grad=False)
            if step == 2:
                x[0, 0] = float("inf")
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = fast(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            told.append((scaler.get_scale(), [p.detach().clone() for p in net.parameters()]))
        return told

    same_story(story, backend, rtol=2e-2, atol=2e-2)


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_parameters_in_other_formats(dtype, backend):
    def story(compiled):
        net = Net().to(dtype)
        fast, told = compiled(net), []
        for _ in range(3):
            y = fast(r(6, 8, grad=False).to(dtype))
            y.sum().backward()
            told.append((y.detach(), grads(net)))
        return told

    same_story(story, backend, rtol=2e-2, atol=2e-2)


@BACKENDS
def test_formats_that_meet(backend):
    def f(x, w, b):
        return (x.bfloat16() @ w.bfloat16()).float() + b.double()

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            x, w, b = r(4, 4), r(4, 4, dtype=torch.float64), r(4, dtype=torch.float16)
            y = fast(x, w, b)
            y.sum().backward()
            told += [y.detach(), x.grad, w.grad, b.grad]
        return told

    same_story(story, backend, rtol=2e-2, atol=2e-2)


def complex_cases():
    return {
        "product": lambda z, w: (z * w).abs().sum(),
        "conj": lambda z, w: (z.conj() * w + z).real.sum(),
        "views": lambda z, w: torch.view_as_real(z * w).pow(2).sum() + z.imag.sum(),
        "result": lambda z, w: z.exp() * w,
        "matmul": lambda z, w: (z @ w).angle().sum(),
        "fft": lambda z, w: torch.fft.fft(z * w).abs().sum(),
    }


@BACKENDS
@pytest.mark.parametrize("name", list(complex_cases()))
@pytest.mark.parametrize("second", [torch.complex64, torch.float32])
def test_complex(name, second, backend):
    function = complex_cases()[name]
    if name == "matmul" and second is torch.float32:
        second = torch.complex64

    def story(compiled):
        fast, told = compiled(function), []
        for _ in range(2):
            z, w = r(3, 3, dtype=torch.complex64), r(3, 3, dtype=second)
            y = fast(z, w)
            y.backward(torch.ones_like(y) if not y.is_complex() else torch.full_like(y, 1 + 2j))
            told += [y.detach(), z.grad, w.grad]
        return told

    same_story(story, backend, rtol=1e-4, fallbacks=("training-graph-eager", "aot: "))


@BACKENDS
def test_complex_only_inside(backend):
    def f(x, w):
        return (torch.fft.rfft(x) * torch.complex(w, w)).abs().sum()

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            x, w = r(4, 8), r(4, 5)
            fast(x, w).backward()
            told += [x.grad, w.grad]
        return told

    same_story(story, backend, rtol=1e-4, fallbacks=("training-graph-eager", "aot: _conj"))
