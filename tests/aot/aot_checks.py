"""Compares a traced graph with eager: values, layouts, who shares memory with whom, written inputs,
identities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from dyncomp import aot


def fresh_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Copies with the same strides, offsets and sharing of memory."""
    storages: dict[int, torch.UntypedStorage] = {}
    copies = []
    for tensor in inputs:
        if not isinstance(tensor, torch.Tensor):
            copies.append(tensor)
            continue
        source = tensor.untyped_storage()
        storage = storages.setdefault(source._cdata, source.clone())
        copy = torch.empty(0, dtype=tensor.dtype).set_(
            storage, tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        copies.append(copy.requires_grad_(tensor.requires_grad))
    return copies


def same(expected: Any, actual: Any) -> bool:
    if not isinstance(expected, torch.Tensor):
        return type(expected) is type(actual) and expected == actual
    return (
        expected.dtype == actual.dtype
        and expected.shape == actual.shape
        and expected.stride() == actual.stride()
        and _equal_values(expected, actual)
    )


def _equal_values(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    if expected.is_complex():
        wide = torch.complex128
        expected, actual = torch.view_as_real(expected.to(wide)), torch.view_as_real(actual.to(wide))
    if not expected.is_floating_point():
        return torch.equal(expected, actual)
    nan = expected.isnan()
    return torch.equal(nan, actual.isnan()) and torch.equal(expected[~nan], actual[~nan])


def sharing(tensors: Sequence[Any]) -> list[Any]:
    """For each pair: not at all, or how far apart they start in the memory they share; and object
    identity.
    """
    result = []
    for i, a in enumerate(tensors):
        for j, b in enumerate(tensors[:i]):
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
                shared = a.untyped_storage()._cdata == b.untyped_storage()._cdata
                apart = a.data_ptr() - b.data_ptr() if shared and a.numel() and b.numel() else 0
                result.append((i, j, shared, apart, a is b))
    return result


def trace(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> aot.AtenGraph:
    graph = aot.trace_inference(gm, inputs)
    aot.verify(graph)
    return graph


def check(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> aot.AtenGraph:
    """Runs both ways from the same random state and compares everything."""
    expected_inputs, actual_inputs = fresh_inputs(inputs), fresh_inputs(inputs)
    versions = [t._version for t in actual_inputs if isinstance(t, torch.Tensor)]
    seed = torch.get_rng_state()
    with torch.no_grad():
        expected = _as_tuple(gm(*expected_inputs))
        after = torch.get_rng_state()
        torch.set_rng_state(seed)
        graph = trace(gm, fresh_inputs(inputs))
        assert torch.equal(torch.get_rng_state(), seed), "tracing drew random numbers"
        actual = graph.run(*actual_inputs)
    assert torch.equal(torch.get_rng_state(), after), "the generator moved differently"
    _compare(graph, expected, actual, "output")
    _compare(graph, expected_inputs, actual_inputs, "input")
    assert sharing([*expected_inputs, *expected]) == sharing([*actual_inputs, *actual]), graph
    written = {
        i
        for i, t in enumerate(t for t in actual_inputs if isinstance(t, torch.Tensor))
        if t._version != versions[i]
    }
    assert {i for i, _ in graph.mutations} - graph.quiet <= written
    assert not graph.quiet & written
    return graph


def _compare(graph: aot.AtenGraph, expected: Sequence[Any], actual: Sequence[Any], what: str) -> None:
    assert len(expected) == len(actual)
    for i, (want, got) in enumerate(zip(expected, actual, strict=True)):
        assert same(want, got), f"{what} {i}: {_text(want)} but got {_text(got)}\n{graph}"


def _text(value: Any) -> str:
    return f"{value} strides {value.stride()}" if isinstance(value, torch.Tensor) else repr(value)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def graph_of(fn: Callable[..., Any], arguments: int = 1) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """One call of `fn` as a graph; for a module, its parameters and buffers are inputs too: those come
    second.
    """
    named: dict[str, torch.Tensor] = {}
    call = fn
    if isinstance(fn, torch.nn.Module):
        named = {**dict(fn.named_parameters()), **dict(fn.named_buffers())}

        def call(*values: Any) -> Any:
            state = dict(zip(named, values[arguments:], strict=True))
            return torch.func.functional_call(fn, state, values[:arguments])

    graph = torch.fx.Graph()
    inputs = tuple(graph.placeholder(f"x{i}") for i in range(arguments + len(named)))
    graph.output(graph.call_function(call, inputs))
    return torch.fx.GraphModule(torch.nn.Module(), graph), list(named.values())


def check_function(fn: Callable[..., Any], *inputs: Any) -> aot.AtenGraph:
    gm, parameters = graph_of(fn, len(inputs))
    return check(gm, [*inputs, *parameters])
