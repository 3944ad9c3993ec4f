"""Data parallel training over gloo on the loopback device: compiled modules in `DistributedDataParallel`, and around it.

All cases run in one pair of child processes (and in one alone), each against eager's `DistributedDataParallel` of the same model.
"""

import contextlib
import os
import socket
import traceback

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dyncomp
from tests.support import assert_same

STEPS = 4


class Net(nn.Module):
    """`branches`: one of two heads is used; `breaks`: a graph break in forward."""

    def __init__(self, branches=False, breaks=False):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.left, self.right = nn.Linear(8, 3), nn.Linear(8, 3)
        self.branches, self.breaks = branches, breaks

    def forward(self, x, left):
        x = torch.relu(self.norm(self.first(x)))
        if self.breaks:
            print(end="")
        if self.branches:
            return self.left(x) if left else self.right(x)
        return self.left(x) * self.right(x)


def half_sums(state, bucket):
    """A communication hook: sums in bfloat16."""
    sent = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    future = dist.all_reduce(sent, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


CASES = {
    "plain": ({}, {}),
    "graph breaks, small buckets": ({"breaks": True}, {"bucket_cap_mb": 0.0001}),
    "no_sync": ({}, {}),
    "unused parameters": ({"branches": True}, {"find_unused_parameters": True}),
    "static graph": ({}, {"static_graph": True}),
    "gradients are views of buckets": ({}, {"gradient_as_bucket_view": True}),
    "communication hook": ({}, {}),
}
WAYS = ("compiled module", "compiled wrapper", "compiled step", "compiled autograd")


def train(case, way):
    """What every step gives on this rank."""
    net_options, options = CASES[case]
    net = Net(**net_options)
    inner = dyncomp.optimize(net) if way == "compiled module" else net
    parallel = nn.parallel.DistributedDataParallel(inner, **options)
    if case == "communication hook":
        parallel.register_comm_hook(None, half_sums)
    model = dyncomp.optimize(parallel) if way == "compiled wrapper" else parallel

    def step(x, left):
        loss = model(x, left).square().mean()
        loss.backward()
        return loss

    run = dyncomp.optimize(step, options={"capture_backward": True}) if way == "compiled step" else step
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    seen = []
    for i in range(STEPS):
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(10 * i + dist.get_rank()))
        waits = case == "no_sync" and i % 2 == 0
        with parallel.no_sync() if waits else contextlib.nullcontext():
            with dyncomp.enable(compiled_autograd=True) if way == "compiled autograd" else contextlib.nullcontext():
                loss = run(x, case != "unused parameters" or i % 3 != 0)
        grads = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
        seen.append([loss.detach(), grads, [b.clone() for b in net.buffers()]])
        if not waits:
            optimizer.step()
            optimizer.zero_grad()
    return [seen, [p.detach() for p in net.parameters()]]


def work(rank, port, world, results):
    try:
        torch.set_num_threads(1)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        dist.init_process_group("gloo", rank=rank, world_size=world)
        for case in CASES:
            expected = train(case, "eager")
            for way in WAYS:
                dyncomp.reset()
                assert_same(train(case, way), expected, f"{case}, {way}", rtol=1e-5, atol=1e-6)
                assert dyncomp.stats().graphs > 0, (case, way)
                assert "recompile-limit" not in dyncomp.stats().fallbacks, (case, way)
        dist.destroy_process_group()
        results.put(None)
    except BaseException:
        results.put(f"rank {rank}: {traceback.format_exc()}")
        raise


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="torch without gloo")
@pytest.mark.parametrize("world", [1, 2])
def test_gradients_are_those_of_eager(world):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = torch.multiprocessing.get_context("spawn")
    results = spawn.Queue()
    children = [spawn.Process(target=work, args=(rank, port, world, results)) for rank in range(world)]
    for child in children:
        child.start()
    try:
        for _ in children:
            error = results.get(timeout=120)
            assert error is None, error
    finally:
        for child in children:
            child.join(10)
            if child.is_alive():
                child.kill()
