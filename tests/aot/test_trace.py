"""Traced graphs against eager: models, random numbers, normalisation, state nodes, constants, what is
refused.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dyncomp import aot
from dyncomp.errors import InternalError
from dyncomp.fake.facts import facts_of
from tests.aot.aot_checks import check, check_function, graph_of, trace

aten = torch.ops.aten


def targets(graph: aot.AtenGraph) -> list[object]:
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.down = nn.Conv2d(4, 8, 1, stride=2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu_(self.norm(self.conv(x)) + x)
        x = F.max_pool2d(self.down(x), 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Block(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


def test_convolutional_net_in_eval_mode() -> None:
    check_function(Residual().eval(), torch.randn(2, 4, 8, 8))


def test_convolutional_net_in_channels_last() -> None:
    check_function(Residual().eval(), torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last))


def test_batch_norm_in_training_mode_writes_its_statistics() -> None:
    graph = check_function(Residual().train(), torch.randn(2, 4, 8, 8))
    assert len(graph.mutations) == 3


def test_transformer_block() -> None:
    graph = check_function(Block(), torch.randn(2, 5, 16))
    assert aten.addmm.default in targets(graph) and aten.native_layer_norm.default in targets(graph)


def test_recurrent_net() -> None:
    lstm = nn.LSTM(4, 6, batch_first=True)
    check_function(lambda x: lstm(x)[0], torch.randn(2, 3, 4))


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: F.dropout(x, 0.3) + torch.rand_like(x),
        lambda x: x.clone().bernoulli_(),
        lambda x: (torch.randn(3), x.clone().normal_(), torch.randint(5, (4,)), x.clone().uniform_(-1, 1)),
        lambda x: F.dropout(x, 0.5, inplace=True),
        lambda x: (F.alpha_dropout(x, 0.2), torch.randperm(6), torch.bernoulli(x.sigmoid())),
        lambda x: x.t().clone().exponential_(),
        lambda x: F.dropout(x.t(), 0.4) + F.dropout(x[:, ::2].t(), 0.4).sum(),
        lambda x: F.dropout(x.view(4, 10, 5).permute(2, 0, 1), 0.4),
    ],
)
def test_random_operations_draw_what_eager_draws(draw) -> None:  # type: ignore[no-untyped-def]
    check_function(draw, torch.randn(40, 5))


def test_unused_random_operation_is_kept_and_equal_ones_are_not_merged() -> None:
    def draws(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch.rand_like(x)
        return x + torch.rand_like(x), x + torch.rand_like(x)

    graph = check_function(draws, torch.randn(3))
    assert sum(facts_of(t).random for t in targets(graph)) == 3  # type: ignore[arg-type]


def test_equal_pure_operations_are_merged_and_dead_ones_dropped() -> None:
    def repeats(x: torch.Tensor) -> torch.Tensor:
        x.cos()
        return x.sin() + x.sin()

    assert targets(check_function(repeats, torch.randn(3))) == [aten.sin.default, aten.add.Tensor]


def test_equal_outputs_keep_memory_of_their_own() -> None:
    check_function(lambda x: (x.sin(), x.sin(), x.clone(), x.clone()), torch.randn(3))


def test_outputs_that_are_inputs_views_duplicates_and_constants() -> None:
    def mixed(x: torch.Tensor):  # type: ignore[no-untyped-def]
        y = x * 2
        return x, x.t(), y, y, y[1], None, 3, 2.5, y.view(-1)[2:]

    check_function(mixed, torch.randn(3, 4))


def test_swapped_inputs_are_written_back_right() -> None:
    def swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return x + y

    check_function(swap, torch.randn(3), torch.randn(3))


def test_cache_update_through_a_view() -> None:
    def update(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        cache[:, 2:4].copy_(new)
        return cache[:, :4].sum(1)

    graph = check_function(update, torch.zeros(2, 6, 3), torch.randn(2, 2, 3))
    assert [index for index, _ in graph.mutations] == [0]


def test_literal_is_a_fresh_tensor_on_each_call() -> None:
    def literal(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, 2.0]).add_(x)

    graph = check_function(literal, torch.ones(2))
    assert torch.equal(graph.run(torch.ones(2))[0], graph.run(torch.ones(2))[0])


def test_out_argument() -> None:
    def into(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.add(x, 1, out=y)

    check_function(into, torch.randn(2, 3), torch.zeros(2, 3, dtype=torch.float64))


def test_autocast_nodes_become_casts() -> None:
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    enter = torch.amp.autocast_mode._enter_autocast
    state = graph.call_function(enter, ("cpu", torch.bfloat16, True, None))
    y = graph.call_function(torch.mm, (x, w))
    z = graph.call_function(torch.mm, (y, w))
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (state,))
    graph.output((z, graph.call_function(torch.mm, (x, w))))
    traced = check(torch.fx.GraphModule(nn.Module(), graph), [torch.randn(4, 4), torch.randn(4, 4)])
    assert aten._to_copy.default in targets(traced)
    assert not torch.is_autocast_enabled("cpu")


def test_caller_autocast_is_traced_once_and_not_applied_again() -> None:
    gm, _ = graph_of(lambda x, w: torch.mm(x, w) + 1, 2)
    inputs = [torch.randn(4, 4), torch.randn(4, 4)]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        graph = trace(gm, inputs)
        expected = gm(*inputs)
        assert torch.equal(graph.run(*inputs)[0], expected) and expected.dtype is torch.bfloat16


def test_inference_mode() -> None:
    gm, _ = graph_of(lambda x: F.linear(x, x).softmax(-1))
    with torch.inference_mode():
        x = torch.randn(3, 3)
        assert torch.equal(trace(gm, [x]).run(x)[0], gm(x))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x + float(x.sum()),
        lambda x: x.t_(),
        lambda x: x.resize_(2),
        lambda x: x[:, 1:].copy_(x[:, :-1]),
        lambda x: x.to(torch.complex64).conj(),
        lambda x: x + torch.zeros(7),
    ],
)
def test_what_has_no_functional_form_is_refused(program) -> None:  # type: ignore[no-untyped-def]
    gm, _ = graph_of(program)
    with pytest.raises(aot.Unsupported):
        trace(gm, [torch.randn(2, 3)])


def test_written_input_that_shares_memory_is_refused() -> None:
    gm, _ = graph_of(lambda x, y: x.add_(y), 2)
    x = torch.randn(3)
    with pytest.raises(aot.Unsupported, match="shares memory"):
        trace(gm, [x, x.view(3)])
    graph = trace(gm, [x.clone(), x.clone()])
    assert graph.overlaps([x, x.view(3)]) and not graph.overlaps([x, x.clone()])
    expected = x * 2
    assert torch.equal(graph.run(x, x.view(3))[0], expected)


def test_text_of_a_graph_runs() -> None:
    graph = check_function(lambda x: (x.sin() * float("inf"), x.to(torch.float64)), torch.randn(2))
    namespace: dict[str, object] = {}
    exec(str(graph), namespace)
    assert len(namespace["forward"](torch.randn(2))) == 2  # type: ignore[operator]


def test_user_lines_survive() -> None:
    gm = torch.fx.symbolic_trace(lambda x: x.sin().cos())
    for i, node in enumerate(gm.graph.nodes):
        node.meta["user_line"] = ("model.py", i)
    lines = [
        n.meta.get("user_line") for n in trace(gm, [torch.randn(2)]).graph.nodes if n.op == "call_function"
    ]
    assert lines == [("model.py", 1), ("model.py", 2)]


def test_verify_names_a_broken_line() -> None:
    graph = check_function(lambda x: x.sin(), torch.randn(2))
    next(n for n in graph.graph.nodes if n.op == "call_function").target = aten.sin_.default
    with pytest.raises(InternalError, match="writes its arguments"):
        aot.verify(graph)


def test_twelve_layers_trace_quickly() -> None:
    gm, parameters = graph_of(nn.Sequential(*[Block() for _ in range(12)]))
    inputs = [torch.randn(2, 5, 16), *parameters]
    with torch.no_grad():
        aot.trace_inference(gm, inputs)
        best = min(_seconds(lambda: aot.trace_inference(gm, inputs)) for _ in range(3))
    assert best < 1.0  # about 0.05 on an idle machine


def _seconds(call) -> float:  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def test_tracing_imports_neither_dynamo_nor_inductor() -> None:
    program = """
import sys, torch, torch.fx
from torch import nn
from dyncomp import aot
layer = nn.TransformerEncoderLayer(16, 2, batch_first=True).train()
net = nn.Sequential(nn.Conv1d(4, 16, 3), nn.BatchNorm1d(16)).eval()
def program(x):
    return layer(net(x).mT).cumsum(0).std()
graph = torch.fx.Graph()
graph.output(graph.call_function(program, (graph.placeholder("x"),)))
gm = torch.fx.GraphModule(nn.Module(), graph)
with torch.no_grad():
    aot.trace_inference(gm, [torch.randn(2, 4, 8)]).run(torch.randn(2, 4, 8))
loaded = [m for m in sys.modules if m.split(".")[:2] in (["torch", "_dynamo"], ["torch", "_inductor"])]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
