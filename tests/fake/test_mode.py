"""FakeMode: what enters, what runs, what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from dyncomp.fake import (
    DataDependentShape,
    DataDependentValue,
    FakeMode,
    FakeTensor,
    NoShapeRule,
    UnsupportedTensor,
)


def test_metadata_of_a_real_tensor_is_kept() -> None:
    real = torch.randn(4, 6)[1:, ::2].t()
    fake = FakeMode().from_real(real)
    assert isinstance(fake, FakeTensor) and fake.shape == real.shape and fake.stride() == real.stride()
    assert fake.storage_offset() == real.storage_offset() and not fake.requires_grad


def test_same_tensor_gives_same_fake_and_shared_memory_a_shared_storage() -> None:
    mode, real = FakeMode(), torch.randn(4)
    assert mode.from_real(real) is mode.from_real(real)
    assert mode.from_real(real).fake_storage is mode.from_real(real[1:]).fake_storage
    assert mode.from_real(real).fake_storage is not mode.from_real(torch.randn(4)).fake_storage


def test_parameters_and_autograd() -> None:
    mode = FakeMode()
    weight = mode.from_real(torch.nn.Parameter(torch.randn(3, 3)))
    inner = mode.from_real(torch.nn.Parameter(torch.randn(3)) * 2)
    assert isinstance(weight, torch.nn.Parameter) and weight.requires_grad and weight.is_leaf
    assert inner.requires_grad and not inner.is_leaf
    result = mode.run(lambda: F.linear(inner, weight).sum())
    assert result.requires_grad and result.grad_fn is not None


def test_views_share_and_writes_are_counted() -> None:
    mode = FakeMode()
    x = mode.from_real(torch.zeros(3, 4))
    with mode:
        view = x[0]
        view.add_(1)
    assert view.fake_storage is x.fake_storage and x.fake_storage.version == 1 and x._version == 1


def test_metadata_writes() -> None:
    mode = FakeMode()
    with mode:
        x = torch.zeros(3, 4)
        x.t_().unsqueeze_(0)
    assert x.shape == (1, 4, 3) and x.stride() == x.meta.strides


@pytest.mark.parametrize(
    ("error", "program"),
    [
        (DataDependentShape, lambda x: x.nonzero()),
        (DataDependentShape, lambda x: x[x > 0]),
        (DataDependentShape, lambda x: torch.unique(x)),
        (DataDependentValue, lambda x: x.sum().item()),
        (DataDependentValue, lambda x: bool(x.sum() > 0)),
        (DataDependentValue, lambda x: x.tolist()),
        (DataDependentValue, lambda x: x.numpy()),
        (DataDependentValue, lambda x: torch.equal(x, x)),
        (NoShapeRule, lambda x: x.resize_(3)),
        (NoShapeRule, lambda x: x.to_sparse()),
    ],
)
def test_what_depends_on_data_is_refused_by_type(error, program) -> None:  # type: ignore[no-untyped-def]
    mode = FakeMode()
    with pytest.raises(error):
        mode.run(program, (mode.from_real(torch.randn(2, 3)),))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + torch.zeros(7),
        lambda x: x @ x,
        lambda x: x.view(5),
        lambda x: x.t()[::2].view(-1),
        lambda x: x.add_(torch.zeros(4, 2, 3)),
        lambda x: x.long().add_(1.5),
        lambda x: torch.cat([x, torch.zeros(3, 2)]),
        lambda x: x.sum(5),
        lambda x: x.expand(5, 5),
        lambda x: x[4],
        lambda x: x.expand(4, 2, 3).add_(1),
        lambda x: F.linear(x, torch.zeros(2, 2)),
        lambda x: F.conv2d(x, x),
        lambda x: torch.zeros(2, dtype=torch.bool) - torch.zeros(2, dtype=torch.bool),
    ],
)
def test_errors_are_of_the_class_that_eager_raises(program) -> None:  # type: ignore[no-untyped-def]
    real = torch.randn(2, 3)
    with pytest.raises(Exception) as expected:
        program(real)
    mode = FakeMode()
    with pytest.raises(expected.type):
        mode.run(program, (mode.from_real(real),))


def test_literals_have_known_values_until_written() -> None:
    with FakeMode():
        literal = torch.tensor([3, 4])
        assert literal[1].item() == 4 and literal.tolist() == [3, 4]
        literal.add_(1)
        with pytest.raises(DataDependentValue):
            literal[1].item()


def test_random_operations_draw_nothing() -> None:
    state = torch.get_rng_state()
    with FakeMode():
        F.dropout(torch.randn(4), 0.5).normal_()
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("tensor", [torch.zeros(2).to_sparse(), torch.zeros(2, dtype=torch.complex64).conj()])
def test_tensors_that_fakes_cannot_stand_for(tensor: torch.Tensor) -> None:
    with pytest.raises(UnsupportedTensor):
        FakeMode().from_real(tensor)


def test_real_tensors_are_not_kept_alive() -> None:
    import weakref

    mode = FakeMode()
    real = torch.randn(3)
    fake, alive = mode.from_real(real), weakref.ref(real)
    del real
    assert alive() is None and fake.shape == (3,)


def test_hot_operations_load_neither_dynamo_nor_sympy() -> None:
    program = """
import sys, torch, torch.nn.functional as F
from dyncomp.fake import FakeMode
with FakeMode(), torch.no_grad():
    x = torch.randn(2, 8, 16)
    q = F.linear(F.layer_norm(x, (16,)), torch.randn(16, 16), torch.randn(16))
    q = q.view(2, 8, 2, 8).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(2, 8, 16) + x
    y = F.gelu(y).masked_fill(torch.ones(8, 16, dtype=torch.bool).tril(), 0.0).softmax(-1)
    y.add_(1).mul_(y).clamp_(0, 1)
    image = F.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3))
    image = F.batch_norm(image, torch.zeros(4), torch.ones(4))
    F.adaptive_avg_pool2d(F.max_pool2d(torch.relu(image), 2), 1).flatten(1)
    words = F.embedding(torch.arange(4), torch.randn(9, 3))[:, None]
    words.cumsum(0).repeat(1, 2, 1).pow(2).mean(-1, keepdim=True)
heavy = [m for m in ("torch._dynamo", "torch._inductor", "sympy", "torch.fx.experimental.symbolic_shapes")
         if m in sys.modules]
assert not heavy, heavy
with FakeMode():
    torch.randn(3).igamma(torch.randn(3))
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
