"""Random programs under dynamic=True, each at several sizes: always eager's result, whatever was compiled before."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from dyncomp import config
from tests.support import assert_same

STEPS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "view": lambda x, n: x.reshape(-1, x.shape[-1]),
    "fold": lambda x, n: x.reshape(*x.shape[:-1], -1, 2) if x.shape[-1] % 2 == 0 else x,
    "flat": lambda x, n: x.flatten(),
    "add": lambda x, n: x + x.sum(-1, keepdim=True),
    "cat": lambda x, n: torch.cat([x, x], n % x.dim()),
    "slice": lambda x, n: x[n:] if x.shape[0] > n else x,
    "drop": lambda x, n: x[..., : x.shape[-1] - 1] if x.shape[-1] > 2 else x,
    "step": lambda x, n: x[..., ::2],
    "split": lambda x, n: x.split(max(x.shape[0] // 2, 1), 0)[-1],
    "chunk": lambda x, n: x.chunk(2, -1)[0],
    "pad": lambda x, n: F.pad(x, (n, 1)),
    "reduce": lambda x, n: x.amax(n % x.dim(), keepdim=True),
    "mean": lambda x, n: x.mean(0) if x.dim() > 1 else x,
    "matmul": lambda x, n: x @ x.transpose(-1, -2) if x.dim() > 1 else x,
    "swap": lambda x, n: x.transpose(0, -1),
    "copy": lambda x, n: x.contiguous(),
    "unsqueeze": lambda x, n: x.unsqueeze(n % x.dim()),
    "expand": lambda x, n: x.unsqueeze(0).expand(n + 1, *x.shape),
    "new": lambda x, n: x + torch.ones(x.shape[-1]),
    "softmax": lambda x, n: x.softmax(-1),
    "number": lambda x, n: x * (x.shape[0] // 2 + x.shape[-1] % 3),
    "write": lambda x, n: x.clone().mul_(x.shape[-1] + n),
    "scaled": lambda x, n: x / float(x.shape[-1]),
}
sizes = st.integers(1, 9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2)), min_size=1, max_size=6),
    st.lists(st.lists(sizes, min_size=3, max_size=3), min_size=5, max_size=5),
    st.integers(2, 3), st.sampled_from(["eager", "aot_eager", "codegen"]), st.sampled_from([True, None]),
)  # fmt: skip
def test_random_programs(steps, shapes, rank, backend, dynamic):
    def program(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        for name, number in steps:
            if x.dim() <= 4:
                x = STEPS[name](x, number)
        return x, x.shape[0] * 2

    with torch.no_grad(), config.patch(strict=True, automatic_dynamic=True, verify_passes=True):
        fast = dyncomp.optimize(program, dynamic=dynamic, backend=backend)
        for shape in shapes:
            x = torch.randint(-8, 8, shape[:rank]) / 8
            assert_same(fast(x), program(x))
