"""Which sizes and ints of a frame are symbolic.

    dynamic=False   none, unless marked
    dynamic=None    those that differ from an earlier compile of the same code, by source
    dynamic=True    all sizes and ints that the call brings; parameters and buffers of modules stay as they are

Numbers 0 and 1 are never symbolic. `Sizes` also turns what the env learned into the guard that ends the list.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dyncomp import config, log, size_marks
from dyncomp.errors import GraphBreak
from dyncomp.fake import FakeMode
from dyncomp.guards.number import Number
from dyncomp.guards.record import GuardRecord
from dyncomp.guards.source import DictItem, Local, Source, TupleItem
from dyncomp.guards.source import ListItem as ListItemSource
from dyncomp.shape.symbolic import guard_program, layout_of, new_env

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

_MODULE_TABLES = ("_parameters", "_buffers")
_ITEMS = (Local, DictItem, TupleItem, ListItemSource)


@dataclasses.dataclass
class Seen:
    """The numbers of one source at the last compile, and which of them varied so far."""

    numbers: tuple[int, ...]
    varied: set[int] = dataclasses.field(default_factory=set)

    def meet(self, numbers: tuple[int, ...]) -> set[int]:
        if len(numbers) != len(self.numbers):
            self.numbers, self.varied = numbers, set()
        self.varied.update(i for i, (old, new) in enumerate(zip(self.numbers, numbers, strict=True)) if old != new)
        self.numbers = numbers
        return self.varied


class Sizes:
    def __init__(
        self,
        context: Any,
        code: types.CodeType,
        asker: Callable[[], tuple[str, int]],
        fake_mode: FakeMode,
        duck: bool = True,
    ):
        self.dynamic: bool | None = getattr(context, "dynamic", False)
        if self.dynamic is None and not config.automatic_dynamic:
            self.dynamic = False
        self._fake_mode, self._duck = fake_mode, duck and config.duck_sizes
        self.env: ShapeEnv | None = None
        self._asker = asker
        # By source; lives with the options that the code is compiled under.
        self._memory: dict[str, Seen] = {} if self.dynamic is not None else context.sizes.setdefault(code, {})

    def begin(self) -> ShapeEnv:
        if self.env is None:
            self.env = self._fake_mode.env = new_env(asker=self._asker, duck=self._duck)
        return self.env

    # ---- tensors

    def layout(self, tensor: torch.Tensor, source: Source) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
        """Symbolic (sizes, strides) of an outside tensor; None if all are plain."""
        marks = size_marks.of(tensor)
        if self.dynamic is False and not marks:
            return None
        sizes, strides, rank = tuple(tensor.shape), tensor.stride(), tensor.ndim
        open_dims = set() if _is_static(tensor, source) else self._open(str(source), sizes + strides, rank)
        symbolic = {d for d in range(rank) if d in open_dims}
        symbolic |= {d for d, mark in marks.items() if mark.kind != "static"}
        symbolic -= {d for d, mark in marks.items() if mark.kind == "static"}
        if not symbolic and not any(rank + d in open_dims for d in range(rank)):
            return None
        env = self.begin()

        def size_at(dim: int) -> Any:
            if dim not in symbolic:
                return sizes[dim]
            return _create(env, sizes[dim], Number(source, "size", dim), marks.get(dim))

        def stride_at(dim: int) -> Any:
            if rank + dim not in open_dims or self.dynamic is True:
                return strides[dim]
            return env.create_int(strides[dim], Number(source, "stride", dim), duck=False)

        return layout_of(env, sizes, strides, size_at, lambda dim: Number(source, "stride", dim), stride_at)

    def _open(self, key: str, numbers: tuple[int, ...], count: int) -> set[int]:
        """Positions of `numbers` that may be symbolic; `count` of them are what dynamic=True opens."""
        if self.dynamic is True:
            return set(range(count))
        if self.dynamic is False:
            return set()
        known = self._memory.get(key)
        if known is None:
            self._memory[key] = Seen(numbers)
            return set()
        before = len(known.varied)
        varied = known.meet(numbers)
        if len(varied) > before:
            log.write("dynamic", "%s varies in %s", key, sorted(varied))
        return varied

    # ---- ints

    def number(self, value: int, source: Source) -> Any:
        """A torch.SymInt for an outside int, or None where it stays plain."""
        if self.dynamic is False or self.dynamic is True and not _is_given(source):
            return None
        if not self._open(str(source), (value,), 1):
            return None
        number = self.begin().create_int(value, Number(source, "int"), low=None)
        return None if isinstance(number, int) else number

    def took_equals_for_one(self) -> bool:
        """True if numbers that happen to be equal in this call were taken for one, and that one was pinned."""
        return self.env is not None and self.env.pinned_ducks()

    def is_from_graph(self, number: Any) -> bool:
        """True if only the graph can compute it."""
        return self.env is not None and self.env.needs_running(number.node.expr)

    # ---- the end

    def records(self) -> list[GuardRecord]:
        """The guard on all numbers; raises MarkError if a mark could not be kept."""
        if self.env is None:
            return []
        self.env.check_marks()
        program = guard_program(self.env)
        if program is None or not program.inputs:
            return []
        return [GuardRecord(program.inputs[0].source, "int_program", program)]

    def settle(self) -> None:
        """The frame is traced: later questions come from no line of it, and nothing of the trace is kept alive."""
        if self.env is not None:
            if self.env.asserts:
                first = self.env.asserts[0]
                raise GraphBreak("data-dependent-shape", f"a run-time check that {first.message}")
            self.env.asker = lambda: None
        self._asker = lambda: ("?", 0)


def _create(env: ShapeEnv, size: int, origin: Number, mark: size_marks.SizeMark | None) -> Any:
    if mark is None:
        return env.create_int(size, origin)
    if mark.kind == "unbacked":
        return env.create_hintless(origin)
    return env.create_marked(size, origin, mark.low, mark.high)


def _is_static(tensor: torch.Tensor, source: Source) -> bool:
    """Parameters and buffers, and tensors of the world around the function: their sizes are not the call's."""
    if not isinstance(source.root, Local):
        return True
    if isinstance(tensor, torch.nn.Parameter):
        return True
    return any(isinstance(link, DictItem) and link.arg in _MODULE_TABLES for link in source.chain())


def _is_given(source: Source) -> bool:
    """Part of the call's arguments: an argument, or an item of a container in them."""
    return all(isinstance(link, _ITEMS) for link in source.chain())
