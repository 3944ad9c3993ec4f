"""Custom autograd functions whose backward runs a second time: allowed in eager as long as it does not read what was saved."""

import pytest
import torch

from tests.train.train_checks import same_story


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class Unread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class EmptyRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        assert len(ctx.saved_tensors) == 0
        return g * 2


ALL = ["eager", "aot_eager", "codegen"]


@pytest.mark.parametrize(
    ("custom", "backend"),
    # Whether a compiled backward may run again goes by what was saved, read or not.
    [*[(custom, backend) for custom in (Reversed, Read) for backend in ALL], (Unread, "eager"), (EmptyRead, "eager")],
)
def test_two_backwards(custom, backend):
    def story(compiled):
        x = torch.arange(1.0, 5.0, requires_grad=True)
        y = compiled(lambda x: custom.apply(x))(x)
        y.sum().backward()
        told = [x.grad.clone()]
        try:
            y.sum().backward()
        except RuntimeError as error:
            told.append(str(error))
        return told, x.grad

    same_story(story, backend, fallbacks=("training-graph-eager", "aot", "backward"))
