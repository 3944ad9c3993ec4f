"""Random graphs over random shapes, layouts and types: the schedule computes what eager computes."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.codegen.graphs import assert_close, flat, run_interpreted

SIZES = st.sampled_from([1, 2, 3, 4, 6, 16])


def _layout(draw, shape):
    """A tensor of this shape that may be permuted, strided, expanded or offset in memory."""
    kind = draw(st.sampled_from(["plain", "permuted", "strided", "expanded", "offset"]))
    if kind == "permuted":
        order = draw(st.permutations(range(len(shape))))
        inverse = [order.index(d) for d in range(len(shape))]
        return torch.randn([shape[d] for d in order]).permute(inverse)
    if kind == "strided":
        return torch.randn([*shape[:-1], shape[-1] * 2])[..., ::2]
    if kind == "expanded":
        return torch.randn([1, *shape[1:]]).expand(shape)
    if kind == "offset":
        return torch.randn([shape[0] + 2, *shape[1:]])[1:-1]
    return torch.randn(shape)


UNARY = {
    "exp": lambda t: (t * 0.1).exp(),
    "relu": torch.relu,
    "tanh": torch.tanh,
    "scale": lambda t: t * 0.5 + 1,
    "half": lambda t: t.bfloat16().float(),
    "int": lambda t: t.clamp(-100, 100).to(torch.int32).float(),
    "softmax": lambda t: torch.softmax(t, -1),
    "norm": lambda t: torch.nn.functional.layer_norm(t, t.shape[-1:]),
    "centre": lambda t: t - t.mean(0, keepdim=True),
    "rows": lambda t: t / (t.abs().sum(-1, keepdim=True) + 1),
    "turn": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
    "view": lambda t: t.reshape(-1).tanh().reshape(t.shape),
    "flip": lambda t: t.flip(-1),
    "shift": lambda t: torch.cat([t[..., 1:], t[..., :1]], -1),
    "where": lambda t: torch.where(t > 0, t, t.neg() * 0.1),
    "max": lambda t: t + t.amax(1, keepdim=True),
    "tril": torch.tril,
}
BINARY = {
    "add": torch.add,
    "mul": lambda a, b: a * b.tanh(),
    "sub": torch.sub,
    "max": torch.maximum,
    "columns": lambda a, b: a + b.sum(0, keepdim=True) * 0.1,
    "turned": lambda a, b: a + b.sum(-1, keepdim=True) * 0.1,
}
ENDS = {
    "same": lambda t: t,
    "sum": lambda t: t.sum(-1),
    "all": lambda t: t.sum(),
    "columns": lambda t: t.amax((0, 1)),
    "part": lambda t: t[:, : t.shape[1] // 2 + 1] * 2,
    "arg": lambda t: (t * 4).round().argmax(-1),
}


@st.composite
def programs(draw):
    """(inputs, steps, ends): each step names an operation and the earlier values that it takes."""
    shape = draw(st.tuples(SIZES, SIZES, SIZES))
    inputs = [_layout(draw, shape) for _ in range(draw(st.integers(1, 3)))]
    steps = []
    for n in range(draw(st.integers(1, 7))):
        known = st.integers(0, len(inputs) + n - 1)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(sorted(UNARY))), draw(known)))
        else:
            steps.append((draw(st.sampled_from(sorted(BINARY))), draw(known), draw(known)))
    last = len(inputs) + len(steps) - 1
    end = st.tuples(st.sampled_from(sorted(ENDS)), st.integers(0, last))
    ends = draw(st.lists(end, min_size=1, max_size=2))
    return inputs, steps, [*ends, ("same", last)]


def function_of(steps, ends):
    def function(*inputs):
        values = list(inputs)
        for name, *takes in steps:
            table = UNARY if len(takes) == 1 else BINARY
            values.append(table[name](*(values[t] for t in takes)))
        return [ENDS[name](values[at] * 1.0) for name, at in ends]

    return function


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_random_graph(program):
    inputs, steps, ends = program
    function = function_of(steps, ends)
    want = flat(function(*inputs))
    got = run_interpreted(function, *inputs)
    rounded = any(name in ("half", "int") for name, *_ in steps) or any(name == "arg" for name, _ in ends)
    if not rounded:  # a rounding step may fall to either side
        assert_close(got, want, scale=50)
    assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]
