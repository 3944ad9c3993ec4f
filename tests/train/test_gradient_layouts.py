"""Gradients have eager's strides and share memory as eager's do, however the gradients that come in are laid out."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp

R = torch.randn
LAST = torch.channels_last

PROGRAMS = {
    "sum of columns": (lambda a: a.t().sum(0), R(3, 4)),
    "permuted": (lambda a: a.permute(2, 0, 1) * 2, R(2, 3, 4)),
    "exp": (lambda a: a.permute(2, 0, 1).exp(), R(2, 3, 4)),
    "cat": (lambda a, b: torch.cat([a, b], 1), R(3, 4), R(3, 2)),
    "cat of transposed": (lambda a, b: torch.cat([a.t(), b.t()], 0).sum(0), R(3, 4), R(3, 2)),
    "stack": (lambda a, b: torch.stack([a, b], 2).sum(1), R(3, 4), R(3, 4)),
    "split": (lambda a: tuple(one * (i + 1) for i, one in enumerate(a.split(2, 1))), R(3, 4)),
    "chunk": (lambda a: a.chunk(2, 1), R(4, 4)),
    "unbind": (lambda a: a.unbind(1)[1] * 2, R(3, 4)),
    "expand": (lambda a: (a.expand(3, 4) * 2).sum(0), R(3, 1)),
    "sum of two": (lambda a, b: a + b.t(), R(3, 4), R(4, 3)),
    "same twice": (lambda a, b: a + b, R(3, 4), R(3, 4)),
    "product": (lambda a, b: a * b.t(), R(3, 4), R(4, 3)),
    "difference": (lambda a, b: (a - b.t()).t(), R(3, 4), R(4, 3)),
    "quotient": (lambda a, b: (a.t() / b).t(), R(3, 4), R(4, 3)),
    "lerp": (lambda a, b: torch.lerp(a.t(), b, 0.3), R(3, 4), R(4, 3)),
    "square root": (lambda a: a.t().abs().sqrt(), R(3, 4)),
    "reshape": (lambda a: a.t().reshape(-1), R(3, 4)),
    "flatten": (lambda a: a.permute(0, 2, 1).flatten(1), R(2, 3, 4)),
    "flip": (lambda a: a.t().flip(0), R(3, 4)),
    "pad": (lambda a: F.pad(a.t(), (1, 1)), R(3, 4)),
    "contiguous": (lambda a: a.t().contiguous(), R(3, 4)),
    "clone": (lambda a: a.t().clone(), R(3, 4)),
    "double": (lambda a: a.t().double(), R(3, 4)),
    "squeeze": (lambda a: a.sum(1, keepdim=True).squeeze(1), R(3, 4)),
    "normalised": (lambda a: a / a.sum(1, keepdim=True), R(3, 4)),
    "matrices": (lambda a, b: (a @ b).t(), R(3, 4), R(4, 5)),
    "einsum": (lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b).sum(-1), R(2, 2, 3, 4), R(2, 2, 3, 4)),
    "linear": (lambda a, w, b: F.linear(a, w, b), R(2, 3, 4), R(5, 4), R(5)),
    "norm": (lambda a: F.normalize(a.t(), dim=0) @ a, R(3, 4)),
    "rms norm": (lambda a, w: F.rms_norm(a.transpose(0, 1), (4,), w), R(2, 3, 4), R(4)),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), k.transpose(1, 2)), R(2, 3, 2, 4), R(2, 3, 2, 4)),
    "convolution": (lambda a, w: F.conv2d(a, w).relu(), R(2, 3, 5, 5).to(memory_format=LAST), R(4, 3, 3, 3).to(memory_format=LAST)),
    "pooling": (lambda a: F.adaptive_avg_pool2d(a, 1).flatten(1), R(2, 3, 4, 4)),
    "bilinear": (lambda a: F.interpolate(a, scale_factor=2.0, mode="bilinear"), R(2, 3, 4, 4).to(memory_format=LAST)),
    "embedding": (lambda w: F.embedding(torch.tensor([[0, 2], [1, 2]]), w.t()), R(3, 4)),
    "softmax": (lambda a: a.t().softmax(1), R(3, 4)),
}


def coming_in(kind, result):
    if kind == "ones":
        return torch.ones_like(result)
    if kind == "expanded":
        return torch.ones((), dtype=result.dtype).expand(result.shape)
    if kind == "transposed":
        return torch.randn(tuple(reversed(result.shape)), dtype=result.dtype).permute(*reversed(range(result.dim())))
    if kind == "with gaps":
        return torch.randn(*result.shape, 2, dtype=result.dtype)[..., 0]  # no dense memory
    return torch.randn(result.shape, dtype=result.dtype)


def tell(function, given, kind, accumulated, leaves):
    torch.manual_seed(0)
    inputs = [torch.empty_strided(one.shape, one.stride()).copy_(one).requires_grad_() for one in given]
    results = function(*(inputs if leaves else [one * 1 for one in inputs]))
    results = results if isinstance(results, tuple) else (results,)
    gradients = [coming_in(kind, one) for one in results]
    if accumulated:
        torch.autograd.backward(results, gradients)
        found = [one.grad for one in inputs]
    else:
        found = torch.autograd.grad(results, inputs, gradients)
    places = [one.untyped_storage().data_ptr() for one in [*found, *gradients]]
    shared = [[place == other for other in places] for place in places]
    return found, [(one.stride(), one.storage_offset()) for one in found], shared


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_layouts(name, backend):
    function, *given = PROGRAMS[name]
    fast = dyncomp.optimize(function, backend=backend)
    for kind in ("ones", "expanded", "transposed", "dense"):
        for accumulated in (True, False):
            for leaves in (True, False):
                want, layouts, shared = tell(function, given, kind, accumulated, leaves)
                got, our_layouts, our_shared = tell(fast, given, kind, accumulated, leaves)
                for mine, reference in zip(got, want, strict=True):
                    torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5)
                assert (our_layouts, our_shared) == (layouts, shared), (kind, accumulated, leaves)


def test_parts_of_a_function_that_breaks():
    """What comes in from the part after a break is laid out as that part's formulas say."""

    def f(a, b):
        one, other = F.normalize(a, dim=1), F.normalize(b, dim=1)
        like, unlike = torch.einsum("nc,mc->nm", one, one), torch.einsum("nc,mc->nm", one, other)
        mask = torch.eye(len(a), dtype=torch.bool)
        kept = torch.cat([like[~mask].view(len(a), -1), unlike[~mask].view(len(a), -1)], 1)
        return (torch.logsumexp(kept, 1) - unlike[mask]).mean()

    fast = dyncomp.optimize(f)
    for shape in ((2, 8), (8, 2), (4, 4)):
        told = []
        for function in (f, fast):
            torch.manual_seed(0)
            a, b = R(shape, requires_grad=True), R(shape, requires_grad=True)
            told.append(torch.autograd.grad(function(a, b), (a, b)))
        for mine, reference in zip(*told[::-1], strict=True):
            torch.testing.assert_close(mine, reference)
            assert mine.stride() == reference.stride()


def test_many_layouts():
    """From some layouts on gradients are copied to one that there is code for."""
    function = dyncomp.optimize(lambda a: a.sin())
    value = R(2, 3, 4, 5, requires_grad=True)
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 2, 3), (2, 3, 0, 1), (0, 2, 1, 3), (3, 0, 1, 2), (1, 3, 0, 2)):
        back = sorted(range(4), key=order.__getitem__)
        gradient = R([value.shape[d] for d in order]).permute(back)
        (found,) = torch.autograd.grad(function(value), value, gradient)
        torch.testing.assert_close(found, gradient * value.detach().cos())


def test_gaps():
    for function in (lambda a: a.permute(2, 0, 1) * 2, lambda a: a.transpose(0, 1).exp()):
        want = tell(function, [R(2, 3, 4)], "with gaps", False, True)
        got = tell(dyncomp.optimize(function), [R(2, 3, 4)], "with gaps", False, True)
        assert got[1:] == want[1:]
