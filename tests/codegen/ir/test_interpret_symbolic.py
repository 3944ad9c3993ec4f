"""The reference interpreter runs kernels with symbolic sizes: one schedule, eager's results at all sizes."""

import pytest
import torch
import torch.nn.functional as F

from tests.codegen.graphs import assert_close, run_symbolic

SIZES = [(6, 35), (2, 3), (3, 2), (17, 16), (5, 70), (64, 33)]
PROGRAMS = {
    "pointwise": lambda x: x.tanh() * 2 + 1,
    "rows": lambda x: x.sum(-1) + x.amax(1),
    "columns": lambda x: x.mean(0),
    "all": lambda x: x.sum(),
    "softmax": lambda x: torch.softmax(x, -1),
    "norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "turned": lambda x: x.t() * 2 + x.t().contiguous(),
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "views": lambda x: (x + 1).t().reshape(-1) * 2,
    "half": lambda x: torch.softmax(x.bfloat16(), -1),
    "roll": lambda x: torch.roll(x, 1, 1),
    "triangle": lambda x: torch.tril(x) * 2,
    "product": lambda x: ((x + 1) @ x.t()).relu(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_schedule_for_all_sizes(name):
    torch.manual_seed(0)
    function = PROGRAMS[name]
    calls = [(torch.randn(n, m),) for n, m in SIZES]
    for got, inputs in zip(run_symbolic(function, *calls), calls, strict=True):
        assert_close(got, [function(*inputs)], scale=10)
