"""Training through complex numbers: gradients with torch's conjugate convention, lazy conjugates inside backwards."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
COMPLEX = (torch.complex64, torch.complex128)


def r(*shape, dtype=torch.complex64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def told(tensor):
    if tensor is None:
        return None
    return tensor.detach().clone(), tensor.stride(), tensor.is_conj(), tensor.is_neg()


def check(f, make, backend="codegen", fallbacks=()):
    """Two steps; the loss is complex numbers times weights, taken apart as a user would."""

    def story(compiled):
        fast, seen = compiled(f), []
        for _ in range(2):
            inputs = make()
            out = fast(*inputs)
            weighed = (out * torch.randn(out.shape, dtype=out.dtype)).sum()
            (weighed.abs() if weighed.is_complex() else weighed).backward()
            seen += [told(out), *(told(x.grad) for x in inputs if x.requires_grad)]
        return seen

    same_story(story, backend, fallbacks, rtol=1e-4)


PROGRAMS = {
    "square": (lambda x: x * x, lambda: (r(3),)),
    "abs": (lambda x: x.abs(), lambda: (r(3),)),
    "angle": (lambda x: x.angle() + x.real * x.imag, lambda: (r(3),)),
    "sign": (lambda x: x.sgn() * x.abs(), lambda: (r(3),)),
    "product": (lambda x, w: x @ w, lambda: (r(3, 4), r(4, 2))),
    "linear": (torch.nn.functional.linear, lambda: (r(3, 4), r(2, 4), r(2))),
    "real times complex": (lambda x, z: x * z, lambda: (r(3, dtype=torch.float32), r(3))),
    "quotients and powers": (lambda x, y: (x / y) ** 2, lambda: (r(3), r(3))),
    "transform": (lambda x: torch.fft.ifft2(torch.fft.fft2(x) * x), lambda: (r(4, 6),)),
    "real transform": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2j), lambda: (r(3, 8, dtype=torch.float32),)),
    "spectrum": (lambda x: torch.fft.rfft(x).abs().log1p(), lambda: (r(3, 8, dtype=torch.float32),)),
    "polar": (lambda a, b: torch.polar(a.exp(), b), lambda: (r(3, dtype=torch.float32), r(3, dtype=torch.float32))),
    "seen as real": (lambda x: torch.view_as_real(x) * 3, lambda: (r(3),)),
    "solved": (lambda x: torch.linalg.solve(x + 5 * torch.eye(3), x), lambda: (r(3, 3),)),
    "chosen": (lambda x, y: torch.where(x.real > 0, torch.cat([x[:2], y[:2]]), y), lambda: (r(4), r(4))),
}


@BACKENDS
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, backend):
    check(*PROGRAMS[name], backend=backend)


def rotated(x, angles):
    """Rotary position embedding as the first Llama has it."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles).flatten(-2).type_as(x)


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotary_embedding(backend, dtype):
    turns = torch.outer(torch.arange(5.0), 0.5 ** torch.arange(4.0))
    angles = torch.polar(torch.ones_like(turns), turns)
    check(lambda x: rotated(x * 2, angles), lambda: (r(2, 5, 8, dtype=dtype),), backend)


@BACKENDS
@given(kinds=st.lists(st.sampled_from("exp sin mul div abs conj_product roll".split()), min_size=1, max_size=4), dtype=st.sampled_from(COMPLEX))
@settings(max_examples=12, deadline=None)
def test_chains(backend, kinds, dtype):
    def f(x, y):
        for kind in kinds:
            x = {
                "exp": lambda x: (0.3 * x).exp(),
                "sin": torch.sin,
                "mul": lambda x: x * y,
                "div": lambda x: x / (y + 3),
                "abs": lambda x: x.abs() * y,
                "conj_product": lambda x: torch.complex(x.real, -x.imag) * x,
                "roll": lambda x: x.roll(1, 0).t().contiguous().t(),
            }[kind](x)
        return x

    check(f, lambda: (r(3, 3, dtype=dtype), r(3, 3, dtype=dtype)), backend)


@BACKENDS
def test_lazy_conjugates_that_come_in_as_gradients(backend):
    def story(compiled):
        fast, grads = compiled(lambda x, y: x * y), []
        for lazy in (True, False):
            x, y = r(3), r(3)
            g = torch.randn(3, dtype=torch.complex64)
            fast(x, y).backward(g.conj() if lazy else g)
            grads += [told(x.grad), told(y.grad)]
        return grads

    same_story(story, backend)


@BACKENDS
def test_a_gradient_that_is_a_lazy_conjugate_stays_one(backend):
    """Its bit shows: `view_as_real` of it raises."""

    class Mirror(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g.conj()

    def story(compiled):
        x = r(3)
        (g,) = torch.autograd.grad(compiled(lambda x: Mirror.apply(x) * 1)(x), x, torch.ones(3, dtype=torch.complex64))
        return told(g)

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: "))


@BACKENDS
def test_training_of_complex_parameters(backend):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))

        def forward(self, x):
            return (x.to(torch.complex64) @ self.w).abs()

    def story(compiled):
        net = Net()
        fast, losses = compiled(net), []
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = fast(torch.randn(2, 4)).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, net.w.detach()

    same_story(story, backend, rtol=1e-4)


@BACKENDS
def test_second_order(backend):
    def story(compiled):
        x, w = r(3, dtype=torch.complex128), r(3, dtype=torch.complex128)
        fast = compiled(lambda x, w: (x * w).sin().abs())
        return torch.autograd.gradcheck(fast, (x, w)), torch.autograd.gradgradcheck(fast, (x, w))

    same_story(story, backend, fallbacks=("double-backward-eager",))
