"""Which sizes, strides, ints and floats of a frame are symbolic.

    dynamic=False   none, unless marked
    dynamic=None    those that differ from an earlier compile of the same code, by source (`varied.py`)
    dynamic=True    all sizes, ints and floats that the call brings; parameters and buffers of modules stay as they are;
                    strides that the program reads; other strides, and numbers of other objects once they differ from an earlier compile

Where a tensor starts in its storage counts only where the program reads it (`read_layout`), so it joins in once it was read.

Sizes that are equal in the first call are numbers of their own, unless the knob `duck_sizes` is on. Sizes 0 and 1 are never symbolic. `Sizes` also turns what the env learned into the guard that ends the list.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dyncomp import config, size_marks
from dyncomp.fake import FakeMode
from dyncomp.guards.number import Number
from dyncomp.guards.record import GuardRecord
from dyncomp.guards.source import Const, DictItem, Early, InstanceDict, Local, SlotAttr, Source, TupleItem
from dyncomp.guards.source import ListItem as ListItemSource
from dyncomp.interp import varied
from dyncomp.interp.number_report import NumberReport, pinned_offset_number, plain_number, symbolic_number
from dyncomp.shape.errors import MarkError
from dyncomp.shape.symbolic import guard_program, is_symbolic, layout_of, new_env

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

_MODULE_TABLES = ("_parameters", "_buffers")
_IN_USE = DictItem(InstanceDict(Const(size_marks, "size_marks")), "IN_USE")
_BOUNDS = ("start", "stop", "step")
_ITEMS = (Local, DictItem, TupleItem, ListItemSource)


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
        self._varied = None if self.dynamic is False else varied.of(context, code)
        if self.dynamic is None and self._varied is not None and self._varied.static:
            self.dynamic, self._varied = False, None
        self._met: list[tuple[Number, Any, Any, str]] = []  # origin, value, what it is taken for, why it is plain
        self._plain_strides: set[Source] = set()  # tensors with strides that do not follow from their sizes
        self._offsets: dict[Source, NumberReport] = {}
        self.asked_late = False  # with dynamic=True, for a number that is symbolic once it is known that the program reads it
        self.opened = False  # a number is symbolic that neither a mark nor dynamic=True asked for
        self._fake_mode, self._duck = fake_mode, duck and config.duck_sizes
        self.env: ShapeEnv | None = None
        self._asker = asker
        # Half of the versions may go to keys of look-ups. With one graph by order there is no other way than a version a key.
        self._most_keys = 0 if getattr(context, "fullgraph", False) else getattr(context, "recompile_limit", 8) // 2

    def begin(self) -> ShapeEnv:
        if self.env is None:
            self.env = self._fake_mode.env = new_env(asker=self._asker, duck=self._duck)
        return self.env

    # ---- tensors

    def mark_guard(self, tensor: torch.Tensor, source: Source) -> tuple[Source, str, Any] | None:
        """What keeps tensors with other marks away from this version: (source, kind, payload). See `size_marks`."""
        if _is_static(tensor, source):
            return None
        key, text = size_marks.key_of(tensor), size_marks.text_of(tensor)
        used = size_marks.IN_USE.get(key)
        if used is None:
            return _IN_USE, "no_item", (key,)
        if text is None:
            return InstanceDict(source), "no_item", (size_marks.TEXT,)
        if used == text:
            return DictItem(_IN_USE, key), "equals", text
        return InstanceDict(source), "item_if_any", (size_marks.TEXT, text)

    def layout(self, tensor: torch.Tensor, source: Source) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
        """Symbolic (sizes, strides) of an outside tensor; None if all are plain."""
        marks = size_marks.of(tensor)
        sizes, strides, rank = tuple(tensor.shape), tensor.stride(), tensor.ndim
        open_dims = set() if _is_static(tensor, source) else self._open(f"tensor {source}", sizes + strides, rank)
        if open_dims and self.dynamic is True and self._varied is not None and self._varied.has(f"strides {source}"):
            open_dims.update(range(rank, 2 * rank))
        symbolic = {d for d in range(rank) if d in open_dims}
        symbolic |= {d for d, mark in marks.items() if mark.kind != "static"}
        symbolic -= {d for d, mark in marks.items() if mark.kind == "static"}
        if not symbolic and not any(rank + d in open_dims for d in range(rank)):
            self._note(tensor, source, sizes, marks)
            return None
        env = self.begin()
        apart: set[Any] = set()  # height and width of a square image are two numbers all the same

        def size_at(dim: int) -> Any:
            if dim not in symbolic:
                return sizes[dim]
            return _create(env, sizes[dim], Number(source, "size", dim), marks.get(dim), apart, self.dynamic is True)

        def stride_at(dim: int) -> Any:
            if rank + dim not in open_dims:
                self._plain_strides.add(source)
                return strides[dim]
            number = env.create_int(strides[dim], Number(source, "stride", dim), duck=False)
            self._met.append((Number(source, "stride", dim), strides[dim], number, "plain"))
            return number

        layout = layout_of(env, sizes, strides, size_at, lambda dim: Number(source, "stride", dim), stride_at)
        self._note(tensor, source, layout[0], marks)
        return layout

    def offset(self, tensor: torch.Tensor, source: Source) -> Any:
        """A symbolic storage offset of an outside tensor, where the program reads it and it varies; None where it is the tensor's own."""
        key, offset = f"offset {source}", int(tensor.storage_offset())
        if self._varied is None or not self._varied.has(key):
            return None
        if not self._open(key, (offset,), int(not _is_static(tensor, source))):
            return None
        origin = Number(source, "offset")
        number = self.begin().create_int(offset, origin, low=0, duck=False, special=False)
        self._met.append((origin, offset, number, "plain"))
        return number if is_symbolic(number) else None

    def _note(self, tensor: torch.Tensor, source: Source, sizes: Sequence[Any], marks: dict[int, Any]) -> None:
        """For `report`."""
        held = _is_static(tensor, source)
        for dim, size in enumerate(sizes):
            static = dim in marks and marks[dim].kind == "static"
            why = "held" if held else "static" if static else "special" if tensor.shape[dim] in (0, 1) else "plain"
            self._met.append((Number(source, "size", dim), tensor.shape[dim], size, why))

    def _open(self, key: str, numbers: tuple[Any, ...], count: int) -> set[int]:
        """Positions of `numbers` that may be symbolic; `count` of them are what dynamic=True opens."""
        if self._varied is None:
            return set()
        found = set(self._varied.meet(key, numbers))
        if self.dynamic is True:
            return found.union(range(count))
        self.opened = self.opened or bool(found)
        return found

    # ---- ints and floats

    def number(self, value: int | float, source: Source) -> Any:
        """A torch.SymInt or SymFloat for an outside number, or None where it stays plain."""
        kind = "float" if isinstance(value, float) else "int"
        at_once = _is_given(source)
        origin = Number(source, kind)
        if not self._open(f"{kind} {source}", (value,), int(at_once)):
            self._met.append((origin, value, value, "plain"))
            return None
        if isinstance(value, float):
            real = self.begin().create_float(value, origin)
            self._met.append((origin, value, real, "plain"))
            return real
        # Ints are not special at 0 and 1; those that equal a size by chance are numbers of their own.
        number = self.begin().create_int(value, origin, low=-math.inf, duck=False, special=False)
        self._met.append((origin, value, number, "plain"))
        return None if isinstance(number, int) else number  # beyond what the engine counts

    def length(self, length: int, source: Source) -> Any:
        """A torch.SymInt for the length of an outside list that grows from call to call; None where it stays plain."""
        origin = Number(source, "len")
        if not self._open(str(origin), (length,), 0):
            return None
        number = self.begin().create_int(length, origin, low=0, duck=False, special=False)
        self._met.append((origin, length, number, "plain"))
        return number if is_symbolic(number) else None

    def early(self, source: Early, low: float = -math.inf, high: float = math.inf) -> Any:
        """A torch.SymInt or SymFloat, as its example is one, for a number that a call before the graph gives."""
        kind = type(source.example)
        return self.begin().create_early(kind, Number(source, kind.__name__), low, high)

    def too_many_keys(self, origin: str, key: Any) -> bool:
        """True if what the program looks up on this line, by what the call has there, has been compiled for so many keys that a version
        for each leads nowhere.
        """
        if self._varied is None or not self._most_keys:
            return False
        file, line = self._asker()
        return self._varied.meet_key(f"{file}:{line} {origin}", key) > self._most_keys

    def is_made_anew(self, cls: type, source: Source) -> bool:
        """True for a class that a function's body makes each time it runs: no version would serve a second call."""
        if self._varied is None or not self._most_keys or "<locals>" not in cls.__qualname__ or not isinstance(source.root, Local):
            return False
        return self._varied.meet_key(f"{source} {cls.__module__}.{cls.__qualname__}", id(cls)) > 2

    def took_equals_for_one(self) -> bool:
        """True if numbers that happen to be equal in this call were taken for one, and that one was pinned."""
        return self.env is not None and self.env.pinned_ducks()

    def is_from_graph(self, number: Any) -> bool:
        """True if only the graph can compute it."""
        return self.env is not None and self.env.needs_running(number.node.expr)

    def may_have_no_result(self, number: Any = None) -> bool:
        """True if Python refuses to compute the number for some of what calls before the graph give, or it is beyond compiled code's
        64 bits: then the graph computes it, so that the frame can run again. Without a number: if there is any such.
        """
        if self.env is None or not self.env.doubtful:
            return False
        return number is None or self.env.is_unbacked(self.env.expr_of(number))

    def is_open(self) -> bool:
        """True if numbers that varied are symbolic, and at least one of them may have another value in a later call."""
        return self.opened and self.env is not None and self.env.has_open()

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

    def report(self) -> list[NumberReport]:
        """What became of each number that the call brought, for people; numbers of held objects only where they are symbolic."""
        found = []
        for origin, value, number, why in self._met:
            if is_symbolic(number) and self.env is not None:
                found.append(symbolic_number(self.env, origin, value))
            elif why != "held" and (origin.what == "size" or _is_given(origin.source)):
                found.append(plain_number(origin, value, why))
        return found + list(self._offsets.values())

    def note_offset(self, tensor: torch.Tensor, source: Source) -> None:
        """The program reads where a tensor starts in its storage, which is a plain number in this trace: guarded to stay so."""
        value = int(tensor.storage_offset())
        if source not in self._offsets:
            self._offsets[source] = pinned_offset_number(source, value, self._asker())
        if self._varied is not None and not self._varied.has(key := f"offset {source}"):
            self._varied.meet(key, (value,))
            self.asked_late = self.asked_late or self.dynamic is True and not _is_static(tensor, source)

    def note_strides(self, source: Source) -> None:
        """The program reads strides of a tensor, or of a view of it."""
        if self.dynamic is True and source in self._plain_strides and self._varied is not None:
            if not self._varied.has(key := f"strides {source}"):
                self._varied.meet(key, ())
                self.asked_late = True

    def settle(self) -> None:
        """The frame is traced: later questions come from no line of it, and nothing of the trace is kept alive."""
        if self.env is not None:
            self.env.asker = lambda: None
        if self._varied is not None:
            self._varied.save()
        self._asker = lambda: ("?", 0)


def _create(env: ShapeEnv, size: int, origin: Number, mark: size_marks.SizeMark | None, apart: set[Any], duck: bool) -> Any:
    if mark is None:
        return env.create_int(size, origin, duck=duck, apart=apart)
    if mark.kind == "unbacked":
        low, high = (0 if mark.low is None else mark.low), mark.high
        if size < low or high is not None and size > high:
            raise MarkError(f"{origin} was marked as unbacked from {low} to {high}, but it is {size}")
        return env.create_hintless(origin, low) if high is None else env.create_hintless(origin, low, high)
    return env.create_marked(size, origin, mark.low, mark.high)


def _is_static(tensor: torch.Tensor, source: Source) -> bool:
    """Parameters and buffers, and tensors of the world around the function: their sizes are not the call's."""
    if not isinstance(source.root, Local):
        return True
    if isinstance(tensor, torch.nn.Parameter):
        return True
    return any(isinstance(link, DictItem) and link.arg in _MODULE_TABLES for link in source.chain())


def _is_given(source: Source) -> bool:
    """Part of the call's arguments: an argument, an item of a container in them, or a bound of a slice."""
    return all(isinstance(link, _ITEMS) or isinstance(link, SlotAttr) and link.index in _BOUNDS for link in source.chain())
