"""Strides of results over inputs in any memory order, with gaps, and with dimensions of size 1 whose stride is odd:
all of it decides how eager lays a result out, and shows in every later operation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from tests.fake.test_rules import agree

aten = torch.ops.aten
ROWS = torch.tensor([1, 0, 0])


def sampled(x):
    return F.grid_sample(x, x[:, 0, :, :, None].expand(-1, -1, -1, 2), align_corners=True)


ONE = {
    "abs": torch.abs,
    "angle": torch.angle,
    "bfloat16": lambda x: x.bfloat16(),
    "binomial": lambda x: torch.binomial(x.abs() + 1, x.abs() / (x.abs() + 2)),
    "bool": lambda x: x.bool(),
    "clone": torch.clone,
    "copysign": lambda x: torch.copysign(x, -2.0),
    "diag_embed": torch.diag_embed,
    "dirichlet": lambda x: aten._sample_dirichlet(x.abs() + 1),
    "dirichlet-gradient": lambda x: aten._dirichlet_grad(x.abs() + 1, x.abs() + 1, x.abs() + 2),
    "double": lambda x: x.double(),
    "erf": torch.erf,
    "fill": lambda x: torch.fill(x, 3),
    "flip": lambda x: x.flip(0),
    "float_power": lambda x: torch.float_power(x, 2),
    "frexp": lambda x: torch.frexp(x.float()),
    "gamma-gradient": lambda x: aten._standard_gamma_grad(x.abs() + 1, x.abs() + 1),
    "glu": lambda x: F.glu(torch.cat([x, x], 1).float(), 1),
    "hardshrink": lambda x: F.hardshrink(x.float()),
    "isinf": torch.isinf,
    "isneginf": torch.isneginf,
    "ldexp": lambda x: torch.ldexp(x, x),
    "grid_sample": lambda x: sampled(x.float()),
    "logit": torch.logit,
    "nan_to_num": torch.nan_to_num,
    "neg-less": lambda x: 3 - x.int(),
    "polygamma": lambda x: torch.polygamma(1, x),
    "prelu": lambda x: F.prelu(x.float(), torch.ones(x.shape[1])),
    "randint_like": lambda x: torch.randint_like(x, 9),
    "renorm": lambda x: torch.renorm(x.float(), 2, 0, 1.0),
    "roll": lambda x: x.roll(1, 0),
    "roll-all": lambda x: x.roll(1),
    "roll-two": lambda x: x.roll((1, 1), (-1, 0)),
    "rot90": torch.rot90,
    "rot90-twice": lambda x: torch.rot90(x, 2, (0, -1)),
    "signbit": torch.signbit,
    "softshrink": lambda x: F.softshrink(x.float()),
    "sort": lambda x: x.sort(0),
    "sort-stable": lambda x: x.sort(dim=-1, stable=True),
    "stack": lambda x: torch.stack([x, x], 1),
    "stack-last": lambda x: torch.stack([x, x], -1),
    "index": lambda x: x[ROWS.clamp(max=x.shape[0] - 1)],
    "index-inner": lambda x: x[:, ROWS.clamp(max=x.shape[1] - 1)],
    "index-apart": lambda x: x[ROWS[1:], :, ROWS[1:]] if x.ndim > 2 else x[ROWS[1:], ROWS[1:]],
    "index-column": lambda x: x[ROWS[1:, None], ROWS[1:].int()],
    "index_put": lambda x: torch.index_put(x, (ROWS[1:],), x[:1]),
    "take-one": lambda x: x[:, ROWS[1:2].expand(1, 1)],
}
TWO = {
    "add": torch.add,
    "bce": lambda x, y: F.binary_cross_entropy(x.float(), y.float(), reduction="none"),
    "bce-logits": lambda x, y: F.binary_cross_entropy_with_logits(x.float(), y.float(), reduction="none"),
    "cat": lambda x, y: torch.cat([x, y], 0),
    "cat-inner": lambda x, y: torch.cat([x, y, x], 1),
    "clamp_min": lambda x, y: torch.clamp_min(x, y),
    "complex": lambda x, y: torch.complex(x.float(), y.float()),
    "copysign": torch.copysign,
    "eq": torch.eq,
    "fmod": lambda x, y: torch.fmod(x.int(), y.float()),
    "gcd": lambda x, y: torch.gcd(x.long(), y.long()),
    "heaviside": lambda x, y: torch.heaviside(x, y.to(x.dtype)),
    "igamma": lambda x, y: torch.igamma(x.float(), y.float()),
    "isin": torch.isin,
    "lcm": lambda x, y: torch.lcm(x.long(), y.int()),
    "legendre": torch.special.legendre_polynomial_p,
    "logaddexp": lambda x, y: torch.logaddexp(x.float(), y.float()),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 1),
    "mse": lambda x, y: F.mse_loss(x.float(), y.float(), reduction="none"),
    "normal": lambda x, y: torch.normal(x.float(), y.float()),
    "polar": lambda x, y: torch.polar(x.float(), y.float()),
    "pow": torch.pow,
    "rsub": torch.rsub,
    "shift": lambda x, y: x.int() << y.int(),
    "smooth": lambda x, y: F.smooth_l1_loss(x.float(), y.float(), reduction="none"),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "xlog1py": torch.special.xlog1py,
    "xlogy": torch.xlogy,
    "zeta": torch.special.zeta,
}
# Of a gradient and what went in or came out.
GRADIENTS = {
    "elu": lambda g, x: aten.elu_backward(g, 1, 1, 1, False, x),
    "entropy": lambda g, x: aten.binary_cross_entropy_backward(g, x.sigmoid(), x.sigmoid(), None, 0),
    "gelu": aten.gelu_backward,
    "glu": lambda g, x: aten.glu_backward(g, torch.cat([x, x], 1), 1),
    "hardshrink": lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    "hardsigmoid": aten.hardsigmoid_backward,
    "hardswish": aten.hardswish_backward,
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1, 1),
    "layers": lambda g, x: aten.native_layer_norm_backward(g, x, x.shape[-1:], x[..., :1], x[..., :1], None, None, [True, False, False])[0],
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "log_sigmoid": lambda g, x: aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1]),
    "log_softmax": lambda g, x: aten._log_softmax_backward_data(g, x, 1, torch.float32),
    "logit": lambda g, x: aten.logit_backward(g, x.sigmoid()),
    "mish": aten.mish_backward,
    "prelu": lambda g, x: aten._prelu_kernel_backward(g, x, x),
    "reflected": lambda g, x: aten.reflection_pad2d_backward(F.pad(g, (0, 1, 0, 1)), x, (0, 1, 0, 1)),
    "repeated": lambda g, x: aten.replication_pad2d_backward(F.pad(g, (0, 1, 0, 1)), x, (0, 1, 0, 1)),
    "rrelu": lambda g, x: aten.rrelu_with_noise_backward(g, x, x, 0.1, 0.3, True, False),
    "sigmoid": aten.sigmoid_backward,
    "softmax": lambda g, x: aten._softmax_backward_data(g, x, 1, torch.float32),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 1, 20),
    "softshrink": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    "tanh": aten.tanh_backward,
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0.1),
}
SAME_SHAPE = {"bce", "bce-logits", "cat", "cat-inner", "mse", "smooth"}
DTYPES = [torch.float32, torch.int64, torch.int32, torch.bool, torch.bfloat16]


@st.composite
def strided(draw, shape, dtypes=DTYPES):
    """A tensor of ones: any order of the dimensions in memory, gaps, expanded dimensions, any stride at size 1."""
    strides, step = [0] * len(shape), 1
    for dim in draw(st.permutations(range(len(shape)))):
        if shape[dim] == 1:
            strides[dim] = draw(st.sampled_from([step, step, 0, 1, 3, 7, 40]))
            continue
        step *= draw(st.sampled_from([1, 1, 1, 2]))
        strides[dim] = draw(st.sampled_from([step] * 5 + [0]))
        step *= shape[dim]
    memory = torch.ones(step + 1, dtype=draw(st.sampled_from(dtypes)))
    return memory.as_strided(shape, strides)


shapes = st.lists(st.sampled_from([1, 1, 2, 3]), min_size=2, max_size=5).map(tuple)


@settings(max_examples=600, deadline=None)
@given(name=st.sampled_from(sorted(ONE)), x=shapes.flatmap(strided))
def test_of_one_tensor(name, x):
    check(ONE[name], x)


@settings(max_examples=600, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(TWO)), shape=shapes)
def test_of_two_tensors(data, name, shape):
    other = shape
    if name not in SAME_SHAPE:
        narrow = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
        other = tuple(1 if one else n for n, one in zip(shape, narrow, strict=True))
        other = other[data.draw(st.integers(0, len(shape) - 1)) :]
    check(TWO[name], data.draw(strided(shape)), data.draw(strided(other)))


@settings(max_examples=800, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(GRADIENTS)), shape=shapes)
def test_gradient_formulas(data, name, shape):
    floats = strided(shape, [torch.float32])
    check(GRADIENTS[name], data.draw(floats), data.draw(floats))


def check(program, *tensors):
    try:
        program(*tensors)
    except (RuntimeError, IndexError):  # a dtype or a size that eager refuses
        return
    agree(program, *tensors)


ODD = {
    "row of a matrix": ((1, 5), (7, 1)),
    "column": ((5, 1), (1, 3)),
    "column of a matrix": ((5, 1), (4, 9)),
    "transposed": ((4, 1, 3), (1, 40, 4)),
    "channels last, one channel": ((2, 1, 3, 4), (12, 1, 4, 1)),
    "channels last, one pixel": ((2, 3, 1, 1), (3, 1, 3, 3)),
    "gaps": ((3, 4), (2, 7)),
}
RUN = ["angle", "bfloat16", "frexp", "index-inner", "isinf", "neg-less", "roll", "rot90", "sort-stable", "stack"]
RUN_TWO = ["bce", "bce-logits", "cat", "copysign", "gcd", "heaviside", "masked_fill", "mse", "pow", "rsub", "xlogy"]


@pytest.mark.parametrize("layout", ODD)
def test_compiled(layout):
    """The same through the code generator: a later operation on the result included."""
    x = torch.ones(200).as_strided(*ODD[layout])
    for name in RUN:
        compiled(ONE[name], x)
    for name in RUN_TWO:
        compiled(TWO[name], x, x + 0.0)
        compiled(TWO[name], x, torch.ones(x.shape))


def compiled(program, *tensors):
    def both(*inputs):
        result = program(*inputs)
        first = result if isinstance(result, torch.Tensor) else result[0]
        return result, first.abs() if first.dtype is not torch.bool else ~first

    want, got = both(*tensors), dyncomp.optimize(both, fullgraph=True)(*tensors)
    for expected, actual in zip(*map(torch.utils._pytree.tree_leaves, (want, got)), strict=True):
        assert actual.stride() == expected.stride()
        assert torch.equal(actual, expected)


# Channels last and row-major at once, channels last, with gaps, and neither.
IMAGES = [
    ((2, 4, 1, 1), (4, 1, 4, 4)),
    ((2, 4, 1, 1), (4, 1, 1, 1)),
    ((2, 4, 1, 1), (8, 1, 8, 8)),
    ((2, 1, 3, 3), (9, 1, 3, 1)),
    ((2, 1, 3, 3), (9, 9, 3, 1)),
    ((2, 4, 3, 3), (36, 9, 3, 1)),
    ((2, 4, 3, 3), (36, 1, 12, 4)),
    ((2, 4, 3, 3), (72, 1, 12, 4)),
    ((2, 4, 3, 3), (36, 3, 12, 1)),
    ((2, 4, 3), (12, 1, 4)),
    ((2, 4, 1), (4, 1, 4)),
    ((2, 4), (1, 2)),
    ((2, 1, 2, 2, 2), (8, 1, 4, 2, 1)),
    ((2, 4, 2, 2, 2), (32, 1, 16, 8, 4)),
]


@pytest.mark.parametrize("image", IMAGES, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(image, training):
    shape, strides = image
    x, channels = torch.randn(200).as_strided(shape, strides), shape[1]
    ones, spread = torch.ones(channels), torch.ones(2 * channels)[::2]
    for weight, mean in ((ones, ones), (spread, ones), (ones, spread)):
        agree(lambda x, w, m: torch.native_batch_norm(x, w, w, m, m, training, 0.1, 1e-5)[0], x, weight, mean)
    for gradient in (torch.randn(200).as_strided(*other) for other in IMAGES if other[0] == shape):
        agree(
            lambda g, x, w: aten.native_batch_norm_backward(g, x, w, w, w, w, w, training, 1e-5, [True] * 3)[0],
            gradient, x, ones,
        )  # fmt: skip


def test_batch_norm_of_one_pixel(fresh):
    """What comes behind a pooling to one pixel: results and gradients lie as in eager."""
    layer = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 3, 1))
    compiled = dyncomp.optimize(layer, fullgraph=True)
    outcomes = []
    for program in (layer, compiled):
        torch.manual_seed(0)
        x = torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last).requires_grad_()
        pooled = program(x)
        pooled.cos().sum().backward()
        outcomes.append([t.stride() for t in (pooled, x.grad, *[p.grad for p in layer.parameters()])])
        layer.zero_grad()
    assert outcomes[1] == outcomes[0]


def test_plain_sizes_in_a_trace_with_symbolic_ones_are_inferred_as_everywhere_else():
    """torch's Python kernels, which go first where sizes are symbolic, lay out some results otherwise, and results are remembered."""

    def f(x, y):
        return F.unfold(x, 2), F.unfold(x[0], 2), F.fold(F.unfold(x, 2), x.shape[-2:], 2), y * 2

    def g(x):
        return F.unfold(x, 2), F.unfold(x[0], 2)

    import dyncomp

    images = torch.randn(1, 1, 2, 2), torch.randn(1, 1, 2, 3), torch.randn(1, 2, 4, 5)
    for x in images:
        for dynamic in (True, False):
            dyncomp.reset()
            for function, args in ((f, (x, torch.randn(3))), (g, (x,))):
                got = dyncomp.optimize(function, backend="aot_eager", dynamic=dynamic)(*args)
                assert [t.stride() for t in got] == [t.stride() for t in function(*args)]
