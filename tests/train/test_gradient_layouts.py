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
        return torch.randn(tuple(reversed(result.shape)), dtype=result.dtype).permute(tuple(reversed(range(result.dim()))))
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


def turned(one):
    """The same numbers, with the dimensions the other way round in memory."""
    return one.permute(*reversed(range(one.dim()))).contiguous().permute(*reversed(range(one.dim())))


def strides_told(results, inputs, kind):
    """Strides of results, and of the gradient of each input."""
    torch.manual_seed(0)
    gradients = torch.autograd.grad(results, inputs, [coming_in(kind, one) for one in results])
    return [one.stride() for one in results], [one.stride() for one in gradients], [*results, *gradients]


SEQUENCES = [
    ((2, 3, 4), (5, 3, 2), {}),
    ((1, 3, 5), (2, 3, 1), {"stride": 2}),
    ((3, 1, 5), (2, 1, 2), {"dilation": 2}),
    ((4, 5), (4, 2, 2), {"groups": 2}),
]


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_of_sequences(fresh, backend, transposed):
    """Eager computes them as images of height 1, whose layout decides."""
    for shape, kernel, options in SEQUENCES:
        if transposed:
            kernel = (kernel[1] * options.get("groups", 1), kernel[0] // options.get("groups", 1), kernel[2])
        plain, weight = R(shape), R(kernel)

        def convolve(a, w, options=options):
            return (F.conv_transpose1d if transposed else F.conv1d)(a, w, **options)

        for a in (plain, plain.transpose(-1, -2).contiguous().transpose(-1, -2)):
            for w in (weight, weight.transpose(1, 2).contiguous().transpose(1, 2)):
                fast = dyncomp.optimize(convolve, backend=backend, dynamic=False)
                for kind in ("ones", "transposed"):
                    told = []
                    for function in (fast, convolve):
                        inputs = [one.detach().requires_grad_() for one in (a, w)]
                        told.append(strides_told([function(*inputs)], inputs, kind))
                    assert told[0][:2] == told[1][:2], (shape, kernel, options, a.stride(), w.stride(), kind)
                    torch.testing.assert_close(told[0][2], told[1][2], rtol=1e-4, atol=1e-5)


def put(a):
    b = a * 1
    b[:, 0] = a[:, 1]
    return b


ONES = torch.ones(2, 3, 4)
OPERATIONS = [
    torch.exp, torch.tanh, torch.abs, F.gelu, F.silu, F.softplus, F.elu, F.selu, F.mish, F.relu6, F.hardtanh, F.hardswish, F.hardsigmoid,
    F.leaky_relu, F.logsigmoid, F.hardshrink, F.softshrink, F.softsign, lambda a: torch.logit(a.sigmoid()), lambda a: F.threshold(a, 0.1, 2.0),
    lambda a: F.glu(a, 2), lambda a: a.softmax(1), lambda a: a.log_softmax(1), lambda a: a.clamp(-0.5, 0.5), lambda a: a.abs().pow(1.5),
    lambda a: a.sum(1), lambda a: a.mean((0, 2)), lambda a: a.amax(1), lambda a: a.max(1)[0], lambda a: a.max(), lambda a: a.median(),
    lambda a: a.prod(), lambda a: a.prod(1), lambda a: a.std(1), lambda a: a.var((0, 2), keepdim=True), lambda a: a.norm(2, 1),
    lambda a: torch.linalg.vector_norm(a, 3, 1), lambda a: a.logsumexp(2), lambda a: a.cumsum(1), lambda a: a.cumprod(1),
    lambda a: a.logcumsumexp(1), lambda a: a.cummax(1)[0], lambda a: a.sort(1)[0], lambda a: a.topk(2, 1)[0], lambda a: a.flip(1),
    lambda a: a.roll(1, 1), lambda a: a.tril(), lambda a: a.diagonal(0, 1, 2), lambda a: a.repeat(2, 1, 3), lambda a: a.unfold(2, 2, 1),
    lambda a: a[torch.tensor([0, 1, 1])], lambda a: a[:, torch.tensor([0, 2, 2])], lambda a: a.index_select(1, torch.tensor([2, 0, 0])),
    lambda a: a.gather(1, torch.zeros(2, 2, 4, dtype=torch.int64)), lambda a: a.masked_fill(a > 0, 1.0), lambda a: torch.where(a > 0, a, 0.0), put,
    lambda a: a.scatter_add(1, torch.zeros(2, 2, 4, dtype=torch.int64), a[:, 1:]), lambda a: a.index_add(1, torch.tensor([0, 0]), a[:, 1:]),
    lambda a: torch.cat([a, a * 2], 1), lambda a: torch.stack([a, a.exp()], 1), lambda a: a * ONES[:, :1], lambda a: a / a.sum(1, keepdim=True),
    lambda a: torch.atan2(a, ONES), lambda a: a.lerp(ONES, 0.3), lambda a: torch.maximum(a, ONES), lambda a: F.layer_norm(a, (4,)),
    lambda a: F.batch_norm(a, None, None, training=True), lambda a: F.group_norm(a, 3), lambda a: F.pad(a, (1, 2)),
    lambda a: F.pad(a, (1, 2), mode="reflect"), lambda a: F.max_pool1d(a, 2), lambda a: F.avg_pool1d(a, 2), lambda a: a @ ONES.mT,
    lambda a: torch.einsum("ijk,ilk->ijl", a, ONES), lambda a: F.mse_loss(a, ONES, reduction="none"), lambda a: F.smooth_l1_loss(a, ONES),
    lambda a: F.binary_cross_entropy(a.sigmoid(), ONES, reduction="none"), lambda a: F.cosine_similarity(a, ONES, dim=1),
    lambda a: F.cross_entropy(a, torch.zeros(2, 4, dtype=torch.int64), reduction="none"),
]  # fmt: skip
LAYOUTS = {
    "turned": turned,
    "gaps": lambda one: one.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda one: one[:1].expand(one.shape),
}
TOGETHER = 20  # operations in one graph


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", range(0, len(OPERATIONS), TOGETHER))
def test_operations(fresh, first, layout):
    """Each on an input of its own, by gradients that lie as their results do, or otherwise."""
    operations = OPERATIONS[first : first + TOGETHER]
    given = [LAYOUTS[layout](R(2, 3, 4)) for _ in operations]

    def all_of_them(*inputs):
        return [operation(one) for operation, one in zip(operations, inputs, strict=True)]

    fast = dyncomp.optimize(all_of_them)
    for kind in ("dense", "transposed", "expanded"):
        told = []
        for function in (fast, all_of_them):
            inputs = [one.detach().requires_grad_() for one in given]
            told.append(strides_told(function(*inputs), inputs, kind))
        for part in (0, 1):
            wrong = [place for place, pair in enumerate(zip(told[0][part], told[1][part], strict=True)) if pair[0] != pair[1]]
            assert not wrong, (kind, [(first + place, told[0][part][place], told[1][part][place]) for place in wrong])
        torch.testing.assert_close(told[0][2], told[1][2], rtol=1e-4, atol=1e-5)
    assert dyncomp.stats().graphs == 1 and not dyncomp.stats().fallbacks
