"""`one_hot`: row-major whatever the layout of the indices, and eager's error for classes out of range."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.support import check


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_layout(backend, dynamic):
    index = torch.randint(0, 4, (3, 5))
    for given in (index, index.t(), index[:, ::2], index[:0], index[None].expand(2, 3, 5)):
        with torch.no_grad():
            check(lambda x: (F.one_hot(x, 6), F.one_hot(x, 6).is_contiguous()), given, backend=backend, dynamic=dynamic)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_classes_out_of_range(backend):
    with torch.no_grad():
        check(lambda x: F.one_hot(x, 3) + 1, torch.tensor([1, 2, 3]), backend=backend, graphs=None)
        check(lambda x: F.one_hot(x, 3) + 1, torch.tensor([1, -2]), backend=backend, graphs=None)


def test_without_classes_the_size_depends_on_data():
    dyncomp.reset()
    with torch.no_grad():
        check(lambda x: F.one_hot(x) + 1, torch.tensor([1, 2, 3]), backend="eager", graphs=None, breaks=1)
    assert dyncomp.stats().break_reasons == {"data-dependent-shape": 1}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_layout_in_a_training_graph(backend, dynamic):
    def f(x):
        classes = F.one_hot(x.transpose(3, 1).long() % 5, 5)
        return x * 2, classes, torch.where(classes > 0, classes, 3)

    check(f, torch.randn(2, 3, 4, 5, requires_grad=True), backend=backend, dynamic=dynamic)
    check(lambda x, k: (x * 2, F.one_hot(x.t().long() % 3, num_classes=k)), torch.randn(4, 5, requires_grad=True), 4, backend=backend, dynamic=dynamic)
