"""From a schedule to a plan: slots, instructions, and where temporaries live. The result is plain data for
`_exec.Plan`.

Schedule: kernel(x) -> t;  aten::mm(t, w) -> m;  kernel(m) -> out
code:     scratch t; kernel; scratch m; mm m t w; alloc out; kernel
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from dyncomp._frame._exec import Slot
from dyncomp.codegen.in_place import written_in_place
from dyncomp.codegen.ir.index import hint
from dyncomp.codegen.ir.proofs import nonnegative
from dyncomp.codegen.ir.types import TO_TORCH
from dyncomp.codegen.lower.graph import LoweredGraph
from dyncomp.codegen.lower.tensor import ExternCall, Storage, Tensor, View, root
from dyncomp.codegen.memory import Lifetime, aligned, place, shelves
from dyncomp.codegen.numbers import Numbers
from dyncomp.codegen.schedule.kernel import ScheduledKernel
from dyncomp.codegen.schedule.scheduler import Schedule
from dyncomp.errors import InternalError

CPU = torch.device("cpu")
# ATen calls with an instruction of their own that writes into an existing slot: name -> order of the
# tensor arguments
UNBOXED = {"aten::mm": "mm", "aten::bmm": "bmm", "aten::addmm": "addmm", "aten::baddbmm": "baddbmm"}


@dataclasses.dataclass
class PlanData:
    """The arguments of `_exec.Plan`, with kernels by symbol in place of addresses."""

    inputs: int | tuple[str, ...]  # a count, or one kind an input
    slots: int
    constants: list[tuple[int, str]]
    symbols: list[str]
    ops: list[tuple[str, str]]
    code: list[tuple[Any, ...]]
    outputs: list[tuple[Any, ...]]
    arena: int

    def __str__(self) -> str:
        lines = [f"inputs={self.inputs} slots={self.slots} arena={self.arena}"]
        lines += [f"constant {slot}: {name}" for slot, name in self.constants]
        lines += [f"kernel {n}: {symbol}" for n, symbol in enumerate(self.symbols)]
        lines += [f"op {n}: {name} {overload}" for n, (name, overload) in enumerate(self.ops)]
        return "\n".join([*lines, *map(repr, self.code), f"outputs={self.outputs}"]) + "\n"


def make_plan(
    graph: LoweredGraph,
    schedule: Schedule,
    symbol_of: Callable[[ScheduledKernel], str],
    numbers: Numbers | None = None,
) -> PlanData:
    """`numbers`: for graphs with symbolic sizes."""
    return _Planner(graph, schedule, symbol_of, numbers).run()


class _Planner:
    def __init__(
        self,
        graph: LoweredGraph,
        schedule: Schedule,
        symbol_of: Callable[[ScheduledKernel], str],
        numbers: Numbers | None,
    ):
        self.graph, self.schedule, self.symbol_of, self.numbers = graph, schedule, symbol_of, numbers
        self.slot_of: dict[Tensor, int] = {s: i for i, s in enumerate(graph.inputs)}
        self.slots = len(graph.inputs)
        self.constants: list[tuple[int, str]] = []
        for target, storage in graph.constants.items():
            self.slot_of[storage] = self._new_slot()
            self.constants.append((self.slot_of[storage], target))
        self.symbols: list[str] = []
        self.ops: list[tuple[str, str]] = []
        self.code: list[tuple[Any, ...]] = []
        if numbers is not None:
            numbers.plan = self.code
        self.step = 0
        self.escaping = self._escaping()
        self.last_use = self._last_uses()
        self.in_place = written_in_place(graph, schedule, self.last_use)
        self.temporaries: list[tuple[int, Lifetime]] = []  # (position of the scratch instruction, lifetime)
        # Slots that keep a call's result, or an input that was given away, alive.
        self.held: dict[Tensor, list[int]] = {graph.inputs[i]: [i] for i in graph.consumed}

    def run(self) -> PlanData:
        quiet = self.graph.quiet
        self.code.extend(("own" if at in quiet else "write_through", at) for at in self.in_place.values())
        for step, item in enumerate(self.schedule.steps):
            self.step = step
            if isinstance(item, ScheduledKernel):
                self._kernel(item)
            else:
                self._call(item)
            self._free_dead()
        self.step = len(self.schedule.steps)
        for position, tensor in self.graph.mutations:
            if self.in_place.get(tensor) == position:
                continue
            self.code.append(("copy" if position in quiet else "write_back", position, self._slot(tensor)))
        outputs = self._outputs()
        arena = 0
        if self.numbers is None:
            arena = place([life for _, life in self.temporaries])
        elif self.temporaries:
            self._place_by_call(self.numbers)
        for at, life in self.temporaries:
            self.code[at] = (*self.code[at][:-1], life.offset)
        code: list[tuple[Any, ...]] = self.code
        inputs: int | tuple[str, ...] = len(self.graph.inputs)
        if self.numbers is not None:
            code, outputs = self.numbers.finished(code, outputs)
            inputs = self.numbers.kinds()
        return PlanData(inputs, self.slots, self.constants, self.symbols, self.ops, code, outputs, arena)

    def _place_by_call(self, numbers: Numbers) -> None:
        """Offsets as numbers of the call: shelf after shelf, each as high as its largest buffer."""
        start: Any = 0
        for shelf in shelves([life for _, life in self.temporaries]):
            height: Any = 0
            for room in dict.fromkeys(life.room for life in shelf):
                value = numbers.of(aligned(room))
                if not isinstance(room, int) and not nonnegative(room):  # the formula for a tensor without elements
                    value = numbers.larger(value, 0)
                height = value if height == 0 else numbers.larger(height, value)
            for life in shelf:
                life.offset = start
            start = height if start == 0 else numbers.sum(start, height)
        self.code.insert(0, ("arena", start))
        self.temporaries = [(at + 1, life) for at, life in self.temporaries]

    def _n(self, numbers: Any) -> Any:
        """Sizes, strides and other numbers as instructions have them."""
        return numbers if self.numbers is None else self.numbers.of(numbers)

    # ---- what lives how long

    def _escaping(self) -> set[Tensor]:
        """Tensors whose memory outputs show."""
        return {root(rule[1]) for rule in self.graph.outputs if rule[0] == "node" and isinstance(rule[1], Tensor)}

    def _last_uses(self) -> dict[Tensor, int]:
        """Last step that reads a tensor in memory; results that alias arguments extend the arguments'
        lives."""
        last: dict[Tensor, int] = {}
        for step, item in enumerate(self.schedule.steps):
            used = item.tensors if isinstance(item, ExternCall) else [t for t in item.buffers if t is not None]
            for tensor in used:
                last[root(tensor)] = step
        end = len(self.schedule.steps)
        for tensor in [t for _, t in self.graph.mutations] + list(self.escaping):
            last[root(tensor)] = end
        for call in reversed(self.graph.calls):
            if call.aliases:
                latest = max((last.get(r, -1) for r in call.results if r is not None), default=-1)
                for tensor in call.tensors[:1] if call.in_place else call.tensors:
                    last[root(tensor)] = max(last.get(root(tensor), -1), latest)
                    if any(r in self.escaping for r in call.results):
                        self.escaping.add(root(tensor))
        return last

    def _free_dead(self) -> None:
        """Drops results of calls after their last use, with the views of them."""
        if self.step == len(self.schedule.steps) - 1:
            return
        for tensor in [t for t in self.held if self.last_use.get(t, -1) <= self.step]:
            self.code.extend(("free", slot) for slot in self.held.pop(tensor))

    # ---- slots

    def _new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _slot(self, tensor: Tensor) -> int:
        """The slot that holds a tensor in memory; makes the view if it is one."""
        slot = self.slot_of.get(tensor)
        if slot is None:
            if not isinstance(tensor, View):
                raise InternalError(f"{tensor} was not computed before its use")
            base = root(tensor)
            source = self._slot(base)
            slot = self.slot_of[tensor] = self._new_slot()
            delta = tensor.offset - getattr(base, "offset", 0)
            self.code.append(("view_rel", slot, source, self._n(tensor.shape), self._n(tensor.strides), self._n(delta)))
            if base in self.held:
                self.held[base].append(slot)
        return slot

    def _make(self, tensor: Tensor, dtype: torch.dtype) -> int:
        """Memory for a tensor that this step computes."""
        if tensor in self.in_place:
            return self.slot_of.setdefault(tensor, self.in_place[tensor])
        slot = self.slot_of[tensor] = self._new_slot()
        late = self.numbers is not None and self.numbers.is_late((tensor.shape, tensor.strides))
        size = 0 if late else _extent(tensor) * dtype.itemsize
        if tensor in self.escaping or size == 0:  # nothing takes no place in the arena, and what a call's arena cannot know
            self.code.append(("alloc", slot, dtype, self._n(tensor.shape), self._n(tensor.strides), CPU))
            if late and tensor not in self.escaping:
                self.held[tensor] = [slot]
            return slot
        life = Lifetime(max(hint(size), 1), self.step, max(self.last_use.get(tensor, self.step), self.step), room=size)
        self.temporaries.append((len(self.code), life))
        self.code.append(("scratch", slot, dtype, self._n(tensor.shape), self._n(tensor.strides), 0))
        return slot

    # ---- instructions

    def _kernel(self, item: ScheduledKernel) -> None:
        flag: int | None = None
        slots: list[int] = []
        for param, tensor in zip(item.kernel.params, item.buffers, strict=True):
            if tensor is None:
                flag = self._new_slot()
                self.code.append(("flag", flag))
                slots.append(flag)
            elif param.role == "in":
                slots.append(self._slot(tensor))
            else:
                slots.append(self._make(tensor, TO_TORCH[tensor.dtype]))
        if item.units != 0:
            number = self._symbol(self.symbol_of(item))
            units, sizes = self._n(item.units), self._n(item.sizes)
            grain = item.grain if isinstance(item.grain, int) else self._n(item.grain)
            self.code.append(("kernel", number, units, grain, tuple(slots), sizes))
        if flag is not None:
            self.code.append(("check", flag, "index out of range in self"))

    def _symbol(self, symbol: str) -> int:
        if symbol not in self.symbols:
            self.symbols.append(symbol)
        return self.symbols.index(symbol)

    def _call(self, call: ExternCall) -> None:
        if call.name in UNBOXED and call.overload == "" and self._unboxed(call):
            return
        if call.name == "aten::as_strided":
            self._alias(call)
            return
        args, kwargs = self._arguments(call.args), {k: self._arguments(v) for k, v in call.kwargs.items()}
        outs: list[Any] = []
        read = {position for _, position in call.gives}
        for position, result in enumerate(call.results):
            if result is None or (position not in read and result not in self.last_use and result not in self.escaping):
                outs.append(None)
                continue
            slot = self.slot_of[result] = self._new_slot()
            outs.append(slot)
            self.held[result] = [slot]
        self.code.append(("op", self._op(call), args, kwargs, (tuple(outs),) if call.listed else tuple(outs)))
        if call.gives:
            self._note_numbers(call, outs)
        for result, made in zip(call.results, outs, strict=True):
            if result is not None and made is not None:
                self.code.append(("expect", made, self._n(result.shape), self._n(result.strides)))

    def _alias(self, call: ExternCall) -> None:
        """`as_strided` counts from the start of a storage, and here that may be the arena's: counted from its argument instead."""
        result, base = call.results[0], call.args[0]
        if result is None or result not in self.last_use and result not in self.escaping:
            return
        source = self._slot(base)
        slot = self.slot_of[result] = self._new_slot()
        self.held[result] = [slot]
        delta = result.offset - getattr(base, "offset", 0)
        self.code.append(("view_rel", slot, source, self._n(result.shape), self._n(result.strides), self._n(delta)))

    def _note_numbers(self, call: ExternCall, outs: list[Any]) -> None:
        """After a call that gives late numbers: as its value, which is put into a register, or as sizes of its results."""
        assert self.numbers is not None
        values = [node for node, position in call.gives if call.results[position] is None]
        if values:
            *instruction, _ = self.code.pop()
            self.code.append((*instruction, (self.numbers.given_by(values[0]),)))
        self.code.append(("given", tuple([(node, outs[position]) for node, position in call.gives])))

    def _op(self, call: ExternCall) -> int:
        key = (call.name, call.overload)
        if key not in self.ops:
            self.ops.append(key)
        return self.ops.index(key)

    def _unboxed(self, call: ExternCall) -> bool:
        out = call.results[0]
        if out is None or not all(isinstance(a, Tensor) for a in call.args):
            return False
        dtype = self.graph.torch_dtypes[id(out)]
        if any(isinstance(a, Storage) and self.graph.torch_dtypes[id(a)] != dtype for a in call.args):
            return False
        name = UNBOXED[call.name]
        inputs = [self._slot(a) for a in call.args]
        extra: tuple[Any, ...] = ()
        if name in ("addmm", "baddbmm"):
            extra = (self._n(call.kwargs.get("beta", 1)), self._n(call.kwargs.get("alpha", 1)))
        slot = self._make(out, dtype)
        self.code.append((name, slot, *inputs, *extra))
        return True

    def _arguments(self, tree: Any) -> Any:
        if isinstance(tree, Tensor):
            return Slot(self._slot(tree))
        if isinstance(tree, (tuple, list)):
            return tuple(self._arguments(v) for v in tree)
        return self._n(tree)

    # ---- results

    def _outputs(self) -> list[tuple[Any, ...]]:
        rules = self.graph.outputs
        out: list[tuple[Any, ...]] = [()] * len(rules)
        for number in made_in_order(rules):
            rule = rules[number]
            kind = rule[0]
            if kind == "node" and number in self.graph.plain and isinstance(rule[1], View):
                slot = self._new_slot()
                shape, strides = self._n(rule[1].shape), self._n(rule[1].strides)
                self.code.append(("detach", slot, self._slot(rule[1]), shape, strides, 0))
                out[number] = ("slot", slot)
            elif kind == "node":
                out[number] = ("slot", self._slot(rule[1])) if isinstance(rule[1], Tensor) else ("const", rule[1])
            elif kind in ("view", "detached"):
                (base_kind, position), sizes, strides, offset = rule[1:]
                source = out[position][1] if base_kind == "output" else position
                if base_kind == "detached input":
                    source = self._detached(position)
                slot = self._new_slot()
                name = "view_rel" if kind == "view" else "detach"
                self.code.append((name, slot, source, *map(self._n, (tuple(sizes), tuple(strides), offset))))
                out[number] = ("slot", slot)
            elif kind == "output":
                out[number] = out[rule[1]]
            elif kind == "const" and not isinstance(value := self._n(rule[1]), type(rule[1])):
                out[number] = value if isinstance(value, tuple) else ("const", value)
            else:
                out[number] = tuple(rule)
        return out

    def _detached(self, position: int) -> int:
        """A slot for an input as its `detach()` gives it."""
        source, slot = self.graph.inputs[position], self._new_slot()
        self.code.append(("detach", slot, position, self._n(source.shape), self._n(source.strides), 0))
        return slot


def made_in_order(rules: list[tuple[Any, ...]]) -> list[int]:
    """Positions of outputs in the order in which they can be made: fresh memory first, since views of it may stand before it."""
    return sorted(range(len(rules)), key=lambda position: rules[position][0] != "node")


def counted_writes(writes: dict[tuple[str, int], int], outputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The instructions that make version counters what eager's writes make them (`AtenGraph.writes`)."""
    code: list[tuple[Any, ...]] = []
    for (kind, index), times in writes.items():
        name, place = ("slot", index) if kind == "input" else outputs[index]
        if name == "slot":
            code.append(("wrote_apart" if kind == "apart" else "wrote", place, times))
    return code


def _extent(tensor: Tensor) -> int:
    """Elements from the first to the last one in memory (an Index where sizes are symbolic)."""
    if 0 in tensor.shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
