"""Random programs of views, in-place writes, detach, no_grad and dropout, trained against eager."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.train.train_checks import check_function

STEPS = [
    lambda v, w: v * w,
    lambda v, w: v + 1,
    lambda v, w: torch.relu(v),
    lambda v, w: v.sin(),
    lambda v, w: v.t(),
    lambda v, w: v.t().contiguous(),
    lambda v, w: v @ w,
    lambda v, w: v.detach() + w,
    lambda v, w: v.softmax(-1),
    lambda v, w: torch.nn.functional.dropout(v, 0.5),
    lambda v, w: v.clone().mul_(2),
    lambda v, w: row_written(v, w),
    lambda v, w: written_through_view(v),
    lambda v, w: torch.cat([v[:1], w[1:]]),
    lambda v, w: v.expand(2, 3, 3).sum(0),
    lambda v, w: v.reshape(-1).view(3, 3),
    lambda v, w: without_gradient(v, w),
    lambda v, w: v.unbind(0)[1] * w,
    lambda v, w: v[torch.tensor([2, 0, 0])],
]


def row_written(v, w):
    out = v * 1
    out[0] = w[1]
    out[:, 1] *= 2
    return out


def written_through_view(v):
    out = v + 0
    out.t().diagonal().add_(1)
    return out


def without_gradient(v, w):
    with torch.no_grad():
        scale = v.abs().mean()
    return v / (scale + 1) + w


def program(steps, picks, ends):
    def run(x, w):
        values = [x, w]
        for number, pick in zip(steps, picks, strict=True):
            values.append(STEPS[number](values[pick % len(values)], values[-1]))
        return tuple(values[end % len(values)] for end in ends)

    return run


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_programs(data):
    count = data.draw(st.integers(1, 6))
    steps = data.draw(st.lists(st.integers(0, len(STEPS) - 1), min_size=count, max_size=count))
    picks = data.draw(st.lists(st.integers(0, 7), min_size=count, max_size=count))
    ends = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=3))
    x = torch.linspace(-1, 1, 9).reshape(3, 3).requires_grad_(data.draw(st.booleans()))
    w = torch.linspace(0.5, 1.5, 9).reshape(3, 3).requires_grad_()
    check_function(
        program(steps, picks, ends),
        x,
        w,
        backend="aot_eager",
        fallbacks=("training-graph-eager", "aot:", "backward-", "skipped"),
    )
