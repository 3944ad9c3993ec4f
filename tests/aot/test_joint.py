"""Joint graphs: forward and backward as functional graphs, what is kept, what is computed again."""

import pytest
import torch
import torch.nn.functional as F

from dyncomp import aot, config
from tests.aot.aot_checks import fresh_inputs, graph_of


def joint_of(fn, *inputs):
    gm, parameters = graph_of(fn, len(inputs))
    everything = [*inputs, *parameters]
    joint = aot.trace_joint(gm, everything)
    aot.verify(joint.forward)
    return joint, gm, everything


def run_both(joint, gm, inputs, pattern=None):
    """(gradients by the joint graph, gradients by eager) for random gradients of the raw outputs in the pattern."""
    pattern = pattern or joint.pattern
    ours, theirs = fresh_inputs(inputs), fresh_inputs(inputs)
    torch.manual_seed(0)
    want = gm(*theirs)
    want = want if isinstance(want, tuple | list) else (want,)
    torch.manual_seed(0)
    values = joint.forward.run(*ours)
    outputs = [want[joint.outputs.index(("raw", k))] for k, asked in enumerate(pattern) if asked]
    for output, k in zip(outputs, [k for k, asked in enumerate(pattern) if asked], strict=True):
        torch.testing.assert_close(values[k], output.detach())
    tangents = [torch.randn_like(output) for output in outputs]
    saved = [ours[i] if kind == "input" else values[i] for kind, i in joint.saved]
    graph = joint.backward(pattern)
    aot.verify(graph)
    with torch.no_grad():
        got = graph.run(*saved, *tangents)
    reference = torch.autograd.grad(outputs, [theirs[i] for i in joint.requiring], tangents, allow_unused=True)
    return got, reference


def check(fn, *inputs, pattern=None):
    joint, gm, everything = joint_of(fn, *inputs)
    got, want = run_both(joint, gm, everything, pattern)
    for mine, reference in zip(got, want, strict=True):
        assert (mine is None) == (reference is None)
        if reference is not None:
            torch.testing.assert_close(mine, reference, rtol=1e-5, atol=1e-5)
    return joint


def r(*shape):
    return torch.randn(*shape, requires_grad=True)


def kept(joint):
    """Operations whose results are kept, and 'input'."""
    values = list(joint.forward.graph.nodes)[-1].args[0]
    names = []
    for kind, index in joint.saved:
        if kind == "input":
            names.append("input")
            continue
        rule = joint.forward.outputs[index]
        node = rule[1] if rule[0] == "node" else None
        names.append(node.name.rstrip("_0123456789") if node in values else rule[0])
    return sorted(names)


@pytest.mark.parametrize("knob", ["off", "fused", "more"])
def test_gradients_do_not_depend_on_what_is_recomputed(knob):
    with config.patch(recompute=knob):
        check(lambda x, w: (torch.relu(x @ w).sin().exp() * 2).sum(), r(3, 4), r(4, 5))
        check(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 3, 8))
        check(lambda x: F.dropout(F.gelu(x), 0.3), r(5, 6))
        check(lambda x, w: torch.tanh(x * w) @ torch.sigmoid(x), r(4, 4), r(4, 4))


def test_pointwise_chain_keeps_its_start_only():
    joint = check(lambda x, w: (x @ w).sin().cos().exp().sum(), r(3, 4), r(4, 5))
    assert kept(joint) == ["input", "input", "mm"]


def test_nothing_is_recomputed_when_switched_off():
    with config.patch(recompute="off"):
        joint = check(lambda x, w: (x @ w).sin().cos().exp().sum(), r(3, 4), r(4, 5))
    assert len(set(kept(joint)) - {"input", "mm"}) >= 3


def test_operands_of_products_are_kept_not_recomputed():
    joint = check(lambda x, w: F.gelu(x @ w) @ w.t(), r(4, 4), r(4, 4))
    assert "gelu" in kept(joint)
    with config.patch(recompute="more"):
        joint = check(lambda x, w: F.gelu(x @ w) @ w.t(), r(4, 4), r(4, 4))
    assert "gelu" not in kept(joint)


def test_random_draws_stay_in_the_forward():
    joint = check(lambda x: F.dropout(x, 0.5) * F.dropout(x, 0.2), r(5, 6))
    draws = [n for n in joint.backward(joint.pattern).graph.nodes if "bernoulli" in str(n.target)]
    assert joint.random and not draws


def test_a_loss_is_what_gets_the_gradient():
    joint = check(lambda x, w: ((x * w).sum(), x.exp()), r(3), r(3))
    assert joint.pattern == (True, False)


def test_parts_of_the_prepared_outputs():
    def f(x, w):
        return x.exp() * w, w.sin()

    assert check(f, r(3), r(3)).pattern == (True, True)
    check(f, r(3), r(3), pattern=(True, False))
    check(f, r(3), r(3), pattern=(False, True))
    joint, *_ = joint_of(lambda x: (x.sum(), x.exp()), r(3))
    with pytest.raises(aot.Unsupported):
        joint.backward((True, True))


def test_a_loss_that_is_a_piece_of_a_value():
    def f(x, w):
        h = x.exp() * w
        return h, (h * h).sum(0)[1]

    joint, *_ = joint_of(f, r(4, 4), r(4))
    assert joint.pattern == (False, True)
    assert [tuple(meta.shape) for meta in joint.raw_metas] == [(4, 4), (4,)]


def test_what_only_parts_are_seen_of_gets_row_major_gradients():
    def parts(x, w):
        return (x.t().clone() * 2)[1:], (x.t().exp()).t()

    joint, *_ = joint_of(parts, r(4, 4), r(4))
    assert [tuple(meta.strides) for meta in joint.raw_metas] == [(4, 1), (1, 4)]



def test_statistics_are_written_once_and_not_kept():
    joint = check(
        torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()), torch.randn(2, 3, 8, 8)
    )
    assert len(joint.forward.mutations) == 3 and joint.repeatable
    statistics = {index for index, _ in joint.forward.mutations}
    assert not statistics & {i for kind, i in joint.saved if kind == "input"}


def test_a_result_that_reads_a_written_input_cannot_be_repeated():
    def f(x, b):
        with torch.no_grad():
            b.add_(1)
        return x * b

    joint, *_ = joint_of(f, r(3), torch.zeros(3))
    assert not joint.repeatable


def test_inputs_that_eager_does_not_keep_are_not_kept():
    joint = check(lambda x: torch.relu(x * 2) + 1, r(3))
    assert ("input", 0) not in joint.saved


def test_an_input_written_with_a_gradient_is_a_raw_output():
    def f(x, w):
        x.mul_(w)
        return x.sum()

    gm, _ = graph_of(f, 2)
    for x in (torch.zeros(3), r(3) * 1):
        joint = aot.trace_joint(gm, [x, r(3)])
        assert joint.rebased == [(0, 1)] and joint.forward.mutations == [] and not joint.repeatable


def leaf_made_inside(x):
    return x + 1, torch.zeros(3, requires_grad=True)


def view_under_no_grad(x):
    with torch.no_grad():
        return x.view(-1)


@pytest.mark.parametrize("function, inputs", [
    (leaf_made_inside, (r(3),)),
    (view_under_no_grad, (r(3),)),
    (lambda x: (x * 2).conj(), (torch.zeros(3, dtype=torch.complex64, requires_grad=True),)),
])  # fmt: skip
def test_what_has_no_joint_form_says_so(function, inputs):
    with pytest.raises(aot.Unsupported):
        joint_of(function, *inputs)
