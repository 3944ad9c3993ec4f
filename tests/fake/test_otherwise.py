"""Operations whose Python form in torch computes otherwise than eager: values and gradients with symbolic sizes are eager's."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp

CLASSES = torch.tensor([1, 0, 2])
LABELS = torch.tensor([[1, 2, -1, 0], [0, 1, 2, 3], [-1, 0, 1, 2]])
PROGRAMS = {
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "multi margin": lambda x: F.multi_margin_loss(x, CLASSES),
    "multi margin, each": lambda x: F.multi_margin_loss(x, CLASSES, p=2, margin=0.3, weight=torch.arange(1.0, 5.0), reduction="none"),
    "multi margin of one": lambda x: F.multi_margin_loss(x[1], CLASSES[1]),
    "multilabel margin": lambda x: F.multilabel_margin_loss(x, LABELS),
    "multilabel margin, each": lambda x: F.multilabel_margin_loss(x, LABELS, reduction="none"),
    "multilabel margin, sum": lambda x: F.multilabel_margin_loss(x, LABELS, reduction="sum"),
    "multilabel margin of one": lambda x: F.multilabel_margin_loss(x[1], LABELS[0]),
}
INF, NAN = float("inf"), float("nan")
VALUES = [
    [[0.5, -1.5, 0.2, 1.0], [1.0, 3.0, -0.25, 0.7], [0.1, 0.0, -0.5, 2.0]],
    [[0.5, -1.5, NAN, 1.0], [1.0, 3.0, -0.25, 0.7], [0.1, 0.0, -0.5, 2.0]],
    [[0.5, -1.5, 0.2, INF], [1.0, -INF, -0.25, 0.7], [0.1, 0.0, -0.5, 2.0]],
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(fresh, name, backend, dynamic):
    program = PROGRAMS[name]
    fast = dyncomp.optimize(program, backend=backend, dynamic=dynamic)
    for values in VALUES:
        if "shrink" in name and backend == "codegen" and values is VALUES[1]:
            continue  # eager's gradient of nan goes by whether it falls to a vector or to what is left over
        for turned in (False, True):
            found = []
            for one in (fast, program):
                x = torch.tensor(values)
                x = (x.t().contiguous().t() if turned else x).requires_grad_()
                result = one(x)
                found.append((result, *torch.autograd.grad(result, x, torch.ones_like(result))))
            for mine, reference in zip(*found, strict=True):
                torch.testing.assert_close(mine, reference, equal_nan=True)
                assert mine.stride() == reference.stride()
    assert not dyncomp.stats().fallbacks and not dyncomp.stats().graph_breaks
