"""Calls that each run makes before the graph, in the order of the program: draws from Python's random streams.

    y = x * random.uniform(0.5, z)      .e0 = random.Random.uniform(<stream>, 0.5, z);  graph(x, .e0)

What they give is new in each call, so nothing may depend on it while tracing: numbers are symbolic without a hint. Moving a call to
the front is right for what nobody else in the frame can see: the state of a stream, and arguments that stay as they are.

Should a call before the graph or the graph itself raise, the frame runs again (`rerun`) with the streams as they were.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dyncomp.guards.source import Early
from dyncomp.values.base import Value

if TYPE_CHECKING:
    from dyncomp.interp.emit import RunBuilder


@dataclasses.dataclass(frozen=True)
class EarlyCall:
    """`function(*args, **kwargs)`; `unpacked`: its result is a list with an item for each of `results`."""

    function: Any
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    results: tuple[Early, ...]
    unpacked: bool


class EarlyCalls:
    """`streams`: the outside objects whose state the calls change. `may_raise`: one of them raises for some arguments."""

    def __init__(self) -> None:
        self.made: list[EarlyCall] = []
        self.streams: list[Value] = []
        self.may_raise = False
        self._results = 0

    def __len__(self) -> int:
        return len(self.made)

    def call(self, function: Any, args: Sequence[Value], kwargs: dict[str, Value], example: Any = None) -> Early:
        """The source of what the call gives; `example` is such an object."""
        (result,) = self._add(function, args, kwargs, [example], unpacked=False)
        return result

    def call_for_list(self, function: Any, args: Sequence[Value], kwargs: dict[str, Value], examples: Sequence[Any]) -> list[Early]:
        """The sources of the items of the list that the call gives."""
        return self._add(function, args, kwargs, examples, unpacked=True)

    def _add(self, function: Any, args: Sequence[Value], kwargs: dict[str, Value], examples: Sequence[Any], unpacked: bool) -> list[Early]:
        results = [Early(self._results + i, example) for i, example in enumerate(examples)]
        self._results += len(results)
        self.made.append(EarlyCall(function, tuple(args), dict(kwargs), tuple(results), unpacked))
        return results

    def note_stream(self, stream: Value, may_raise: bool = False) -> None:
        """The state of this object changes. One made before the graph needs no putting back: the frame makes another when it runs again."""
        self.may_raise = self.may_raise or may_raise
        if not isinstance(stream.source, Early) and stream not in self.streams:
            self.streams.append(stream)

    def emit(self, builder: RunBuilder) -> None:
        """[] -> [], with the results in their variables"""
        for call in self.made:
            builder.load_const(call.function)
            for value in (*call.args, *call.kwargs.values()):
                builder.load(value)
            builder.call(len(call.args) + len(call.kwargs), tuple(call.kwargs))
            builder.store_early(call.results, call.unpacked)
