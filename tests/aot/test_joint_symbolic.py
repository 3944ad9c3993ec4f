"""Joint graphs whose sizes are symbolic: one trace, gradients at many sizes."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp import aot
from dyncomp.fake import FakeMode
from dyncomp.shape.symbolic import layout_of, new_env
from tests.aot.aot_checks import graph_of


def symbolic_fakes(tensors, varying):
    """Fakes of the tensors; the first `varying` of them have symbolic sizes, the same number wherever it is the same in the first call."""
    env, mode, known = new_env(), FakeMode(), {}
    fakes = []
    for number, tensor in enumerate(tensors):
        if number >= varying:
            fakes.append(mode.from_real(tensor))
            continue

        def size_at(dim, tensor=tensor, number=number):
            size = tensor.shape[dim]
            if size <= 1:
                return size
            if size not in known:
                known[size] = env.create_int(size, origin=(number, "size", dim))
            return known[size]

        layout = layout_of(env, tensor.shape, tensor.stride(), size_at, lambda dim, n=number: (n, "stride", dim))
        fakes.append(mode.from_real(tensor, layout))
    return fakes


def joint_of(fn, inputs, varying=None):
    gm, parameters = graph_of(fn, len(inputs))
    joint = aot.trace_joint(gm, symbolic_fakes([*inputs, *parameters], len(inputs) if varying is None else varying))
    return joint, gm, parameters


def compare(joint, gm, inputs, parameters):
    """One forward and backward against eager's."""
    leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs] + list(parameters)
    torch.manual_seed(0)
    results = gm(*leaves)
    results = results if isinstance(results, tuple | list) else (results,)
    torch.manual_seed(0)
    values = joint.forward.run(*[t.detach() for t in leaves])
    outputs = [results[joint.outputs.index(("raw", k))] for k, asked in enumerate(joint.pattern) if asked]
    for k, output in zip([k for k, asked in enumerate(joint.pattern) if asked], outputs, strict=True):
        assert values[k].stride() == output.stride()
        torch.testing.assert_close(values[k], output.detach(), rtol=1e-4, atol=1e-5)
    tangents = [torch.randn_like(output) for output in outputs]
    saved = [leaves[i].detach() if kind == "input" else values[i] for kind, i in joint.saved]
    with torch.no_grad():
        got = joint.backward(joint.pattern).run(*saved, *tangents)
    want = torch.autograd.grad(outputs, [leaves[i] for i in joint.requiring], tangents, allow_unused=True)
    for mine, reference in zip(got, want, strict=True):
        assert (mine is None) == (reference is None)
        if reference is not None:
            assert mine.stride() == reference.stride()
            torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-4)


def r(*shape):
    return torch.randn(*shape, requires_grad=True)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = torch.nn.LayerNorm(8), torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), 0.2)


FUNCTIONS = {
    "pointwise": (lambda x, w: (x * w).sin().exp() * 2, lambda b, n: (r(b, n), r(n))),
    "product": (lambda x, w: torch.relu(x @ w).sum(), lambda b, n: (r(b, n), r(n, 7))),
    "mean": (lambda x: (x - x.mean(0)).pow(2).mean(), lambda b, n: (r(b, n),)),
    "flat": (lambda x: x.view(-1).cumsum(0) / x.numel(), lambda b, n: (r(b, n),)),
    "concatenated": (lambda x, w: torch.cat([x, w, x[:1]]).softmax(-1), lambda b, n: (r(b, n), r(b, n))),
    "picked": (lambda x, w: x[:, 1:] * w[None, :-1] + x[:, :-1], lambda b, n: (r(b, n), r(n))),
    "loss": (lambda x: F.cross_entropy(x.view(-1, x.size(-1)), x.argmax(-1).view(-1)), lambda b, n: (r(b, n, 5),)),
    "expanded": (lambda x, w: (x[:, None].expand(-1, 3, -1) * w).sum(1), lambda b, n: (r(b, n), r(n))),
    "block": (Block(), lambda b, n: (r(b, n, 8),)),
    "dropouts": (lambda x: F.dropout(x, 0.3).sum(0) + F.dropout(x, 0.5), lambda b, n: (r(b, n),)),
    "turned": (lambda x: x.t().contiguous().tanh().t() * 2, lambda b, n: (r(b, n),)),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
@settings(max_examples=4, deadline=None)
@given(sizes=st.lists(st.tuples(st.integers(2, 9), st.integers(2, 9)), min_size=1, max_size=3))
def test_gradients_at_other_sizes(name, sizes):
    function, make = FUNCTIONS[name]
    joint, gm, parameters = joint_of(function, make(3, 4) if name not in ("block", "loss") else make(3, 6))
    for batch, length in [(3, 4), *sizes]:
        compare(joint, gm, make(batch, length), parameters)


def test_sizes_that_nothing_kept_tells_ride_along():
    joint, gm, parameters = joint_of(lambda x: x.view(-1).sum(), (r(3, 4),))
    assert joint.carrier is not None and len(joint.saved) == 1
    compare(joint, gm, (r(5, 2),), parameters)


def test_static_graphs_keep_no_sizes():
    gm, parameters = graph_of(lambda x: x.view(-1).sum(), 1)
    joint = aot.trace_joint(gm, [r(3, 4), *parameters])
    assert joint.carrier is None and joint.forward.sizes is None
