"""Random chains of views, in-place writes and pure operations, on inputs and intermediates, against eager."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from hypothesis import given, settings
from hypothesis import strategies as st

from dyncomp import aot
from tests.aot.aot_checks import check, fresh_inputs

VIEWS: list[Callable[..., Any]] = [
    lambda x: x[0],
    lambda x: x[-1:],
    lambda x: x[..., 1:],
    lambda x: x[..., ::2],
    lambda x: x.transpose(0, -1),
    lambda x: x.permute(*range(x.ndim - 1, -1, -1)),
    lambda x: x.unsqueeze(0),
    lambda x: x.unsqueeze(-1),
    lambda x: x.squeeze(),
    lambda x: x.squeeze(0),
    lambda x: x.expand(2, *x.shape),
    lambda x: x.expand(*x.shape),
    lambda x: x.view(-1),
    lambda x: x.reshape(-1),
    lambda x: x.reshape(x.shape[-1], -1),
    lambda x: x.flatten(),
    lambda x: x.unbind(0)[-1],
    lambda x: x.split(1, 0)[-1],
    lambda x: x.split([1, x.shape[-1] - 1], -1)[1],
    lambda x: x.chunk(2, -1)[0],
    lambda x: x.diagonal(),
    lambda x: x.narrow(0, 0, 1),
    lambda x: x.detach(),
    lambda x: x.contiguous(),
    lambda x: x.t(),
    lambda x: x.view(torch.int32),
    lambda x: x.movedim(0, -1),
    lambda x: x.unflatten(-1, (1, x.shape[-1])),
    lambda x: torch.as_strided(x, (2,), (1,)),
    lambda x: x.view_as(x),
]

PURE: list[Callable[..., Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * 2,
    lambda x, y: x.clone(),
    lambda x, y: torch.relu(x),
    lambda x, y: x.sum(0),
    lambda x, y: torch.cat([x, x], 0),
    lambda x, y: torch.where(x > 0, x, y),
    lambda x, y: torch.zeros_like(x),
    lambda x, y: x.to(torch.float64),
    lambda x, y: torch.tensor([1.5, 2.5]),
]

IN_PLACE: list[Callable[..., Any]] = [
    lambda x, y: x.add_(1),
    lambda x, y: x.add_(y),
    lambda x, y: x.mul_(y),
    lambda x, y: x.copy_(y),
    lambda x, y: x.zero_(),
    lambda x, y: x.fill_(3),
    lambda x, y: x.masked_fill_(x > 0, -1.0),
    lambda x, y: x.relu_(),
    lambda x, y: operator.setitem(x, 0, 5.0),
    lambda x, y: operator.setitem(x, (Ellipsis, slice(1, None)), y),
    lambda x, y: x.index_put_((torch.tensor([0, -1]),), torch.tensor(4.0)),
    lambda x, y: torch.add(x, y, out=x),
    lambda x, y: x.clamp_(max=0.5),
    lambda x, y: x.index_fill_(0, torch.tensor([0]), 2.0),
]

METADATA: list[Callable[..., Any]] = [
    lambda x: x.t_(),
    lambda x: x.unsqueeze_(0),
    lambda x: x.squeeze_(),
    lambda x: x.transpose_(0, -1),
]

KNOWN_LIMITS = (
    "on a graph input",
    "reads memory",
    "gaps",
    "shares memory",
    "elements share memory",
    "another dtype",
    "expanded tensor",
    "as_strided",
)


def _inputs(layout: str) -> list[torch.Tensor]:
    base = torch.arange(1.0, 13.0).reshape(3, 4) - 5
    other = torch.arange(1.0, 5.0)
    if layout == "transposed":
        return [base.t().contiguous().t(), other]
    if layout == "gaps":
        return [(torch.arange(48.0).reshape(3, 16) - 20)[:, ::4], other]
    if layout == "offset":
        return [(torch.arange(20.0) - 9)[8:].view(3, 4), other]
    if layout == "expanded":
        return [other.expand(3, 4), other]
    if layout == "shared":
        return [base, base[1]]
    return [base, other]


LAYOUTS = ["contiguous", "transposed", "gaps", "offset", "expanded", "shared"]
Step = tuple[int, int, int]


def _build(
    steps: list[Step], layout: str, returned: list[int]
) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """The program as an fx graph; a step that eager refuses is left out."""
    inputs = _inputs(layout)
    graph = torch.fx.Graph()
    nodes: list[Any] = [graph.placeholder("x"), graph.placeholder("y")]
    values: list[Any] = fresh_inputs(inputs)
    table = [(f, 1) for f in VIEWS] + [(f, 2) for f in PURE + IN_PLACE] + [(f, 1) for f in METADATA]
    for choice, first, second in steps:
        fn, arity = table[choice % len(table)]
        places = [first % len(values), second % len(values)][:arity]
        if fn in METADATA and places[0] < len(inputs):
            continue
        try:
            value = fn(*[values[p] for p in places])
        except (RuntimeError, IndexError, ZeroDivisionError, TypeError, ValueError):
            return _build([s for s in steps if s != (choice, first, second)], layout, returned)
        node = graph.call_function(fn, tuple(nodes[p] for p in places))
        if isinstance(value, torch.Tensor):
            nodes.append(node)
            values.append(value)
    graph.output(tuple(nodes[r % len(nodes)] for r in returned))
    return torch.fx.GraphModule(torch.nn.Module(), graph), inputs


COPIES: list[Callable[..., Any]] = [
    lambda x: x.clone(),
    lambda x: x.contiguous(),
    lambda x: x.clone(memory_format=torch.contiguous_format),
    lambda x: x + 0,
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("copy", range(len(COPIES)))
def test_copies_of_parts_of_inputs(copy: int, layout: str) -> None:
    for first in range(len(VIEWS)):
        for second in range(first, len(VIEWS), 5):
            inputs = _inputs(layout)
            graph = torch.fx.Graph()
            x, y = graph.placeholder("x"), graph.placeholder("y")
            try:
                VIEWS[second](VIEWS[first](inputs[0]))
            except (RuntimeError, IndexError):
                continue
            part = graph.call_function(VIEWS[second], (graph.call_function(VIEWS[first], (x,)),))
            graph.output((graph.call_function(COPIES[copy], (part,)), graph.call_function(COPIES[copy], (y,))))
            try:
                check(torch.fx.GraphModule(torch.nn.Module(), graph), inputs)
            except aot.Unsupported as reason:
                assert any(text in str(reason) for text in KNOWN_LIMITS), reason


@settings(max_examples=400, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 57), st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=7
    ),
    layout=st.sampled_from(LAYOUTS),
    returned=st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
def test_programs_of_views_and_writes_match_eager(
    steps: list[Step], layout: str, returned: list[int]
) -> None:
    with warnings.catch_warnings(action="ignore"):  # writes to expanded tensors are deprecated, not refused
        gm, inputs = _build(steps, layout, returned)
        try:
            check(gm, inputs)
        except aot.Unsupported as reason:
            assert any(text in str(reason) for text in KNOWN_LIMITS), reason
