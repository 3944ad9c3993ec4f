"""ATen graph to executable plan: results, layouts, aliases, mutations and the stages that are dumped."""

import threading

import pytest
import torch

from dyncomp import counters
from dyncomp.codegen.compile import Options, compile_graph
from tests.codegen.graphs import assert_close, flat, trace

F = torch.nn.functional
R = torch.randn


def compiled(function, *inputs, **options):
    return compile_graph(trace(function, *inputs), Options(**options))


@torch.no_grad()
def check(function, *inputs, scale=1.0, **options):
    want = flat(function(*[t.clone() for t in inputs]))
    plan = compiled(function, *inputs, **options)
    for _ in range(2):
        assert_close(list(plan(*inputs)), want, scale)
    return plan


def test_kernels_and_calls():
    check(lambda x, w, b: F.gelu(F.linear(x, w, b)) + x.sum(-1, keepdim=True), R(4, 6, 8), R(16, 8), R(16))
    check(lambda x, y: (x @ y.transpose(1, 2)).softmax(-1) @ y, R(4, 6, 8), R(4, 6, 8))
    check(lambda x: torch.cumsum(x * 2, 1).relu().sort(0)[0] + 1, R(6, 8))


def test_views_of_results_and_inputs():
    check(lambda x: (x.t(), x.exp().t(), x.exp()[1:]), R(6, 8))
    check(lambda x: x[1:] * 2, R(6, 8)[::2])


def test_a_view_of_an_input_aliases_it():
    x = R(6, 8)
    (view,) = compiled(lambda t: t[1:].t(), x)(x)
    assert view.data_ptr() == x[1:].data_ptr() and view.stride() == (1, 8)


def test_the_input_itself_comes_back():
    x = R(3)
    assert compiled(lambda t: t, x)(x)[0] is x


def test_mutations_are_written_back():
    x, y = R(4), R(4)
    want = x + y
    version = x._version
    plan = compiled(lambda a, b: a.add_(b).exp(), x, y)
    with torch.no_grad():
        (out,) = plan(x, y)
    assert torch.equal(x, want) and x._version == version + 1
    torch.testing.assert_close(out, want.exp())


def test_inputs_that_share_memory_run_op_by_op():
    x, y = R(8), R(4)
    function = lambda a, b: (a.add_(b.sum()) * 1,)  # noqa: E731
    plan = compiled(function, x, y, fallback=function)
    shared = x.clone()
    before = counters.stats().fallbacks.get("inputs-share-memory", 0)
    with torch.no_grad():
        plan(shared, shared[:4])
    torch.testing.assert_close(shared, x + x[:4].sum())
    assert counters.stats().fallbacks["inputs-share-memory"] == before + 1


def test_without_kernels_everything_is_a_call():
    plan = check(lambda x: F.layer_norm(x.relu(), (8,)).t() + 1, R(8, 8), kernels=False)
    assert not plan.data()["kernels"]


def test_empty_tensors():
    check(lambda x: (x.exp(), x.sum(0), x.sum(1)), R(0, 4))
    check(lambda x: x[:, :0].relu(), R(3, 4))


def test_index_out_of_range():
    plan = compiled(lambda w, i: F.embedding(i, w) + 1, R(10, 8), torch.tensor([3, 1]))
    with pytest.raises(IndexError), torch.no_grad():
        plan(R(10, 8), torch.tensor([3, 10]))


def test_stages_are_dumped():
    stages = {}
    compiled(lambda x: x.exp() @ x, R(4, 4), dump=stages.__setitem__)
    assert set(stages) == {"loops.py", "kernels.cpp", "plan.txt"}
    assert "'exp'" in stages["loops.py"] and "mm" in stages["plan.txt"]


def test_temporaries_share_the_arena():
    def chain(x, w):
        for _ in range(6):
            x = (x @ w).relu()
        return x

    plan = check(chain, R(16, 16), R(16, 16) * 0.1)
    assert plan.data()["arena"] == 2 * 16 * 16 * 4


def test_threads_run_one_plan_at_once():
    function = lambda x, w: F.softmax(x @ w, -1).sum(0)  # noqa: E731
    w = R(64, 64)
    plan = compiled(function, R(64, 64), w)
    failures = []

    def work():
        with torch.no_grad():
            for _ in range(20):
                x = R(64, 64)
                if not torch.allclose(plan(x, w)[0], function(x, w), atol=1e-4):
                    failures.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_transformer_layer():
    def layer(x, *p):
        q, k, v = (F.linear(x, p[i], p[i + 1]).view(2, 5, 4, 8).transpose(1, 2) for i in (0, 2, 4))
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 32)
        x = F.layer_norm(F.linear(a, p[6], p[7]) + x, (32,), p[8], p[9])
        y = F.linear(F.gelu(F.linear(x, p[10], p[11])), p[12], p[13])
        return F.layer_norm(y + x, (32,), p[14], p[15])

    square = [R(32, 32) * 0.2, R(32)]
    wide = [R(64, 32) * 0.2, R(64), R(32, 64) * 0.2, R(32)]
    weights = [*square, *square, *square, *square, R(32), R(32), *wide, R(32), R(32)]
    check(layer, R(2, 5, 32), *weights, scale=5)


def test_residual_block_in_both_layouts():
    def block(x, w, m, v, g, b):
        y = F.relu(F.batch_norm(F.conv2d(x, w, padding=1), m, v, g, b))
        return F.relu(F.batch_norm(F.conv2d(y, w, padding=1), m, v, g, b) + x)

    image, channel = R(2, 8, 6, 6), R(8).abs() + 0.5
    for x in (image, image.to(memory_format=torch.channels_last)):
        check(block, x, R(8, 8, 3, 3) * 0.1, channel, channel, channel, channel, scale=5)
