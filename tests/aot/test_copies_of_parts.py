"""A copy of a part of a tensor has memory of its own, and views of it lie there: values, strides, offsets, size of the memory."""

import pytest
import torch

import dyncomp

W = torch.linspace(-1, 1, 8).view(4, 2)


def written(x):
    y = x[1].clone()
    y[0] = 3.0
    return y[1:], y


PROGRAMS = {
    "a row": lambda x: x[1].clone(),
    "a part of a row": lambda x: x[1].clone()[1:],
    "of both": lambda x: (x[1].clone()[1:], x[1].clone()),
    "of pieces": lambda x: x.chunk(2)[1].clone().chunk(2)[1].unbind(0),
    "a piece of columns": lambda x: x.chunk(2)[1].clone().split(1, 1)[1],
    "of all": lambda x: (x.clone()[1:], x * 2),
    "of all, turned": lambda x: x.t().clone()[1:],
    "written": written,
    "expanded": lambda x: x[1].clone().unsqueeze(0).expand(2, 4)[1],
    "a diagonal": lambda x: x.diagonal().clone()[1:],
    "places in memory": lambda x: x[1].clone().as_strided((2,), (1,), 1),
    "flat": lambda x: x[2:].clone().view(-1)[3:],
    "multiplied": lambda x: x[2:].clone()[1:] @ W,
    "all of it multiplied": lambda x: x.clone()[1:] @ W,
    "joined": lambda x: torch.cat([x[1:].clone()[1:], x]),
    "of what is computed": lambda x: (x * 2)[1].clone()[1:],
    "cast to what it is": lambda x: x[1].to(torch.float32, copy=True)[1:],
}


def told(one):
    return one.detach(), one.stride(), one.storage_offset(), one.untyped_storage().nbytes()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_as_in_eager(fresh, backend, trains, dynamic):
    for name, program in PROGRAMS.items():
        fast = dyncomp.optimize(program, backend=backend, dynamic=dynamic)
        for place in (0, 1):
            x = torch.linspace(-2, 2, 32).view(2, 4, 4)[place].detach().requires_grad_(trains)
            got, want = fast(x), program(x)
            got, want = [one if isinstance(one, tuple) else (one,) for one in (got, want)]
            for mine, reference in zip(map(told, got), map(told, want), strict=True):
                assert torch.equal(mine[0], reference[0]), name
                assert mine[1:] == reference[1:], name
            if trains:
                found = [torch.autograd.grad(results, x, [torch.ones_like(one) for one in results])[0] for results in (got, want)]
                assert torch.equal(*found) and found[0].stride() == found[1].stride(), name
